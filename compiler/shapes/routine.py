"""Routines: ops that one core runs on one box of their result, without a word to DRAM in between (SHAPE-1, SHAPE-8)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from compiler.ir.box import Ints, hull
from compiler.ir.graph import Graph
from compiler.ops.op_facts import GraphFacts, OpFacts

Ranges = tuple[Ints, Ints]
# Axes of a result that tables divide (SHAPE-2).
MAX_TILED: Final = 4
# An axis that weights alone follow is divided if they are this part of all that is read.
_WORTH: Final = 10
# Boxes along an axis that are looked at together: long axes have more than there is memory for.
_AT_ONCE: Final = 1 << 18
# The axis of a tensor whose ranges follow several axes of the result.
_SEVERAL: Final = -2
_NONE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Routine:
    """Ops of a graph, by index in canonical order; the last one makes the only result that others read.

    `tiled` are the axes of the result that tables divide, at most four; of the others every call makes all.
    """

    ops: tuple[int, ...]
    tiled: tuple[int, ...]

    def whole_box(self, starts: Ints, lengths: Ints, shape: Sequence[int]) -> tuple[Ints, Ints]:
        """Boxes over the tiled axes (count, tiled) as boxes of the result (count, rank): starts and lengths."""
        begin = np.zeros((len(starts), len(shape)), dtype=np.int64)
        extent = np.tile(np.array(shape, dtype=np.int64), (len(starts), 1))
        begin[:, self.tiled] = starts
        extent[:, self.tiled] = lengths
        return begin, extent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calls:
    """A routine and the calls that make its result: per call its unit, and start and length per axis of the result."""

    routine: Routine
    units: Ints
    starts: Ints
    lengths: Ints


class RoutineGeometry:
    """The boxes of a routine's tensors, in one graph's shapes."""

    def __init__(self, facts: GraphFacts, ops: Sequence[int]) -> None:
        self.facts = facts
        self.ops: tuple[OpFacts, ...] = tuple(facts.ops[op] for op in ops)
        self.result = self.ops[-1].output
        self.made = tuple(op.output for op in self.ops)
        read = [operand for op in self.ops for operand in op.operands]
        self.inputs = tuple(dict.fromkeys(o.tensor for o in read if not o.constant and o.tensor not in self.made))
        self.weights = tuple(dict.fromkeys(o.tensor for o in read if o.constant))
        self.shape = facts.tensors[self.result].shape
        self._longest: dict[tuple[int, int], dict[str, Ints]] = {}
        self._follows: dict[str, list[int]] | None = None
        # by tensor and axis how much the whole result needs: not all of what a Slice leaves out
        self._needed: dict[str, list[int]] = {}

    def boxes(self, starts: Ints, lengths: Ints) -> dict[str, Ranges]:
        """For boxes of the result (count, rank) the boxes of every tensor that they need, each (count, its rank)."""
        found: dict[str, Ranges] = {self.result: (starts, starts + lengths)}
        for op in reversed(self.ops):
            begin, end = found[op.output]
            for operand in op.operands:
                shape = self.facts.tensors[operand.tensor].shape
                needed = np.zeros((2, len(starts), len(shape)), dtype=np.int64)
                for axis, (axis_map, extent) in enumerate(zip(operand.access, shape, strict=True)):
                    if axis_map.axis is None:
                        needed[1, :, axis] = extent
                    else:
                        of = axis_map.axis
                        needed[0, :, axis], needed[1, :, axis] = axis_map.project(begin[:, of], end[:, of], extent)
                ranges = (needed[0], needed[1])
                known = found.get(operand.tensor)
                found[operand.tensor] = ranges if known is None else hull(known, ranges)
        return found

    def box_of(self, tile: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """The lengths of every tensor's box for a tile in the middle of the result."""
        lengths = np.minimum(np.array([tile], dtype=np.int64), self.shape)
        starts = (np.array([self.shape], dtype=np.int64) - lengths) // 2
        boxes = self.boxes(starts, lengths)
        return {name: tuple((end - begin)[0].tolist()) for name, (begin, end) in boxes.items()}

    def extents(self, tile: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """The longest range along each axis of every tensor that a box of at most `tile` positions needs."""
        follows = self._followed()
        result: dict[str, tuple[int, ...]] = {}
        for name, axes in follows.items():
            shape = self.facts.tensors[name].shape
            extents = []
            for own, axis in enumerate(axes):
                if axis == _NONE:
                    extents.append(self._needed[name][own])
                elif axis == _SEVERAL:  # any part of it
                    extents.append(shape[own])
                else:
                    extents.append(int(self._along(axis, min(tile[axis], self.shape[axis]))[name][own]))
            result[name] = tuple(extents)
        return result

    def follows(self, name: str) -> tuple[int, ...]:
        """The axes of the result that some axis of a tensor's box follows."""
        axes = self._followed()[name]
        if _SEVERAL in axes:
            return tuple(range(len(self.shape)))
        return tuple(sorted({axis for axis in axes if axis >= 0}))

    def whole_axes(self, name: str) -> tuple[int, ...]:
        """The axes of a tensor of which every box of the result needs the same."""
        return tuple(own for own, axis in enumerate(self._followed()[name]) if axis == _NONE)

    def _along(self, axis: int, length: int) -> dict[str, Ints]:
        """By tensor the longest ranges that boxes of this length along one axis need, of the others all."""
        found = self._longest.get((axis, length))
        if found is None:
            count = self.shape[axis] - length + 1
            found = {}
            for first in range(0, count, _AT_ONCE):
                rows = min(_AT_ONCE, count - first)
                starts = np.zeros((rows, len(self.shape)), dtype=np.int64)
                starts[:, axis] = np.arange(first, first + rows)
                lengths = np.tile(np.array(self.shape, dtype=np.int64), (rows, 1))
                lengths[:, axis] = length
                for name, (begin, end) in self.boxes(starts, lengths).items():
                    longest = (end - begin).max(axis=0)
                    found[name] = np.maximum(found[name], longest) if name in found else longest
            self._longest[axis, length] = found
        return found

    def _followed(self) -> dict[str, list[int]]:
        """By tensor and axis the axis of the result that its ranges follow."""
        if self._follows is None:
            result: dict[str, list[int]] = {}
            origin = np.zeros((1, len(self.shape)), dtype=np.int64)
            whole = self.boxes(origin, np.array([self.shape], dtype=np.int64))
            self._needed = {name: (end - begin)[0].tolist() for name, (begin, end) in whole.items()}
            for axis, extent in enumerate(self.shape):
                # one position, at either end, against all of them
                starts = np.zeros((2, len(self.shape)), dtype=np.int64)
                starts[1, axis] = extent - 1
                lengths = np.tile(np.array(self.shape, dtype=np.int64), (2, 1))
                lengths[:, axis] = 1
                for name, (begin, end) in self.boxes(starts, lengths).items():
                    axes = result.setdefault(name, [_NONE] * begin.shape[1])
                    first, last = whole[name]
                    for own in range(begin.shape[1]):
                        is_all = (begin[:, own] == first[0, own]).all() and (end[:, own] == last[0, own]).all()
                        if extent > 1 and not is_all:
                            axes[own] = axis if axes[own] == _NONE else _SEVERAL
            if not self.shape:
                result = {name: [_NONE] * len(self.facts.tensors[name].shape) for name in self._all}
            self._follows = result
        return self._follows

    @property
    def _all(self) -> tuple[str, ...]:
        return (*self.inputs, *self.weights, *self.made)


def canonical_order(graph: Graph, ops: Collection[int]) -> tuple[int, ...]:
    """Ops in the order in which a walk from the last one through the inputs ends them: makers before readers."""
    members = set(ops)
    found: list[int] = []
    todo = [(max(members), False)]
    while todo:
        op, is_ready = todo.pop()
        if op in found:
            continue
        if is_ready:
            found.append(op)
            continue
        todo.append((op, True))
        makers = [graph.producer[name] for name in graph.ops[op].inputs if name in graph.producer]
        todo += [(maker, False) for maker in reversed(makers) if maker in members]
    return tuple(found)


def axis_choices(geometry: RoutineGeometry) -> tuple[tuple[int, ...], ...]:
    """Axes of a result that tables may divide, the fewest first, the four longest where there are more (SHAPE-2).

    First those whose division makes calls smaller: boxes of an input follow them, or a tenth of all that is read at
    least. Where a core does not hold the rest, those that anything follows; then all.
    """
    followed: dict[int, int] = {}
    for name in (*geometry.inputs, *geometry.weights):
        for axis in geometry.follows(name):
            followed[axis] = followed.get(axis, 0) + geometry.facts.tensor_bytes(name)
    total = sum(map(geometry.facts.tensor_bytes, (*geometry.inputs, *geometry.weights)))
    of_inputs = {axis for name in geometry.inputs for axis in geometry.follows(name)}
    worth = [axis for axis, size in followed.items() if axis in of_inputs or size * _WORTH >= total]
    found = (_longest(geometry, worth), _longest(geometry, followed), _longest(geometry, range(len(geometry.shape))))
    return tuple(dict.fromkeys(found))


def _longest(geometry: RoutineGeometry, axes: Iterable[int]) -> tuple[int, ...]:
    long = sorted(axes, key=lambda axis: (-geometry.shape[axis], axis))
    return tuple(sorted(long[:MAX_TILED]))
