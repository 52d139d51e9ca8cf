"""Bounds integer inputs by interval arithmetic, so that indices computed from them stay in their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from compiler.ir.constant import Literal, Splat
from compiler.ir.graph import HOST, Graph, Op, Tensor
from compiler.units import DTYPE_NAMES, numpy_dtype

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
# Kinds that put two integers in order.
_ORDERING: Final = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Min", "Max"})
_PAIR: Final = 2
# Host operators that index input 0 by input 1: along one axis, or along the first ones.
_ALONG_AXIS: Final = frozenset({"Gather", "GatherElements", "ScatterElements", "Scatter"})
_ALONG_FIRST: Final = frozenset({"GatherND", "ScatterND"})


@dataclass(frozen=True, slots=True)
class Interval:
    """All values from `low` to `high`, both included; of a boolean 0 and 1."""

    low: int
    high: int


def index_range(graph: Graph, name: str) -> Interval | None:
    """The values of an integer input that keep every index computed from it inside its table.

    They also keep what is compared with positions 0, 1, ... within these, as lengths of texts are, if any values do.
    None if no table is read through the input and no position compared with it, or if no value works. Values that pass
    through host nodes or reductions set no bound, because the intervals cannot follow them; of floats only integers
    that are cast to be compared are followed, as TensorFlow's exporter compares them.
    """
    cone, reached = integer_cone(graph, name, through_sums=False, through_casts=True)
    tables = any(indices in reached for op in cone for indices, _ in _tables(graph, op))
    compares = any(value in reached for op in cone for value, _ in _compared(graph, op))
    most = min(LARGEST, int(np.iinfo(numpy_dtype(graph.tensors[name].dtype)).max))  # type: ignore[type-var]
    found = None
    if compares:
        found = _widest(partial(_miss, graph, cone, name), most)
        found = None if found is not None and found.high == most else found
    if found is None and tables:
        found = _widest(partial(_miss, graph, cone, name, compares=False), most)
    return found


def sum_range(graph: Graph, name: str) -> Interval | None:
    """The sums along an input's last axis that keep what is computed from these in tables and positions.

    So are attention masks summed, to tell how many positions count. None if no such sum is an index or compared.
    """
    extents = graph.tensors[name].shape
    cone, reached = integer_cone(graph, name, through_sums=False)
    moved = {name} | {op.output for op in cone if op.kind in _KEEPING and op.output in reached}
    sums = [op for op in cone if op.kind == "ReduceSum" and op.inputs[0] in moved]
    after = [(op, integer_cone(graph, op.output)[0]) for op in sums]
    after = [(op, read) for op, read in after if any(o.kind in _ORDERING or _tables(graph, o) for o in read)]
    if not after or not extents:
        return None
    whole = Interval(extents[-1], extents[-1])
    found: Interval | None = Interval(1, extents[-1])
    for op, read in after:
        given, made = graph.tensors[op.inputs[0]].elements, graph.tensors[op.output].elements
        if given != made * extents[-1] or found is None:
            return whole
        found = _within(found, _widest(partial(_miss, graph, read, op.output), extents[-1]))
    return found or whole


def _within(one: Interval, other: Interval | None) -> Interval | None:
    """The values in both; None if there are none."""
    if other is None or max(one.low, other.low) > min(one.high, other.high):
        return None
    return Interval(max(one.low, other.low), min(one.high, other.high))


def _widest(miss: Callable[[Interval], int], most: int) -> Interval | None:
    """The widest interval from 0 to `most` that has no `miss`; None if there is none."""
    low, high, fits = 0, most, 0
    while miss(Interval(fits, fits)):
        low, high = (fits + 1, high) if miss(Interval(fits, fits)) < 0 else (low, fits - 1)
        if low > high:
            return None
        fits = (low + high) // 2
    low, high = fits, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (low, middle - 1) if miss(Interval(fits, middle)) else (middle, high)
    last, low, high = low, 0, fits
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if miss(Interval(middle, last)) else (low, middle)
    return Interval(low, last)


def integer_cone(
    graph: Graph, name: str, *, through_sums: bool = True, through_casts: bool = False
) -> tuple[list[Op], set[str]]:
    """The ops that read integers computed from the input, in order, and those integers.

    `through_casts`: also as floats that are only compared.
    """
    reached, cone = {name}, []
    for op in graph.ops:
        if any(value in reached for value in op.inputs):
            cone.append(op)
            is_number = graph.tensors[op.output].dtype in _INTEGERS or (through_casts and op.kind == "Cast")
            if is_number and (through_sums or op.kind != "ReduceSum"):
                reached.add(op.output)
    return cone, reached


def _compared(graph: Graph, op: Op) -> list[tuple[str, Interval]]:
    """What an op compares with the positions 0 to n − 1, and between which values a position counts and others not."""
    if op.kind not in _ORDERING or len(op.inputs) != _PAIR:
        return []
    for number, value in enumerate(op.inputs):
        extent = _positions(graph.tensors[value])
        if extent:
            first = op.kind in ("Less", "LessOrEqual") if number == 0 else op.kind in ("Greater", "GreaterOrEqual")
            if first or op.kind == "Min":
                # positions up to this one: the first one at least
                reach = extent if op.kind in ("Less", "Greater") else extent - 1
                return [(op.inputs[1 - number], Interval(0, reach))]
            # positions from this one on, which may lie before the first one
            return [(op.inputs[1 - number], Interval(-LARGEST, extent - 1))] if op.kind != "Max" else []
    return []


def _positions(tensor: Tensor) -> int:
    """How many positions a constant counts up, 0 if it is none that does."""
    values = _literal(tensor) if tensor.dtype in _INTEGERS else None
    counts = values is not None and values.size > 1 and np.array_equal(values, np.arange(values.size))
    return tensor.elements if counts else 0


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


def _miss(graph: Graph, cone: list[Op], name: str, values: Interval, *, compares: bool = True) -> int:
    """0 if no index leaves its table for the values of `name`, nor a position its extent; −1: too low, 1: too high.

    `compares`: positions are asked for.
    """
    known = {name: values}
    for op in cone:
        bounds = [(indices, Interval(-extent, extent - 1)) for indices, extent in _tables(graph, op)]
        for value, inside in bounds + (_compared(graph, op) if compares else []):
            if value in known and known[value].low < inside.low:
                return -1
            if value in known and known[value].high > inside.high:
                return 1
        found = _result(graph, op, known)
        if found is not None:
            known[op.output] = found
    return 0


def _result(graph: Graph, op: Op, known: Mapping[str, Interval]) -> Interval | None:
    """The interval of an op's result; None if unknown."""
    if graph.tensors[op.output].dtype not in _INTEGERS and op.kind != "Cast":
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
    """The interval of a small constant's values; None for other tensors, fractions, and values in a file."""
    values = _literal(tensor)
    if values is None or (values.dtype.kind not in "iub" and not _are_whole(values)):
        return None
    return Interval(int(values.min()), int(values.max())) if values.size else None


def _are_whole(values: NDArray[Any]) -> bool:
    """True for floats that are integers."""
    with np.errstate(invalid="ignore"):
        return bool(np.all(np.isfinite(values)) and np.all(values == np.floor(values)))


def _literal(tensor: Tensor) -> NDArray[Any] | None:
    """A small constant's numbers, flat; of equal ones one. None for other tensors and for values in a file."""
    if tensor.constant is None or tensor.dtype not in _INTEGERS.union(DTYPE_NAMES):
        return None
    data = tensor.constant.data
    if not isinstance(data, Literal | Splat):
        return None
    return np.frombuffer(data.data if isinstance(data, Literal) else data.value, dtype=numpy_dtype(tensor.dtype))


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
