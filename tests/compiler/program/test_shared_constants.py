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
from tests.models import Model

CHIPS = ("edge4", "cluster4x4", "manycore2x64")


def batch_norm(channels: int) -> Model:
    """Between two Relus, so that it is folded into nothing."""
    model = Model()
    x = model.relu(model.input([2, channels, 8, 8]))
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


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("make", [lambda: batch_norm(9), lambda: batch_norm(300), instance_norm, layer_norm])
def test_what_two_operands_read_is_brought_once(make: Callable[[], Model], chip: str) -> None:
    report = compile_model(make().data(), builtin_profile(chip), parse_options({"fusion": "none"})).report
    assert report.values_checked
    assert all(output.holds for output in report.values.outputs)
    # what the programs move is what the plan says, which counts a constant once
    assert [program.dram_ratio for program in report.programs] == [1.0] * len(report.programs)
