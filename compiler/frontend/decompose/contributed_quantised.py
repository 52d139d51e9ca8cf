"""Quantised operators that ONNX Runtime adds to the standard, as conversions, the op, and conversions (IMPORT-9).

Its quantiser writes them in the form of operators (QOperator): QLinearAdd and its like beside QLinearConv. The pass
that runs networks in integers takes the conversions up again. Operand lists are those of the operators' documentation
in the domain com.microsoft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import onnx

from compiler.frontend.constant_values import FOUR_BITS
from compiler.frontend.decompose.node_builder import Fresh, NodeList
from compiler.ir.graph import Tensor
from compiler.ops.base import Call
from compiler.ops.packed import no_block
from compiler.units import ceil_div

# The first operator set of the standard with conversions, with DynamicQuantizeLinear, with scales along an axis.
_CONVERSIONS: Final = 10
_DYNAMIC: Final = 11
_ALONG_AXES: Final = 13
_AXES: Final = 2
_Writer = Callable[[onnx.NodeProto, Call, NodeList], bool]


def contributed_nodes(node: onnx.NodeProto, call: Call, fresh: Fresh, opset: int) -> list[onnx.NodeProto] | None:
    """The nodes that replace a node of the domain com.microsoft; None if it stays. `opset`: of the standard."""
    write = _WRITERS.get(node.op_type)
    least = _DYNAMIC if node.op_type == "DynamicQuantizeMatMul" else _CONVERSIONS
    if write is None or opset < least or any(node.output[1:]):
        return None
    nodes = NodeList(call=call, fresh=fresh)
    # sums of these are multiplied by scales, which no conversion reads
    along = write not in (_integers_to_floats, _dynamic_product) and any(t.elements > 1 for t in _parameters(call))
    if (along and opset < _ALONG_AXES) or not write(node, call, nodes):
        return None
    return nodes.nodes


def _parameters(call: Call) -> list[Tensor]:
    """Operands that may be scales or zero points: constants of one axis at most."""
    return [t for t in call.inputs if t is not None and t.constant is not None and len(t.shape) < _AXES]


def _input(node: onnx.NodeProto, index: int) -> str:
    return node.input[index] if len(node.input) > index else ""


def _floats(node: onnx.NodeProto, nodes: NodeList, data: int, *, axis: int | None = None) -> str:
    """The operand at `data` as floats, by the scale and the zero point behind it."""
    given = [name for name in (_input(node, data + index) for index in range(3)) if name]
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    return nodes.add("DequantizeLinear", *given, **attributes)


def _integers(node: onnx.NodeProto, nodes: NodeList, floats: str, scale: int) -> bool:
    """Ends with the integers of the scale at `scale` and the zero point behind it."""
    given = [floats, *(name for name in (_input(node, scale), _input(node, scale + 1)) if name)]
    nodes.add("QuantizeLinear", *given, out=node.output[0])
    return True


def _of_one(op_type: str, *attributes: str) -> _Writer:
    """An op of one operand: data, its scale and zero point, scale and zero point of the result."""

    def write(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
        if call.integer("channels_last", 0):
            return False
        made = nodes.add(op_type, _floats(node, nodes, 0))
        nodes.nodes[-1].attribute.extend(item for item in node.attribute if item.name in attributes)
        return _integers(node, nodes, made, 3)

    return write


def _of_two(op_type: str) -> _Writer:
    """An op of two operands, each with scale and zero point."""

    def write(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
        del call
        made = nodes.add(op_type, _floats(node, nodes, 0), _floats(node, nodes, 3))
        return _integers(node, nodes, made, 6)

    return write


def _concat(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """QLinearConcat: scale and zero point of the result, then three operands for each input."""
    del call
    parts = [_floats(node, nodes, first) for first in range(2, len(node.input), 3)]
    made = nodes.add("Concat", *parts)
    nodes.nodes[-1].attribute.extend(item for item in node.attribute if item.name == "axis")
    return _integers(node, nodes, made, 0)


def _gemm(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """QGemm: A, B and an int32 C in units of their scales' product; without a result's scale it gives floats."""
    if call.number("alpha", 1.0) != 1.0:
        return False
    transposed = call.integer("transB", 0) != 0
    by_column = call.has(4) and call.tensor(4).elements > 1
    a = _floats(node, nodes, 0)
    b = _floats(node, nodes, 3, axis=(0 if transposed else 1) if by_column else None)
    inputs = [a, b]
    if _input(node, 6):
        units = nodes.add("Mul", node.input[1], node.input[4])
        axis: dict[str, Any] = {"axis": len(call.tensor(6).shape) - 1} if by_column else {}
        inputs.append(nodes.add("DequantizeLinear", node.input[6], units, **axis))
    is_float = not _input(node, 7)
    made = nodes.add("Gemm", *inputs, out=node.output[0] if is_float else None)
    nodes.nodes[-1].attribute.extend(item for item in node.attribute if item.name in ("transA", "transB"))
    return is_float or _integers(node, nodes, made, 7)


def scaled(nodes: NodeList, sums: str, scales: tuple[str, str], bias: str, out: str) -> bool:
    """Sums of a MatMulInteger as floats: times both scales, plus a bias if there is one."""
    units = nodes.add("Mul", *scales)
    made = nodes.add("Mul", nodes.cast(sums, "float32"), units, out=None if bias else out)
    if bias:
        nodes.add("Add", made, bias, out=out)
    return True


def integer_product(nodes: NodeList, a: str, b: str, zeros: tuple[str, str]) -> str:
    """A MatMulInteger; trailing zero points may be left out."""
    given = [a, b, *zeros]
    while not given[-1]:
        given.pop()
    return nodes.add("MatMulInteger", *given)


def _integers_to_floats(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """MatMulIntegerToFloat: A, B, their scales, their zero points, a bias."""
    if call.tensor(2).dtype != "float32" or call.tensor(2).elements > 1:
        return False
    sums = integer_product(nodes, node.input[0], node.input[1], (_input(node, 4), _input(node, 5)))
    return scaled(nodes, sums, (node.input[2], node.input[3]), _input(node, 6), node.output[0])


def _dynamic_product(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """DynamicQuantizeMatMul: A is quantised at run time; B, its scale, its zero point, a bias."""
    del call
    scale, zero = nodes.fresh(f"{nodes.stem}/scale"), nodes.fresh(f"{nodes.stem}/zero")
    data = nodes.add("DynamicQuantizeLinear", node.input[0])
    nodes.nodes[-1].output.extend([scale, zero])
    sums = integer_product(nodes, data, node.input[1], (zero, _input(node, 3)))
    return scaled(nodes, sums, (scale, node.input[2]), _input(node, 4), node.output[0])


def _gathered_blocks(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """GatherBlockQuantized: the rows that are looked up become floats, by the scales and zero points of their blocks.

    Only rows are unpacked: a table of bytes stays as it lies in the file. `node` names integers of 4 bits as bytes.
    """
    data, scales = call.tensor(0), call.tensor(2)
    bits, block = call.integer("bits", 4), call.integer("block_size", 128)
    axes = [call.axis(name, default, len(data.shape)) for name, default in (("gather_axis", 0), ("quantize_axis", 1))]
    is_packed = data.dtype == "uint8"
    if axes != [0, 1] or len(data.shape) != _AXES:
        call.fail("blocks lie along the second of two axes, and rows are looked up", actual=axes, limit=[0, 1])
    if bits not in (2, 4, 8) or not (is_packed or data.dtype in FOUR_BITS):
        call.fail("numbers have 2, 4 or 8 bits", actual=(bits, data.dtype), limit="in uint8, or of 4 bits")
    if no_block(block) is not None:
        call.fail("block_size is a power of 2 from 16 on", actual=block, limit=16)
    rows, each_byte = int(data.shape[0]), 8 // bits if is_packed else 1
    width, blocks = int(data.shape[1]) * each_byte, int(scales.shape[-1])
    if scales.shape != (rows, ceil_div(width, block)) or (blocks > 1 and width != blocks * block):
        call.fail("scales are one for each whole block of a row", actual=scales.shape, limit=data.shape)
    if call.has(3) and call.tensor(3).shape != (rows, ceil_div(blocks, each_byte)):
        call.fail("zero points are one for each block", actual=call.tensor(3).shape, limit=(rows, blocks))

    def looked_up(index: int, count: int) -> str:
        found = nodes.cast(nodes.add("Gather", node.input[index], node.input[1], axis=0), "float32")
        return _unpacked(nodes, found, bits, rank, count) if is_packed else found

    rank = len(call.tensor(1).shape)
    kept = (0,) * rank
    numbers = nodes.cast(looked_up(0, width), scales.dtype)
    zero = nodes.number(2 ** (bits - 1) if is_packed else 0, scales.dtype)
    if _input(node, 3):
        zero = nodes.unsqueeze(nodes.cast(looked_up(3, blocks), scales.dtype), rank + 1)
    units = nodes.unsqueeze(nodes.add("Gather", node.input[2], node.input[1], axis=0), rank + 1)
    by_block = nodes.reshape(numbers, (*kept, blocks, width // blocks))
    made = nodes.add("Mul", nodes.add("Sub", by_block, zero), units)
    nodes.reshape(made, (*kept, width), out=node.output[0])
    return True


def _unpacked(nodes: NodeList, rest: str, bits: int, axis: int, count: int) -> str:
    """Bytes, as float32, as the first `count` of the numbers of so many bits that lie in them along their last axis."""
    parts: list[str] = []
    for shift in range(8 - bits, 0, -bits):
        high = nodes.add("Floor", nodes.add("Mul", rest, nodes.number(2.0**-shift, "float32")))
        rest = nodes.add("Sub", rest, nodes.add("Mul", high, nodes.number(2.0**shift, "float32")))
        parts.insert(0, nodes.unsqueeze(high, axis + 1))
    if not parts:
        return rest
    both = nodes.add("Concat", nodes.unsqueeze(rest, axis + 1), *parts, axis=axis + 1)
    whole = ceil_div(count, 8 // bits) * (8 // bits)
    numbers = nodes.reshape(both, (*(0,) * axis, whole))
    return nodes.slice(numbers, axis, 0, count) if count != whole else numbers


_POOL: Final = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
_WRITERS: Final[Mapping[str, _Writer]] = MappingProxyType(
    {
        "QLinearAdd": _of_two("Add"),
        "QLinearMul": _of_two("Mul"),
        "QLinearSigmoid": _of_one("Sigmoid"),
        "QLinearLeakyRelu": _of_one("LeakyRelu", "alpha"),
        "QLinearSoftmax": _of_one("Softmax", "axis"),
        "QLinearGlobalAveragePool": _of_one("GlobalAveragePool"),
        "QLinearAveragePool": _of_one("AveragePool", *_POOL),
        "QLinearConcat": _concat,
        "QGemm": _gemm,
        "MatMulIntegerToFloat": _integers_to_floats,
        "DynamicQuantizeMatMul": _dynamic_product,
        "GatherBlockQuantized": _gathered_blocks,
    }
)
CONTRIBUTED_FORMS: Final = tuple(_WRITERS)
