"""Which nodes of a quantised model compute on 8-bit integers, and which on floats."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

import onnx
from onnx import TensorProto

from app.cli.quantiser.report import OpCount
from compiler.frontend.inline_functions import subgraphs
from compiler.frontend.node_attributes import node_names

_QUANTIZE: Final = "QuantizeLinear"
_DEQUANTIZE: Final = "DequantizeLinear"
_INTEGER_OPS: Final = frozenset((_QUANTIZE, _DEQUANTIZE, "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"))
_FLOATS: Final = frozenset((TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16))
_NOT_COUNTED: Final = frozenset((_QUANTIZE, _DEQUANTIZE, "Shape", "Size", "Constant", "ConstantOfShape"))
_PRODUCTS: Final = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))


def is_quantised_already(node: onnx.NodeProto) -> bool:
    """True for an op of quantised models."""
    return node.op_type in _INTEGER_OPS or node.op_type.startswith("QLinear")


def op_counts(graph: onnx.GraphProto) -> tuple[OpCount, ...]:
    """The nodes on float tensors by op type, most frequent first.

    A node is quantised if each float tensor that it reads comes from DequantizeLinear, and QuantizeLinear alone reads
    its results, unless they are the graph's. Of a product both operands count, also a constant one, and its bias does
    not; constants of other ops do not count, nor do nodes that read no more than a shape. Nodes that hold graphs stay
    in float: ONNX Runtime does not quantise inside them.
    """
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.input, *graph.output)}
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    types |= {"": TensorProto.UNDEFINED, **{tensor.name: tensor.data_type for tensor in graph.initializer}}
    dequantised = {name for node in graph.node if node.op_type == _DEQUANTIZE for name in node.output}
    readers: dict[str, set[str]] = defaultdict(set)
    for node in graph.node:
        for name in node.input:
            readers[name].add(node.op_type)
    quantised: Counter[str] = Counter()
    in_float: dict[str, list[str]] = defaultdict(list)
    for name, node in zip(node_names(graph), graph.node, strict=True):
        if node.op_type in _NOT_COUNTED:
            continue
        is_product = node.op_type in _PRODUCTS
        values = node.input[:2] if is_product else [value for value in node.input if value not in constants]
        read = [value for value in values if value in dequantised or types.get(value, TensorProto.FLOAT) in _FLOATS]
        if not read:
            continue
        is_out = all(readers[result] <= {_QUANTIZE} for result in node.output)
        if is_out and dequantised.issuperset(read) and not any(subgraphs(node)):
            quantised[node.op_type] += 1
        else:
            in_float[node.op_type].append(name)
    counts = [
        OpCount(op_type=kind, quantised=quantised[kind], in_float=tuple(in_float[kind]))
        for kind in {**quantised, **in_float}
    ]
    return tuple(sorted(counts, key=lambda count: (-count.quantised, -len(count.in_float), count.op_type)))
