"""Constants that several operands of one op read lie in a core once, and come once (PROG-2).

Exporters store equal constants once: of a batch normalisation that was not trained, bias and mean are one, and scale
and variance.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler.compile import compile_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from tests.compiler.planning import BY_RULES
from tests.models import Model
from tests.profiles import small_profile

CHIPS = ("edge4", "cluster4x4", "manycore2x64")
Make = Callable[[], Model]


def batch_norm(channels: int, images: int = 2) -> Model:
    """Between two Relus, so that it is folded into nothing."""
    model = Model()
    x = model.relu(model.input([images, channels, 8, 8]))
    ones = model.constant(np.linspace(0.5, 2, channels).astype(np.float32))
    zeros = model.constant(np.linspace(-1, 1, channels).astype(np.float32))
    model.output(model.relu(model.node("BatchNormalization", [x, ones, zeros, zeros, ones])))
    return model


def instance_norm() -> Model:
    model = Model()
    x, both = model.input([1, 9, 8, 8]), model.weight(9)
    model.output(model.node("InstanceNormalization", [x, both, both]))
    return model


def layer_norm() -> Model:
    model = Model(opset=17)
    x, both = model.input([4, 64]), model.weight(64)
    model.output(model.node("LayerNormalization", [x, both, both]))
    return model


def largest(*shape: int) -> Model:
    model = Model()
    weight = model.weight(*shape)
    model.output(model.node("Max", [model.input(shape), weight, weight]))
    return model


def matrix(size: int, transposed: int = 0) -> Model:
    """A product by a matrix to which the same matrix is added."""
    model = Model()
    weight = model.weight(size, size)
    model.output(model.node("Gemm", [model.input([size, size]), weight, weight], transB=transposed))
    return model


def autoencoder() -> Model:
    """Two layers of one matrix, the second one transposed."""
    model = Model()
    weight = model.weight(64, 32)
    hidden = model.relu(model.node("Gemm", [model.input([16, 64]), weight]))
    model.output(model.node("Gemm", [hidden, weight], transB=1))
    return model


def from_both_sides() -> Model:
    model = Model()
    weight = model.weight(64, 64)
    columns = model.node("Transpose", [model.node("MatMul", [model.input([16, 64]), weight])], perm=[1, 0])
    model.output(model.node("MatMul", [weight, columns]))
    return model


ELEMENTWISE: list[Make] = [
    lambda: batch_norm(9),
    lambda: batch_norm(300, 1),
    lambda: batch_norm(8, 1),
    instance_norm,
    layer_norm,
    lambda: largest(1, 4),
    lambda: largest(64, 100),
]
PRODUCTS: list[Make] = [lambda: matrix(4), lambda: matrix(64, 1), lambda: matrix(256, 1), autoencoder, from_both_sides]
CASES = [(make, chip) for make in ELEMENTWISE for chip in (*CHIPS, "polar4x4")]


@pytest.mark.matrix(first=10, rest=12)
@pytest.mark.parametrize(("make", "chip"), [*CASES, *((make, chip) for make in PRODUCTS for chip in CHIPS)])
def test_what_two_operands_read_is_brought_once(make: Make, chip: str) -> None:
    report = compile_model(make().data(), builtin_profile(chip), parse_options({"fusion": "none"})).report
    assert report.values_checked
    assert all(output.holds for output in report.values.outputs)
    # what the programs move is what the plan says, which counts a constant once
    assert [program.dram_ratio for program in report.programs] == [1.0] * len(report.programs)


def test_a_stage_whose_second_op_passes_weights_in_slices() -> None:
    """Of the first op's weights a core holds all, of the second's not."""
    model = Model()
    x = model.input([64, 4])
    chosen = model.node("Where", [model.node("Greater", [x, model.constant(np.float32(0))]), x, model.weight(64, 4)])
    model.output(model.node("Mul", [chosen, model.weight(64, 4)]))
    report = compile_model(
        model.data(), small_profile(nram_bytes=8192, wram_bytes=512, sram_bytes=32768), BY_RULES
    ).report
    assert all(output.holds for output in report.values.outputs)


def test_weights_in_a_clusters_memory_lie_once_too() -> None:
    model = Model()
    both, other = (model.weight(128, 1, 1) for _ in range(2))
    model.output(model.node("Max", [model.input([4, 128, 8, 8]), both, both, other]))
    profile = small_profile(nram_bytes=8192, wram_bytes=2048, sram_bytes=65536, clusters=2, cores=2)
    report = compile_model(model.data(), profile, BY_RULES).report
    assert all(output.holds for output in report.values.outputs)
