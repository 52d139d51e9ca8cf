"""Fused operators of ONNX Runtime's optimiser as the operators that it fused (IMPORT-8).

Operand lists are those of the operators' documentation in the domain com.microsoft. The patterns that passes look for
take the operators up again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi
from types import MappingProxyType
from typing import Final

import onnx

from compiler.frontend.decompose.node_builder import Fresh, NodeList
from compiler.ops.base import Call

_MATRIX: Final = 2
# Where a normalisation hands out the sum that it normalises; the outputs between are statistics.
_SUM: Final = 3
_Writer = Callable[[onnx.NodeProto, Call, NodeList], bool]


def fused_nodes(node: onnx.NodeProto, call: Call, fresh: Fresh) -> list[onnx.NodeProto] | None:
    """The nodes that replace a node of the domain com.microsoft; None if it stays."""
    nodes = NodeList(call=call, fresh=fresh)
    return nodes.nodes if FUSED_FORMS[node.op_type](node, call, nodes) else None


def _input(node: onnx.NodeProto, index: int) -> str:
    return node.input[index] if len(node.input) > index else ""


def _biased(node: onnx.NodeProto, nodes: NodeList, data: str, bias: int, out: str | None = None) -> str:
    """Data plus the operand at `bias`, if there is one."""
    name = _input(node, bias)
    return nodes.add("Add", data, name, out=out) if name else data


def _erf_gelu(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """Gelu and BiasGelu: x / 2 · (1 + erf(x / √2))."""
    dtype, x = call.tensor(0).dtype, _biased(node, nodes, node.input[0], 1)
    erf = nodes.add("Erf", nodes.add("Div", x, nodes.number(2**0.5, dtype)))
    product = nodes.add("Mul", x, nodes.add("Add", erf, nodes.number(1, dtype)))
    nodes.add("Mul", product, nodes.number(0.5, dtype), out=node.output[0])
    return True


def _tanh_gelu(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """FastGelu: x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))."""
    dtype, x = call.tensor(0).dtype, _biased(node, nodes, node.input[0], 1)
    cube = nodes.add("Mul", nodes.add("Pow", x, nodes.number(3, dtype)), nodes.number(0.044715, dtype))
    inner = nodes.add("Mul", nodes.add("Add", x, cube), nodes.number((2 / pi) ** 0.5, dtype))
    factor = nodes.add("Add", nodes.add("Tanh", inner), nodes.number(1, dtype))
    nodes.add("Mul", nodes.add("Mul", x, nodes.number(0.5, dtype)), factor, out=node.output[0])
    return True


def _quick_gelu(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """QuickGelu: x · sigmoid(alpha · x)."""
    x, alpha = node.input[0], nodes.number(call.number("alpha", 1.702), call.tensor(0).dtype)
    nodes.add("Mul", x, nodes.add("Sigmoid", nodes.add("Mul", x, alpha)), out=node.output[0])
    return True


def _matmul(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """FusedMatMul: alpha · A · B, either transposed in its last two axes."""
    if call.integer("transBatchA", 0) or call.integer("transBatchB", 0):
        return False
    operands = []
    for index, name in enumerate(("transA", "transB")):
        operand, rank = node.input[index], len(call.tensor(index).shape)
        if call.integer(name, 0) and rank >= _MATRIX:
            operand = nodes.transpose(operand, [*range(rank - 2), rank - 1, rank - 2])
        operands.append(operand)
    alpha = call.number("alpha", 1.0)
    product = nodes.add("MatMul", *operands, out=node.output[0] if alpha == 1 else None)
    if alpha != 1:
        nodes.add("Mul", product, nodes.number(alpha, call.tensor(0).dtype), out=node.output[0])
    return True


def _skip_normalisation(normalisation: str, operands: int) -> _Writer:
    """A normalisation of the sum of data, a skipped part and a bias; it has `operands` of its own before the bias."""

    def write(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
        if any(node.output[1:_SUM]) or len(node.output) > _SUM + 1:
            return False
        given = [_input(node, 2 + number) for number in range(operands)]
        total = node.output[_SUM] if len(node.output) > _SUM and node.output[_SUM] else None
        has_bias = bool(_input(node, 2 + operands))
        both = nodes.add("Add", node.input[0], node.input[1], out=None if has_bias else total)
        both = _biased(node, nodes, both, 2 + operands, out=total)
        inputs = given if given[-1] else given[:-1]
        nodes.add(normalisation, both, *inputs, out=node.output[0], axis=-1, epsilon=call.number("epsilon", 1e-12))
        return True

    return write


FUSED_FORMS: Final[Mapping[str, _Writer]] = MappingProxyType(
    {
        "BiasGelu": _erf_gelu,
        "FastGelu": _tanh_gelu,
        "FusedMatMul": _matmul,
        "Gelu": _erf_gelu,
        "QuickGelu": _quick_gelu,
        "SkipLayerNormalization": _skip_normalisation("LayerNormalization", 2),
        "SkipSimplifiedLayerNormalization": _skip_normalisation("SimplifiedLayerNormalization", 1),
    }
)
