"""ArgMax, ArgMin and CumSum along an axis that is longer than a core holds (TILE-2, SHAPE-1).

The op runs on each part of the axis, and a reduction of each part (its extreme, its sum) puts the results together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isqrt
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.frontend.constant_values import literal
from compiler.ir.graph import Attribute, Graph, Op, Tensor
from compiler.ops.base import default_axes
from compiler.partition.alone import refused_alone, replace_refused
from compiler.partition.made import Made, opened, reshape
from compiler.partition.partition import CandidateFactory
from compiler.partition.reductions import largest_divisor
from compiler.profile.schema import Profile
from compiler.units import ceil_div, element_bytes

_EXTREMES: Final = MappingProxyType({"ArgMax": "ReduceMax", "ArgMin": "ReduceMin"})
# In 16-bit floats a part's sum is rounded, which the op at once does not do.
_SUMMED: Final = frozenset({"float32", "int32", "int64"})
# A shorter axis has no parts of more than one position.
_LEAST: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPositions:
    """Pass: ArgMax, ArgMin and CumSum that fit no core are taken of parts of their axis."""

    name: str = "split-positions"
    profile: Profile
    candidates: CandidateFactory = field(repr=False)

    def run(self, graph: Graph) -> Graph:
        """The graph with such ops replaced."""
        return replace_refused(graph, self.candidates, _rows, partial(self._parts, graph), self._adds_again)

    def _adds_again(self, graph: Graph, op: Op) -> bool:
        """Whether tiles of an op add up its whole axis each: a core has no room for the axis and its running sums."""
        if op.kind != "CumSum":
            return False
        data = graph.tensors[op.inputs[0]]
        return 2 * data.shape[_axis(op)] * element_bytes(data.dtype) > self.profile.nram.capacity_bytes

    def _parts(self, graph: Graph, made: Made, op: Op, numbers: Sequence[int]) -> list[Op]:
        """Ops that do what an op does, with its axis in one of these numbers of rows; the op itself if no row fits."""
        axis = _axis(op)
        for rows in numbers:
            tried = Made(made.tensors)
            parts = _Parts(tried, op, axis, rows)
            ops = parts.sums() if op.kind == "CumSum" else parts.extreme()
            views = [one for one in ops if one.kind == "Reshape"]
            if all(refused_alone(self.candidates, tried.tensors, view, graph) is None for view in views):
                made.accept(tried)
                return ops
        return [op]


def _rows(graph: Graph, op: Op) -> Sequence[int]:
    """The numbers of rows to try for the axis of an op; none for other ops, and where the axis varies or is short."""
    if op.kind not in _EXTREMES and op.kind != "CumSum":
        return ()
    data, axis = graph.tensors[op.inputs[0]], _axis(op)
    varies = not data.is_known or any(own == axis for own, _ in data.symbols)
    if varies or (op.kind == "CumSum" and data.dtype not in _SUMMED) or data.shape[axis] < _LEAST:
        return ()
    divisor, root = largest_divisor(data.shape[axis]), isqrt(data.shape[axis])
    return (divisor, root) if divisor > 1 else (root,)


def _axis(op: Op) -> int:
    axis = dict(op.attributes)["axis"]
    assert isinstance(axis, int)
    return axis


class _Parts:
    """The ops that one op becomes, in order; the tensors between them are added to the graph's.

    The parts of the axis are its `rows` of equal length, and what is left behind the last one.
    """

    def __init__(self, made: Made, op: Op, axis: int, rows: int) -> None:
        self._made, self._op, self._axis, self._rows = made, op, axis, rows
        self._ops: list[Op] = []
        self._data = made.tensors[op.inputs[0]]
        self._extent = self._data.shape[axis]
        self._front = self._extent - self._extent % rows

    def extreme(self) -> list[Op]:
        """The extreme of each part and where it is; then the first, or last, of the parts with the extreme of all."""
        op, axis, reduction = self._op, self._axis, _EXTREMES[self._op.kind]
        tensors, own = self._made.tensors, dict(op.attributes)
        best = self._of_parts(lambda data, along: self._reduced(reduction, data, along))
        place = self._of_parts(lambda data, along: self._place(data, along, own))
        begins = np.arange(tensors[place].shape[axis]) * (self._front // self._rows)
        begins = begins.reshape(-1, *(1,) * (len(tensors[place].shape) - axis - 1))
        place = self._by("Add", (place, self._constant(begins)), tensors[place])
        flag = replace(tensors[best], dtype="bool")
        is_best = self._by("Equal", (best, self._reduced(reduction, best, axis)), flag)
        # the extreme of a part with NaN is NaN, and the op takes its position
        is_number = self._by("Equal", (best, best), flag)
        is_best = self._by("Or", (is_best, self._by("Not", (is_number,), flag)), flag)
        last = bool(own.get("select_last_index"))
        # of other parts a position that is not chosen
        other = self._constant(np.asarray(0 if last else self._extent - 1))
        place = self._by("Where", (is_best, place, other), tensors[place])
        return self._finished(self._reduced("ReduceMax" if last else "ReduceMin", place, axis))

    def sums(self) -> list[Op]:
        """The running sums of each part plus the sum of the parts before it (`reverse`: of those behind it).

        All parts are rows: the last one is filled with zeros, which are no part of any sum that is asked for.
        """
        axis, tensors, own = self._axis, self._made.tensors, dict(self._op.attributes)
        length = ceil_div(self._extent, self._rows)
        total = self._reduced("ReduceSum", self._filled_rows(length), axis + 1)
        before = self._by("CumSum", (total,), tensors[total], **{**own, "axis": axis, "exclusive": 1})
        rows = self._filled_rows(length)
        running = self._by("CumSum", (rows,), tensors[rows], **{**own, "axis": axis + 1})
        summed = self._by("Add", (running, before), tensors[running])
        if self._rows * length == self._extent:
            return self._finished(summed)
        joined = self._seen(summed, _along(self._data, axis, self._rows * length))
        return self._finished(self._cut(joined, 0, self._extent))

    def _filled_rows(self, length: int) -> str:
        """The data as rows of a length, zeros behind the last position; anew for each reader, as `_in_rows`."""
        filled, behind = self._data.name, self._rows * length - self._extent
        if behind:
            ends = tuple(behind if axis == self._axis else 0 for axis in range(len(self._data.shape)))
            whole = _along(self._data, self._axis, self._extent + behind)
            pads = (*(0 for _ in ends), *ends)
            filled = self._by("Pad", (filled,), whole, pads=pads, mode="constant", value=0)
        return self._seen(filled, opened(self._made.tensors[filled], self._axis, (self._rows, length)))

    def _of_parts(self, one: Callable[[str, int], str]) -> str:
        """What `one` finds of each part, along the axis."""
        axis = self._axis
        found = one(self._in_rows(), axis + 1)
        found = self._seen(found, _along(self._made.tensors[found], axis + 1, None))
        if self._front == self._extent:
            return found
        return self._joined([found, one(self._cut(self._data.name, self._front, self._extent), axis)])

    def _in_rows(self) -> str:
        """The data as rows: a view for each reader, for one that two groups read would have to be written."""
        data = self._data.name if self._front == self._extent else self._cut(self._data.name, 0, self._front)
        rows = (self._rows, self._front // self._rows)
        return self._seen(data, opened(self._made.tensors[data], self._axis, rows))

    def _cut(self, data: str, begin: int, end: int) -> str:
        return self._made.along(self._ops, self._op, data, self._axis, begin, end)

    def _seen(self, data: str, view: Tensor) -> str:
        return self._made.view(self._ops, self._op, data, replace(view, name=f"{data}/seen"))

    def _reduced(self, kind: str, data: str, axis: int) -> str:
        return self._by(kind, (data,), _along(self._made.tensors[data], axis, 1), axes=(axis,), keepdims=1)

    def _place(self, data: str, axis: int, own: dict[str, Attribute]) -> str:
        """The position of the extreme in each row of a tensor."""
        result = replace(_along(self._made.tensors[data], axis, 1), dtype="int64")
        return self._by(self._op.kind, (data,), result, **{**own, "axis": axis, "keepdims": 1})

    def _joined(self, parts: list[str]) -> str:
        tensors = [self._made.tensors[part] for part in parts]
        extent = sum(tensor.shape[self._axis] for tensor in tensors)
        return self._by("Concat", tuple(parts), _along(tensors[0], self._axis, extent), axis=self._axis)

    def _constant(self, values: NDArray[Any]) -> str:
        shape = tuple(int(extent) for extent in values.shape)
        tensor = Tensor(
            name=f"{self._op.output}/positions",
            shape=shape,
            dtype="int64",
            axes=default_axes(len(shape)),
            constant=literal(values, "int64"),
        )
        return self._made.add(tensor)

    def _by(self, kind: str, inputs: tuple[str, ...], result: Tensor, **attributes: Attribute) -> str:
        """One more op, whose result is like a tensor."""
        like = replace(result, name=f"{self._op.output}/{kind}", constant=None)
        name = self._made.add(like)
        made = Op(
            kind=kind, inputs=inputs, output=name, origin=self._op.origin, attributes=tuple(sorted(attributes.items()))
        )
        self._ops.append(made)
        return name

    def _finished(self, name: str) -> list[Op]:
        """All ops. The last one writes the op's own output, in its shape."""
        output = self._made.tensors[self._op.output]
        if self._made.tensors[name].shape == output.shape:
            del self._made.tensors[name]
            return [*self._ops[:-1], replace(self._ops[-1], output=output.name)]
        return [*self._ops, reshape(self._op, name, output)]


def _along(data: Tensor, axis: int, extent: int | None) -> Tensor:
    """A tensor with another extent along an axis that does not vary; without the axis where it is None."""
    shape = (*data.shape[:axis], *(() if extent is None else (extent,)), *data.shape[axis + 1 :])
    symbols = tuple((own - (extent is None and own > axis), one) for own, one in data.symbols if own != axis)
    axes = data.axes if extent is not None else default_axes(len(shape))
    return replace(data, shape=shape, symbols=symbols, axes=axes)
