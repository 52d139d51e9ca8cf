"""Quantised networks as packages: an unseen batch has the values of the reference (IMPORT-9)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto

from compiler.frontend.source import ModelSource
from tests.compiler.shapes.dynamic import Compiled
from tests.quantised.forms import Net


def _of_four_bits(net: Net) -> None:
    """Products, a convolution, one of one channel per group, and a product of floats, by weights of 4 bits."""
    x = net.qdq(net.input(4, 3, 8, 8), 0.03, 11)
    y = net.qdq(net.node("Conv", x, net.four_bits(6, 3, 3, 3), net.bias(6), pads=[1] * 4), 0.2, -3)
    z = net.qdq(net.node("Conv", y, net.four_bits(6, 1, 3, 3), pads=[1] * 4, group=6), 0.3, 2)
    flat = net.node("Flatten", z)
    net.result(net.q(net.node("Gemm", flat, net.four_bits(10, 384), net.bias(10), transB=1), 0.5))
    net.result(net.node("Gemm", net.node("Tanh", flat), net.four_bits(7, 384), transB=1), TensorProto.FLOAT)


def _zero_points_by_channel(net: Net) -> None:
    def weight(*shape: int) -> str:
        zeros = net.constant(net.random.integers(-9, 9, shape[0]), np.int8)
        integers, scales = net.constant(net.integers(*shape), np.int8), net.constant(net.scales(shape[0]))
        return net.node("DequantizeLinear", integers, scales, zeros, axis=0)

    x = net.qdq(net.input(4, 3, 8, 8), 0.03, 11)
    y = net.qdq(net.node("Conv", x, weight(6, 3, 3, 3), net.bias(6), pads=[1] * 4), 0.2, -3)
    net.result(net.q(net.node("Gemm", net.node("Flatten", y), weight(10, 384), net.bias(10), transB=1), 0.5))


def _ranges_of_the_run(net: Net) -> None:
    """Both factors of a product are quantised at run time."""
    left, right = net.input(4, 9, 16), net.input(4, 16, 5)
    a, a_scale, a_zero = net.nodes_out("DynamicQuantizeLinear", 3, left)
    b, b_scale, b_zero = net.nodes_out("DynamicQuantizeLinear", 3, right)
    sums = net.node("Cast", net.node("MatMulInteger", a, b, a_zero, b_zero), to=TensorProto.FLOAT)
    net.result(net.node("Mul", sums, net.node("Mul", a_scale, b_scale)), TensorProto.FLOAT)


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("make", [_of_four_bits, _zero_points_by_channel, _ranges_of_the_run])
def test_a_package_of_a_quantised_network_runs_at_any_batch(make: Callable[[Net], None]) -> None:
    """At the ends of a range and between."""
    net = Net(21)

    make(net)
    model = net.model()
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.HasField("shape") and value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    made = Compiled(ModelSource.from_bytes(model.SerializeToString()), {"batch": (1, 6)})
    assert not made.has_host
    assert [miss for batch in (1, 3, 6) for miss in made.misses({"batch": batch})] == []
