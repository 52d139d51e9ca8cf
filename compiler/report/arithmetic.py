"""The element types that chips compute in, and which ops of a quantised model compute in floats (IMPORT-9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from compiler.fusion.groups import FusedGraph
from compiler.ir.graph import Graph, Op
from compiler.ops import definition
from compiler.ops.base import FLOATS, OpClass
from compiler.ops.op_facts import OpFacts
from compiler.ops.packed import MatMulNBits
from compiler.ops.quantised import ARRAY_TYPE, EIGHT_BITS, QuantisedOp, QuantisedProduct, base_kind
from compiler.report.plan import ArithmeticDoc, FloatProductsDoc

_CONVERSIONS: Final = ("QuantizeLinear", "DequantizeLinear")
_MOVING: Final = (OpClass.MOVEMENT, OpClass.VIEW)
# Why both factors of a float product may be quantised.
_NO_SUMS: Final = (
    "the factors are quantised, but not each by one scale and zero point (constants also by output channel),"
    " or sums of their products need more than 32 bits"
)
# The same where one is a weight of 4 bits.
_NO_SUMS_BY_BLOCKS: Final = (
    "the weights of 4 bits have scales or zero points by block, so no sum of integers gives their products"
)


def arithmetic_doc(fused: FusedGraph, arrays: Collection[str]) -> ArithmeticDoc:
    """Work and weights of the chips by element type; of a quantised model also what computes in floats, and why.

    `arrays`: the element types that the profile has arrays for.
    """
    facts, graph = fused.facts, fused.facts.graph
    ops = [op for op in facts.ops if op.index not in graph.on_host]
    macs: Counter[str] = Counter()
    for op in ops:
        if op.total_macs:
            macs[op.dtype] += op.total_macs
    stored: Counter[str] = Counter()
    for name in facts.weights_of(op.index for op in ops):
        stored[graph.tensors[name].stored_dtype] += facts.tensor_bytes(name)
    is_quantised = any(_is_quantised(graph.ops[op.index]) for op in ops)
    in_floats = [op for op in ops if is_quantised and _is_in_floats(graph, op)]
    return ArithmeticDoc(
        macs=dict(sorted(macs.items())),
        weight_bytes=dict(sorted(stored.items())),
        is_quantised=is_quantised,
        float_products=_float_products(graph, [op for op in in_floats if op.matrix is not None], arrays),
        float_ops=dict(sorted(Counter(base_kind(op.kind) for op in in_floats if op.matrix is None).items())),
    )


def _is_quantised(op: Op) -> bool:
    """True for ops on quantised tensors and for conversions from and to them."""
    return op.kind in _CONVERSIONS or isinstance(definition(op), QuantisedOp | QuantisedProduct | MatMulNBits)


def _is_in_floats(graph: Graph, op: OpFacts) -> bool:
    """True for an op that computes with floats, be they in a memory or only between integers."""
    if op.matrix is not None:
        return op.dtype in FLOATS
    made = graph.ops[op.index]
    if isinstance(definition(made), QuantisedOp):
        return op.vector_ops > 0
    touched = {graph.tensors[name].dtype for name in (*made.inputs, made.output) if name}
    return op.vector_ops > 0 and op.op_class not in _MOVING and not touched.isdisjoint(FLOATS)


def _float_products(graph: Graph, products: list[OpFacts], arrays: Collection[str]) -> tuple[FloatProductsDoc, ...]:
    """Products in floats by element type and reason, those with the most work first."""
    found: dict[tuple[str, str], list[OpFacts]] = {}
    for op in products:
        found.setdefault((op.dtype, _why_in_floats(graph, graph.ops[op.index], arrays)), []).append(op)
    made = [
        FloatProductsDoc(
            dtype=dtype,
            nodes=tuple(dict.fromkeys(graph.ops[op.index].node for op in ops)),
            macs=sum(op.total_macs for op in ops),
            reason=reason,
        )
        for (dtype, reason), ops in found.items()
    ]
    return tuple(sorted(made, key=lambda entry: -entry.macs))


def _is_made_of_bytes(graph: Graph, name: str) -> bool:
    """True for floats that a DequantizeLinear makes of integers of 8 bits."""
    maker = graph.ops[graph.producer[name]] if name in graph.producer else None
    return maker is not None and maker.kind == "DequantizeLinear" and graph.tensors[maker.inputs[0]].dtype in EIGHT_BITS


def _why_in_floats(graph: Graph, op: Op, arrays: Collection[str]) -> str:
    """Why a product of a quantised model is one of floats."""
    is_packed = isinstance(definition(op), MatMulNBits)
    if is_packed and not _is_made_of_bytes(graph, op.inputs[0]):
        bits = dict(op.attributes).get("bits", 4)
        return f"weights stored in {bits} bits become floats as they are multiplied"
    if is_packed and ARRAY_TYPE in arrays:
        return _NO_SUMS_BY_BLOCKS
    if ARRAY_TYPE not in arrays:
        return f"the profile has no matrix array for element type {ARRAY_TYPE}"
    for name in op.inputs[:2]:
        tensor = graph.tensors[name]
        if tensor.constant is not None:
            if tensor.stored_dtype in EIGHT_BITS:
                continue
            what = "a float constant" if tensor.stored_dtype in FLOATS else f"a constant of {tensor.stored_dtype}"
            return f"a factor is {what}, not of 8-bit integers"
        if name not in graph.producer:
            return "a factor is a float input of the model"
        maker = graph.ops[graph.producer[name]]
        if maker.kind != "DequantizeLinear":
            return f"a factor is a float result of {base_kind(maker.kind)}, which the model does not quantise"
        stored = graph.tensors[maker.inputs[0]].dtype
        if stored not in EIGHT_BITS:
            return f"a factor is of {stored}, not of 8-bit integers"
    return "the first factor is a constant" if graph.tensors[op.inputs[0]].constant is not None else _NO_SUMS
