"""Work and classes of ops: what cost and rules are told of each (SPEC section 4)."""

from __future__ import annotations

import pytest
from onnx import TensorProto

from compiler.ops import OP_KINDS
from compiler.ops.base import OpClass
from compiler.ops.op_facts import OpFacts
from tests.models import Model


def facts_of(model: Model, out: str) -> OpFacts:
    """The facts of the only op."""
    model.output(out)
    (op,) = model.facts().ops
    return op


@pytest.mark.parametrize("group", [1, 2, 4])
def test_a_convolution_multiplies_once_per_output_tap_and_channel_of_its_group(group: int) -> None:
    model = Model()
    op = facts_of(model, model.conv(model.input([2, 4, 6, 6]), 4, 8, group=group))
    assert op.total_macs == 2 * 8 * 36 * (4 // group) * 9
    assert op.matrix is not None
    assert (op.matrix.groups, op.matrix.out_channels, op.matrix.in_channels, op.matrix.taps) == (
        group,
        8 // group,
        4 // group,
        9,
    )


def test_a_transposed_convolution_multiplies_once_per_input_tap_and_channel() -> None:
    model = Model()
    x = model.input([1, 4, 5, 5])
    op = facts_of(model, model.node("ConvTranspose", [x, model.weight(4, 3, 2, 2)], strides=[2, 2]))
    assert op.total_macs == 4 * 25 * 3 * 4


def test_products_multiply_once_per_output_and_inner_position() -> None:
    model = Model()
    op = facts_of(model, model.node("MatMul", [model.input([5, 2, 3]), model.weight(3, 7)]))
    assert op.total_macs == 5 * 2 * 3 * 7
    model = Model()
    op = facts_of(model, model.node("Gemm", [model.input([3, 2]), model.weight(7, 3)], transA=1, transB=1))
    assert op.total_macs == 2 * 3 * 7


def test_a_product_of_wide_integers_runs_on_the_vector_lanes() -> None:
    """No machine has an array for them: a product and a sum per step and output."""
    model = Model()
    x, y = (model.input(shape, dtype=TensorProto.INT32) for shape in ([2, 3], [3, 7]))
    op = facts_of(model, model.node("MatMul", [x, y]))
    assert op.matrix is None
    assert op.total_macs == 0
    assert op.vector_ops == 2 * 3


def test_linear_resizing_blends_two_neighbours_per_axis_that_changes() -> None:
    model = Model()
    x = model.input([1, 2, 3, 4])
    op = facts_of(model, model.node("Resize", [x, "", "", model.ints(1, 2, 6, 8)], mode="linear"))
    assert op.op_class is OpClass.MOVEMENT
    assert op.vector_ops == 2 * 4


def test_weight_bytes_count_every_constant_operand() -> None:
    model = Model()
    op = facts_of(model, model.conv(model.input([1, 4, 6, 6]), 4, 8, bias=True))
    assert op.weight_bytes == (8 * 4 * 9 + 8) * 4


def test_a_pooling_passes_its_window_once_per_output() -> None:
    model = Model()
    op = facts_of(model, model.pool(model.input([1, 4, 6, 6]), 3, 1))
    assert op.vector_ops == 9
    assert op.total_macs == 0


def test_a_data_movement_passes_each_element_once() -> None:
    model = Model()
    op = facts_of(model, model.node("Transpose", [model.input([2, 3])]))
    assert op.vector_ops == 1


def test_a_view_does_no_work() -> None:
    model = Model()
    op = facts_of(model, model.node("Flatten", [model.input([2, 3, 4])]))
    assert op.op_class is OpClass.VIEW
    assert op.vector_ops == 0
    assert op.total_macs == 0


CLASSES = {
    OpClass.MAIN: "Conv ConvTranspose Gemm MatMul MaxPool AveragePool GlobalAveragePool GlobalMaxPool",
    OpClass.SCALAR: "Add Sub Mul Sum",
    OpClass.VECTOR: """Relu Sigmoid BatchNormalization LRN Softmax Clip Div ReduceMean LayerNormalization Where Cast
        GroupNormalization RMSNormalization ArgMax CumSum QuantizeLinear DequantizeLinear Gelu Swish Mod And IsNaN""",
    OpClass.MOVEMENT: "Transpose Concat Slice Pad Resize DepthToSpace SpaceToDepth Expand Tile Gather Upsample",
    OpClass.VIEW: "Reshape Flatten Squeeze Unsqueeze Identity Dropout",
}


@pytest.mark.parametrize("op_class", list(CLASSES))
def test_kinds_are_in_the_class_that_the_rules_speak_of(op_class: OpClass) -> None:
    """SPEC section 1: main ops are convolution, matrix multiplication and pooling."""
    assert {OP_KINDS[kind].op_class for kind in CLASSES[op_class].split()} == {op_class}


def test_overlap_is_kernel_minus_stride_per_axis() -> None:
    """FUSE-19's summand."""
    model = Model()
    x = model.input([1, 1, 9, 9])
    op = facts_of(model, model.node("Conv", [x, model.weight(1, 1, 5, 3)], strides=[2, 4]))
    assert op.overlap == (3, -1)
