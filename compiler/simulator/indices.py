"""Bounds integer inputs by interval arithmetic, so that indices computed from them stay in their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx

from compiler.ir.constant import Literal, Splat
from compiler.ir.graph import HOST, Graph, Op, Tensor
from compiler.units import numpy_dtype

# Upper bound of generated indices.
LARGEST: Final = 2**16 - 1
_INTEGERS: Final = frozenset({"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"})
_KEEPING: Final = frozenset(
    {
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Identity",
        "Dropout",
        "Transpose",
        "Slice",
        "Expand",
        "Tile",
        "Cast",
    }
)
# Host operators that index input 0 by input 1: along one axis, or along the first ones.
_ALONG_AXIS: Final = frozenset({"Gather", "GatherElements", "ScatterElements", "Scatter"})
_ALONG_FIRST: Final = frozenset({"GatherND", "ScatterND"})


@dataclass(frozen=True, slots=True)
class Interval:
    """All values from `low` to `high`, both included; of a boolean 0 and 1."""

    low: int
    high: int


def largest_index(graph: Graph, name: str) -> int | None:
    """The largest value of an integer input that keeps every index computed from it inside its table.

    None if no table is read through the input, or if no value works. Values that pass through floats, host nodes or
    reductions set no bound, because the intervals cannot follow them.
    """
    cone, reached = integer_cone(graph, name)
    if not any(indices in reached for op in cone for indices, _ in _tables(graph, op)):
        return None
    if not _fits(graph, cone, name, 0):
        return None
    limit = min(LARGEST, int(np.iinfo(numpy_dtype(graph.tensors[name].dtype)).max))  # type: ignore[type-var]
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fits(graph, cone, name, middle) else (low, middle - 1)
    return low


def integer_cone(graph: Graph, name: str) -> tuple[list[Op], set[str]]:
    """The ops that read integers computed from the input, in order, and those integers."""
    reached, cone = {name}, []
    for op in graph.ops:
        if any(value in reached for value in op.inputs):
            cone.append(op)
            if graph.tensors[op.output].dtype in _INTEGERS:
                reached.add(op.output)
    return cone, reached


def _tables(graph: Graph, op: Op) -> list[tuple[str, int]]:
    """The index tensors of an op, and the extent that each indexes."""
    if op.kind == "Gather" and len(op.inputs) > 1:
        axis = dict(op.attributes)["axis"]
        assert isinstance(axis, int)
        return [(op.inputs[1], graph.tensors[op.inputs[0]].shape[axis])]
    if op.kind != HOST:
        return []
    host = graph.host[str(dict(op.attributes)["node"])]
    if host.op_type not in _ALONG_AXIS | _ALONG_FIRST or len(op.inputs) < 2:
        return []
    data, indices = graph.tensors[op.inputs[0]], graph.tensors[op.inputs[1]]
    if not data.is_known or not data.shape or not indices.is_known:
        return []
    given = {a.name: a.i for a in onnx.NodeProto.FromString(host.node).attribute}
    if host.op_type in _ALONG_AXIS:
        return [(indices.name, data.shape[given.get("axis", 0)])]
    first = given.get("batch_dims", 0)
    return [(indices.name, min(data.shape[first : first + indices.shape[-1]], default=1))]


def _fits(graph: Graph, cone: list[Op], name: str, largest: int) -> bool:
    """True if no index leaves its table for input values 0 to `largest`."""
    known: dict[str, Interval] = {name: Interval(0, largest)}
    for op in cone:
        for indices, extent in _tables(graph, op):
            if indices in known and not (-extent <= known[indices].low and known[indices].high < extent):
                return False
        found = _result(graph, op, known)
        if found is not None:
            known[op.output] = found
    return True


def _result(graph: Graph, op: Op, known: Mapping[str, Interval]) -> Interval | None:
    """The interval of an op's result; None if unknown."""
    if graph.tensors[op.output].dtype not in _INTEGERS:
        return None
    given = [known.get(value) or _constant(graph.tensors[value]) for value in op.inputs if value]
    if op.kind in _KEEPING:
        return given[0] if given else None
    if op.kind == "Gather":
        # some of the table's values, whatever the indices: ends of edges out of both rows of a graph
        return known.get(op.inputs[0]) or _constant(graph.tensors[op.inputs[0]])
    if op.kind == "Where":
        flag = given[0] or Interval(0, 1)
        return _united([branch for branch, value in ((given[1], 1), (given[2], 0)) if flag.low <= value <= flag.high])
    if op.kind == "Concat":
        return _united(given)
    rule = _RULES.get(op.kind)
    present = [interval for interval in given if interval is not None]
    return rule(present) if rule is not None and len(present) == len(given) else None


def _united(intervals: Sequence[Interval | None]) -> Interval | None:
    """The union of the known intervals; None if all are unknown."""
    known = [interval for interval in intervals if interval is not None]
    return Interval(min(i.low for i in known), max(i.high for i in known)) if known else None


def _constant(tensor: Tensor) -> Interval | None:
    """The interval of a small constant's values; None for other tensors and for values in a file."""
    if tensor.constant is None or tensor.dtype not in _INTEGERS:
        return None
    data = tensor.constant.data
    if not isinstance(data, Literal | Splat):
        return None
    values = np.frombuffer(data.data if isinstance(data, Literal) else data.value, dtype=numpy_dtype(tensor.dtype))
    return Interval(int(values.min()), int(values.max())) if values.size else None


def _product(given: list[Interval]) -> Interval:
    ends = [a * b for a in (given[0].low, given[0].high) for b in (given[1].low, given[1].high)]
    return Interval(min(ends), max(ends))


def _remainder(given: list[Interval]) -> Interval | None:
    divisor = given[1]
    if divisor.low <= 0:
        return None
    inside = given[0].low >= 0 and given[0].high < divisor.low
    return given[0] if inside else Interval(0 if given[0].low >= 0 else 1 - divisor.high, divisor.high - 1)


def _less(given: list[Interval]) -> Interval:
    a, b = given
    return Interval(int(a.high < b.low), int(a.low < b.high))


def _less_or_equal(given: list[Interval]) -> Interval:
    a, b = given
    return Interval(int(a.high <= b.low), int(a.low <= b.high))


_RULES: Final[Mapping[str, Callable[[list[Interval]], Interval | None]]] = MappingProxyType(
    {
        "Add": lambda g: Interval(g[0].low + g[1].low, g[0].high + g[1].high),
        "Sub": lambda g: Interval(g[0].low - g[1].high, g[0].high - g[1].low),
        "Mul": _product,
        "Neg": lambda g: Interval(-g[0].high, -g[0].low),
        "Mod": _remainder,
        "Max": lambda g: Interval(max(i.low for i in g), max(i.high for i in g)),
        "Min": lambda g: Interval(min(i.low for i in g), min(i.high for i in g)),
        "Less": _less,
        "LessOrEqual": _less_or_equal,
        "Greater": lambda g: _less([g[1], g[0]]),
        "GreaterOrEqual": lambda g: _less_or_equal([g[1], g[0]]),
        "Not": lambda g: Interval(1 - g[0].high, 1 - g[0].low),
    }
)
