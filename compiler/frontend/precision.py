"""Another element type for a whole graph: the plan of the model as if it were quantised (SPEC section 13)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from compiler.ir.constant import Constant, Derived
from compiler.ir.graph import HOST, Graph, Op, Tensor
from compiler.ops import definition
from compiler.ops.base import FLOATS, OpClass

_FLOATS: Final = (*FLOATS, "float64")
# The type of sums, and so of the biases added to them: 4 bytes for either precision.
_BIAS: Final[Mapping[str, str]] = MappingProxyType({"int8": "int32", "float16": "float32"})
# The function of a description that gives a constant's size and origin. It has no evaluation, so a request for the
# values fails instead of returning wrong ones.
WHAT_IF: Final = "what-if"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPrecision:
    """Pass: every float tensor becomes int8 or float16, for planning only (SPEC section 13).

    1. Floats (activations and constants) take `precision`: 1 or 2 bytes. Integers and bools are unchanged.
    2. A bias (a constant from the third input on of a main op) has 4 bytes: int32 or float32.
    3. A dequantised constant keeps its stored integers.
    4. An attribute that names the result's element type (Cast) names the new type.
    The values of the constants can no longer be computed. `precision` None leaves the graph unchanged.
    """

    name: str = "set-precision"
    precision: str | None = None

    def run(self, graph: Graph) -> Graph:
        """The graph with the element types replaced; shapes, ops and names stay."""
        if self.precision is None:
            return graph
        biases = _biases(graph)
        tensors = {
            name: _retyped(tensor, _BIAS[self.precision] if name in biases else self.precision)
            for name, tensor in graph.tensors.items()
        }
        return replace(
            graph,
            ops=tuple(_retargeted(op, tensors[op.output].dtype) for op in graph.ops),
            tensors=MappingProxyType(tensors),
        )


def _biases(graph: Graph) -> frozenset[str]:
    """The constants that main ops add to their sums."""
    return frozenset(
        name
        for op in graph.ops
        if op.kind != HOST and definition(op).op_class is OpClass.MAIN
        for name in op.inputs[2:]
        if name and graph.tensors[name].constant is not None
    )


def _retyped(tensor: Tensor, dtype: str) -> Tensor:
    if tensor.dtype not in _FLOATS or tensor.dtype == dtype:
        return tensor
    constant = None if tensor.constant is None else _described(tensor.constant, dtype)
    return replace(tensor, dtype=dtype, constant=constant)


def _described(constant: Constant, dtype: str) -> Constant:
    """The constant in another element type, also in memory unless it is stored in integers: these keep their scales."""
    if constant.stored_dtype in _FLOATS:
        return _without_values(constant, dtype)
    data = constant.data
    assert isinstance(data, Derived)
    first, *others = data.inputs
    held = _described(first, dtype) if first.dtype in _FLOATS else _without_values(first, first.dtype)
    return Constant(shape=constant.shape, dtype=dtype, data=replace(data, inputs=(held, *others)))


def with_values(graph: Graph) -> Graph:
    """The graph with the constants that it had before the pass, in tensors of their new types: to look values up."""
    before = {
        name: replace(tensor, constant=tensor.constant.data.inputs[0])
        for name, tensor in graph.tensors.items()
        if tensor.constant is not None
        and isinstance(tensor.constant.data, Derived)
        and tensor.constant.data.function == WHAT_IF
    }
    return replace(graph, tensors=MappingProxyType({**graph.tensors, **before})) if before else graph


def _without_values(constant: Constant, dtype: str) -> Constant:
    return Constant(shape=constant.shape, dtype=dtype, data=Derived(function=WHAT_IF, inputs=(constant,)))


def _retargeted(op: Op, dtype: str) -> Op:
    """The op with the new element type in its attributes, if they name one."""
    if op.kind != "Cast":
        return op
    return replace(op, attributes=tuple((key, dtype if key == "to" else value) for key, value in op.attributes))
