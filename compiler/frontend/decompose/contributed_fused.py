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

from compiler.frontend.decompose.contributed_attention import (
    attention,
    embedding,
    multi_head_attention,
    quantised_attention,
    rotary_embedding,
)
from compiler.frontend.decompose.grouped_query import grouped_query_attention
from compiler.frontend.decompose.node_builder import Fresh, NodeList
from compiler.ops.base import Call, Refusal

_MATRIX: Final = 2
# Where a normalisation hands out the sum that it normalises; the outputs between are statistics.
_SUM: Final = 3
# From this operator set on the bounds of Clip are inputs instead of attributes.
_BOUNDS_AS_INPUTS: Final = 11
# Writes a node's replacement; False, or a Refusal that says why, if the node stays.
_Writer = Callable[[onnx.NodeProto, Call, NodeList], bool | Refusal]


def fused_nodes(node: onnx.NodeProto, call: Call, fresh: Fresh) -> list[onnx.NodeProto] | Refusal | None:
    """The nodes that replace a node of the domain com.microsoft; None or a Refusal if it stays."""
    nodes = NodeList(call=call, fresh=fresh)
    found = FUSED_FORMS[node.op_type](node, call, nodes)
    return found if isinstance(found, Refusal) else nodes.nodes if found else None


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


# Activations behind a fused product: their attributes, in the order of activation_params.
_ACTIVATIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Clip": ("min", "max"),
        "Elu": ("alpha",),
        "HardSigmoid": ("alpha", "beta"),
        "LeakyRelu": ("alpha",),
        "Relu": (),
        "Selu": ("alpha", "gamma"),
        "Sigmoid": (),
        "Softplus": (),
        "Softsign": (),
        "Tanh": (),
        "ThresholdedRelu": ("alpha",),
    }
)


def _activated(node: onnx.NodeProto, call: Call, nodes: NodeList, product: str, name: str, given: list[float]) -> None:
    """The activation of a product as the node's result; `given`: values of its attributes, some or all."""
    attributes = dict(zip(_ACTIVATIONS[name], given, strict=False))
    inputs = [product]
    if name == "Clip" and nodes.opset >= _BOUNDS_AS_INPUTS:
        inputs += [nodes.number(value, call.tensor(0).dtype) for value in given]
        attributes = {}
    nodes.add(name, *inputs, out=node.output[0], **attributes)


def _convolution(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """FusedConv: a convolution, a sum with data of the result's shape, an activation."""
    name = str(call.attributes.get("activation", ""))
    given = call.attributes.get("activation_params", ())
    if name not in _ACTIVATIONS or not isinstance(given, tuple) or len(given) != len(_ACTIVATIONS[name]):
        return False
    operands = [*node.input[:2], *filter(None, [_input(node, 2)])]
    made = nodes.add("Conv", *operands)
    nodes.nodes[-1].attribute.extend(item for item in node.attribute if not item.name.startswith("activation"))
    _activated(node, call, nodes, _biased(node, nodes, made, 3), name, [float(value) for value in given])
    return True


def _gemm(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """FusedGemm: a Gemm and an activation, whose attributes have names of their own."""
    name = str(call.attributes.get("activation", ""))
    if name not in _ACTIVATIONS or name == "Clip":
        return False
    made = nodes.add("Gemm", *node.input)
    nodes.nodes[-1].attribute.extend(item for item in node.attribute if not item.name.startswith("activation"))
    names = [f"activation_{own}" for own in _ACTIVATIONS[name]]
    if any(own not in call.attributes for own in names):
        return False
    _activated(node, call, nodes, made, name, [call.number(own, 0.0) for own in names])
    return True


FUSED_FORMS: Final[Mapping[str, _Writer]] = MappingProxyType(
    {
        "Attention": attention,
        "BiasGelu": _erf_gelu,
        "EmbedLayerNormalization": embedding,
        "FastGelu": _tanh_gelu,
        "FusedConv": _convolution,
        "FusedGemm": _gemm,
        "FusedMatMul": _matmul,
        "Gelu": _erf_gelu,
        "GroupQueryAttention": grouped_query_attention,
        "MultiHeadAttention": multi_head_attention,
        "QAttention": quantised_attention,
        "QuickGelu": _quick_gelu,
        "RotaryEmbedding": rotary_embedding,
        "SkipLayerNormalization": _skip_normalisation("LayerNormalization", 2),
        "SkipSimplifiedLayerNormalization": _skip_normalisation("SimplifiedLayerNormalization", 1),
        "TransposeMatMul": _matmul,
    }
)
