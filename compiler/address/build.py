"""From a read to its address table: runs of positions per axis, their products, and the addresses (ADDR-1 to ADDR-4).

Along each axis consecutive positions whose taps lie in the same pieces, and whose addresses advance by one step, form
a run. Products of runs are classes. Where pieces of different strides meet in one class, it is cut into classes of
one position along the axes concerned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler.address.layouts import CHANNEL
from compiler.address.read import AxisRead, Piece, WindowRead
from compiler.address.table import AddressTable, PositionClass, frozen
from compiler.errors import InternalError
from compiler.ir.box import Ints

# The number of no piece.
_NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Span:
    """Taps `begin` to `end` of a run's list, which lie in the same interval between the edges of pieces."""

    interval: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Run:
    """Positions `start` to `stop` along one axis: the taps they read and the elements of the first of them."""

    start: int
    stop: int
    stride: int
    taps: Ints
    elements: Ints
    spans: tuple[_Span, ...]

    def single(self, position: int) -> _Run:
        """One of the positions, as a run of its own."""
        elements = self.elements + (position - self.start) * self.stride
        return replace(self, start=position, stop=position + 1, elements=elements)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """The operands of a class that lie in one piece: the piece, and one span per axis."""

    piece: Piece
    spans: tuple[_Span, ...]


def build_table(read: WindowRead) -> AddressTable:
    """The address table of a read; equal for all reads of one `table_key` (ADDR-5).

    Raises InternalError if an element that is read and is not padding lies in no piece.
    """
    return _Builder(read.relative()).table()


class _Builder:
    """What the classes of one read have in common: edges between pieces, and the order of taps."""

    def __init__(self, read: WindowRead) -> None:
        self.read = read
        self.edges = [
            sorted(
                {*read_axis.valid, *(edge for piece in read.pieces for edge in (piece.starts[axis], piece.stops[axis]))}
            )
            for axis, read_axis in enumerate(read.axes)
        ]
        # Axes by the distance of their elements: outer ones first, so that offsets ascend (ADDR-4).
        widest = [max((abs(piece.strides[axis]) for piece in read.pieces), default=0) for axis in range(len(read.axes))]
        distances = [step * each.dilation for step, each in zip(widest, read.axes, strict=True)]
        # Axes of one tap come first: they must not pass for the innermost.
        self.tap_axes = tuple(
            sorted(range(len(distances)), key=lambda axis: (read.taps[axis] > 1, -distances[axis], axis))
        )
        self.inner = self.tap_axes[-1]
        self.order, self.rank = self._tap_order()
        self.inner_taps = self.order // prod(read.taps[self.inner + 1 :]) % read.taps[self.inner]
        self.owners = self._owners()
        self.lists: dict[bytes, tuple[Ints, Ints, int]] = {}

    def table(self) -> AddressTable:
        """The table: one class per product of runs, or several where strides differ."""
        read = self.read
        runs = [_runs_of(each, self.edges[axis], self._blocked(axis)) for axis, each in enumerate(read.axes)]
        return AddressTable(
            element_bytes=read.element_bytes,
            positions=read.positions,
            taps=read.taps,
            order=frozen(self.order),
            classes=tuple(each for cell in product(*runs) for each in self._classes(cell)),
        )

    def _blocked(self, axis: int) -> tuple[Piece, ...]:
        return tuple(piece for piece in self.read.pieces if axis == CHANNEL and piece.channel_block > 1)

    def _tap_order(self) -> tuple[Ints, Ints | None]:
        """The taps in memory order, and for blocked channels, whose order is no order of axes, the place of each."""
        read = self.read
        blocked = self._blocked(CHANNEL)
        if not blocked:
            numbers = np.arange(prod(read.taps), dtype=np.int64).reshape(read.taps)
            return numbers.transpose(self.tap_axes).reshape(-1), None
        piece = blocked[0]
        addresses = _outer(
            [
                piece.place(axis, np.arange(each.taps) * each.dilation + piece.starts[axis])
                for axis, each in enumerate(read.axes)
            ]
        )
        order = np.argsort(addresses.reshape(-1), kind="stable").astype(np.int64)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return order, rank

    def _owners(self) -> NDArray[np.int64]:
        """For each box of intervals between edges the number of the piece that holds it."""
        owners = np.full([max(1, len(edges) - 1) for edges in self.edges], _NONE, dtype=np.int64)
        for number, piece in enumerate(self.read.pieces):
            box = tuple(
                slice(edges.index(start), edges.index(stop))
                for edges, start, stop in zip(self.edges, piece.starts, piece.stops, strict=True)
            )
            owners[box] = number
        return owners

    def _classes(self, cell: tuple[_Run, ...]) -> Iterator[PositionClass]:
        """The classes of a product of runs: one, unless pieces that advance by different steps meet in it."""
        parts = self._parts(cell)
        steps = [_steps(run, axis, parts) for axis, run in enumerate(cell)]
        if all(len(each) == 1 for each in steps):
            yield self._class(cell, parts, [min(each) for each in steps])
            return
        cut = [
            [run] if len(each) == 1 else [run.single(position) for position in range(run.start, run.stop)]
            for run, each in zip(cell, steps, strict=True)
        ]
        for runs in product(*cut):
            yield from self._classes(runs)

    def _parts(self, cell: tuple[_Run, ...]) -> tuple[_Part, ...]:
        parts = []
        for spans in product(*(run.spans for run in cell)):
            number = int(self.owners[tuple(span.interval for span in spans)])
            if number == _NONE:
                box = [
                    (int(run.elements[span.begin]), int(run.elements[span.end - 1]) + 1)
                    for run, span in zip(cell, spans, strict=True)
                ]
                raise InternalError("a unit reads elements that lie in no buffer", stage="address", actual=box)
            parts.append(_Part(piece=self.read.pieces[number], spans=spans))
        return tuple(parts)

    def _class(self, cell: tuple[_Run, ...], parts: tuple[_Part, ...], steps: list[int]) -> PositionClass:
        lengths = [run.stop - run.start for run in cell]
        axes = tuple(sorted(range(len(cell)), key=lambda axis: (lengths[axis] > 1, -abs(steps[axis]), axis)))
        bases = _outer([np.arange(lengths[axis], dtype=np.int64) * steps[axis] for axis in axes]).reshape(-1)
        first, offsets, taps, length = self._offsets(cell, parts)
        return PositionClass(
            ranges=tuple((run.start, run.stop) for run in cell),
            axes=axes,
            bases=frozen(bases + first),
            run_offsets=offsets,
            run_taps=taps,
            run_length=length,
            element_bytes=self.read.element_bytes,
        )

    def _offsets(self, cell: tuple[_Run, ...], parts: tuple[_Part, ...]) -> tuple[int, Ints, Ints, int]:
        """The address of the first operand; offsets from it, places of taps, both by runs, and the runs' length."""
        if not parts:
            empty = frozen(np.empty(0, dtype=np.int64))
            return 0, empty, empty, 1
        addresses = np.empty([len(run.taps) for run in cell], dtype=np.int64)
        for part in parts:
            box = tuple(slice(span.begin, span.end) for span in part.spans)
            places = [part.piece.place(axis, run.elements[box[axis]]) for axis, run in enumerate(cell)]
            addresses[box] = _outer(places) + part.piece.address
        addresses = addresses.transpose(self.tap_axes).reshape(-1)
        taps = self._places(cell)
        if self.rank is not None:
            order = np.argsort(taps)
            addresses, taps = addresses[order], taps[order]
        first = int(addresses[0])
        return first, *self._shared(addresses - first, taps)

    def _places(self, cell: tuple[_Run, ...]) -> Ints:
        """The places of a class's taps in the order of all taps."""
        counts = self.read.taps
        if self.rank is not None:
            canonical = _outer([run.taps * prod(counts[axis + 1 :]) for axis, run in enumerate(cell)])
            ranked: Ints = self.rank[canonical.transpose(self.tap_axes).reshape(-1)]
            return ranked
        weights = [prod(counts[axis] for axis in self.tap_axes[place + 1 :]) for place in range(len(counts))]
        ordered = [cell[axis].taps * weight for axis, weight in zip(self.tap_axes, weights, strict=True)]
        return _outer(ordered).reshape(-1)

    def _shared(self, offsets: Ints, taps: Ints) -> tuple[Ints, Ints, int]:
        """Offsets and taps by runs of one length: contiguous elements along the innermost axis."""
        key = offsets.tobytes() + taps.tobytes()
        found = self.lists.get(key)
        if found is None:
            inner = self.inner_taps[taps]
            breaks = (np.diff(offsets) != self.read.element_bytes) | (np.diff(taps) != 1) | (np.diff(inner) != 1)
            starts = np.concatenate(([0], np.flatnonzero(breaks) + 1, [len(offsets)]))
            length = int(np.gcd.reduce(np.diff(starts)))
            found = frozen(offsets[::length].copy()), frozen(taps[::length].copy()), length
            self.lists[key] = found
        return found


def _runs_of(axis: AxisRead, edges: list[int], blocked: tuple[Piece, ...]) -> tuple[_Run, ...]:
    """The runs of positions along one axis, in order."""
    if not axis.positions:
        return ()
    taps = np.arange(axis.taps, dtype=np.int64)
    elements = np.arange(axis.positions, dtype=np.int64)[:, np.newaxis] * axis.stride + taps * axis.dilation
    intervals = np.searchsorted(edges, elements, side="right") - 1
    intervals[elements >= edges[-1]] = _NONE
    starts = {0, *(np.flatnonzero((intervals[1:] != intervals[:-1]).any(axis=1)) + 1).tolist()}
    for piece in blocked:
        starts.update(_block_starts(piece.place(CHANNEL, elements)))
    return tuple(
        _run(axis, start, stop, taps, elements[start], intervals[start])
        for start, stop in pairwise((*sorted(starts), axis.positions))
    )


def _run(axis: AxisRead, start: int, stop: int, taps: Ints, elements: Ints, intervals: Ints) -> _Run:
    held = intervals != _NONE
    taps, elements, intervals = taps[held], elements[held], intervals[held]
    edges = [0, *(np.flatnonzero(np.diff(intervals)) + 1).tolist(), len(taps)]
    spans = tuple(
        _Span(interval=int(intervals[begin]), begin=begin, end=end) for begin, end in pairwise(edges) if begin < end
    )
    return _Run(start=start, stop=stop, stride=axis.stride, taps=taps, elements=elements, spans=spans)


def _block_starts(places: Ints) -> list[int]:
    """Where positions begin whose places no longer advance by the step of those before them, equal for all taps."""
    moves = np.diff(places, axis=0)
    uniform = (moves == moves[:, :1]).all(axis=1)
    starts, position = [], 0
    while position < len(moves):
        # the longest stretch from here on that advances as its first step does
        same = uniform[position:] & (moves[position:, 0] == moves[position, 0]) & uniform[position]
        length = len(same) if same.all() else int(np.argmin(same))
        position += max(1, length + 1)
        starts.append(position)
    return [start for start in starts if start < len(places)]


def _steps(run: _Run, axis: int, parts: tuple[_Part, ...]) -> set[int]:
    """The steps of addresses from one position of a run to the next, in the pieces that it meets."""
    if run.stop - run.start == 1 or not parts:
        return {0}
    steps = set()
    for part in parts:
        element = int(run.elements[part.spans[axis].begin])
        steps.add(part.piece.place(axis, element + run.stride) - part.piece.place(axis, element))
    return steps


def _outer(vectors: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The sums of one number from each vector, over all their combinations; one axis per vector."""
    return reduce(np.add.outer, vectors)
