"""The optimised table: mixed units, exact within strip decompositions (SHAPE-6).

A shape is cut along one axis into *slabs*, each of them along another axis, until along the last one the pieces are
calls. Along every axis of a slab there are whole pieces, as long as some unit, and at most one tail. Which axis comes
next may differ from slab to slab. A slab's cost depends on what is already cut and on nothing else: so the least costs
form a lattice, one step of which covers one more axis for all kinds of pieces of the axes that are cut before it.

An operand is moved by the slab, or call, with which the last of its axes is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.errors import LimitError, RequestError
from compiler.shapes.cost import CallCost, Floats
from compiler.shapes.frontier import Frontier, Part, Pieces, cover_cycles
from compiler.shapes.simple import check_costs
from compiler.shapes.table import RUN, Runs, ShapeTable
from compiler.shapes.tails import TailMode, ranged_mode
from compiler.shapes.units import MAX_TILED_AXES, Lengths, UnitSet, checked_shape

# Combinations of pieces, or of wanted lengths, that a search looks at, and its longest axis; beyond, the simple table
# has to do.
MAX_COMBINATIONS: Final = 1_000_000
MAX_LENGTH: Final = 1_000_000

_Index = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Calls:
    """The cheapest call on each combination of pieces: cycles, unit, and axes whose length is given, as bits."""

    cycles: Floats
    units: NDArray[np.int32]
    given: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Step:
    """Least cycles with a set of axes still to cut, and which of them to cut first.

    Indexed along these by number of wanted length, along the others by kind of piece.
    """

    cycles: Floats
    first: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StripSearch:
    """The least costs of all strip decompositions of shapes with one of the `wanted` lengths along each axis."""

    units: UnitSet
    cost: CallCost
    wanted: tuple[Lengths, ...]
    pieces: tuple[Pieces, ...]
    calls: _Calls
    steps: tuple[_Step, ...]

    @classmethod
    def build(cls, units: UnitSet, cost: CallCost, shape: tuple[int, ...], axis: int | None = None) -> StripSearch:
        """Search for `shape`, or with `axis` for all lengths of that axis from 1 to the shape's; raises as `over`."""
        return cls.over(
            units,
            cost,
            tuple(range(1 if number == axis else length, length + 1) for number, length in enumerate(shape)),
        )

    @classmethod
    def over(cls, units: UnitSet, cost: CallCost, lengths: tuple[Sequence[int], ...]) -> StripSearch:
        """Search for all shapes that have one of the rising `lengths` along each axis.

        Raises RequestError for shapes that have no elements or other axes than the units, LimitError for searches that
        are too large.
        """
        check_costs(units, cost)
        wanted = tuple(np.array(along, dtype=np.int64) for along in lengths)
        shape = tuple(int(along[-1]) for along in wanted if len(along))
        if any(not len(along) or along[0] < 1 for along in wanted):
            raise RequestError("nothing to cover", stage="shapes", op_type=units.signature, actual=str(shape))
        if max(checked_shape(units, shape)) > MAX_LENGTH:
            raise _too_large(units, "a length", max(shape), MAX_LENGTH)
        pieces = tuple(
            Pieces.of_length(extents, length) if len(along) == 1 else Pieces.up_to(extents, length)
            for along, extents, length in zip(wanted, units.extents.T, shape, strict=True)
        )
        count = prod(max(len(kinds), len(along)) for kinds, along in zip(pieces, wanted, strict=True))
        if count > MAX_COMBINATIONS:
            raise _too_large(units, "the combinations of pieces", count, MAX_COMBINATIONS)
        search = cls(
            units=units,
            cost=cost,
            wanted=wanted,
            pieces=pieces,
            calls=_calls(units, cost, pieces),
            steps=(),
        )
        return search._filled()

    def cycles(self) -> Floats:
        """The least costs, indexed along each axis by number of wanted length."""
        least: Floats = self.steps[-1].cycles + self.cost.once_cycles
        return least

    def table(self, shape: tuple[int, ...]) -> ShapeTable:
        """The table of one of the shapes; raises RequestError for one that was not searched for."""
        checked_shape(self.units, shape)
        index = tuple(int(np.searchsorted(along, length)) for along, length in zip(self.wanted, shape, strict=True))
        for number, along, length in zip(index, self.wanted, shape, strict=True):
            if number == len(along) or along[number] != length:
                raise RequestError(
                    "the search did not look at this shape",
                    stage="shapes",
                    op_type=self.units.signature,
                    actual=str(shape),
                    limit=" x ".join(f"{along[0]}..{along[-1]}" for along in self.wanted),
                )
        every = len(self.steps) - 1
        return ShapeTable(
            signature=self.units.signature,
            dtype=self.units.dtype,
            shape=shape,
            units=self.units.ids,
            runs=np.array(self._runs(every, index, (), 0), dtype=RUN),
            cost_cycles=float(self.cycles()[index]),
            kind="optimised",
        )

    def strip_cycles(self, axis: int) -> Floats:
        """Least costs of slabs across `axis`: along it by kind of piece, along the others by wanted length.

        Moves of the operands that have no other axis are included.
        """
        every = len(self.steps) - 1
        slabs: Floats = self.steps[every ^ 1 << axis].cycles + self._moves(axis, every)
        return slabs

    def _filled(self) -> StripSearch:
        """The steps for all sets of axes, numbered by their bits, from none to all."""
        nothing = np.zeros(self.calls.cycles.shape, dtype=np.uint8)
        steps = [_Step(cycles=self.calls.cycles, first=nothing)]
        for left in range(1, 2 ** len(self.wanted)):
            axes = [axis for axis in range(len(self.wanted)) if left >> axis & 1]
            options = np.stack([self._covered(axis, left, steps[left ^ 1 << axis].cycles) for axis in axes])
            best = options.argmin(axis=0)
            cycles = np.take_along_axis(options, best[None], axis=0)[0]
            steps.append(_Step(cycles=cycles, first=np.array(axes, dtype=np.uint8)[best]))
        return replace(self, steps=tuple(steps))

    def _covered(self, axis: int, left: int, inner: Floats) -> Floats:
        """Least cycles if `axis` is cut first of those left; `inner`: of each kind of its pieces."""
        costs = np.moveaxis(inner + self._moves(axis, left), axis, -1)
        covered = cover_cycles(self.pieces[axis], costs, self.wanted[axis])
        return np.moveaxis(covered, -1, axis)

    def _moves(self, axis: int, left: int) -> Floats:
        """Cycles of the operands that are moved per piece of `axis`: the ones of which no axis is then left to cut."""
        rest = left ^ 1 << axis
        total = np.zeros((1,) * len(self.wanted))
        for operand in self.cost.operands:
            if axis in operand.axes and not any(rest >> other & 1 for other in operand.axes):
                amount = np.full((1,) * len(self.wanted), operand.move_cycles)
                for other in operand.axes:
                    factor = operand.factors[other]
                    assert factor is not None
                    along = [1] * len(self.wanted)
                    along[other] = -1
                    amount = amount * factor[self.pieces[other].lengths].reshape(along)
                total = total + (operand.start_cycles + amount)
        return total

    def _runs(
        self, left: int, index: _Index, cuts: tuple[tuple[int, Part], ...], shared: int
    ) -> list[tuple[object, ...]]:
        """The runs of a slab in call order: `index` of its step, `cuts` that made it, outer loops it shares."""
        if left == 0:
            return [self._run(index, cuts, shared)]
        axis = int(self.steps[left].first[index])
        rest = left ^ 1 << axis
        at: tuple[Any, ...] = (*index[:axis], slice(None), *index[axis + 1 :])
        costs = (self.steps[rest].cycles + self._moves(axis, left))[at]
        wanted = self.wanted[axis][index[axis] : index[axis] + 1]
        found = Frontier.build(self.pieces[axis], costs, wanted)
        rows: list[tuple[object, ...]] = []
        for part in found.cover(0):
            inside = (*index[:axis], part.kind, *index[axis + 1 :])
            rows += self._runs(rest, inside, (*cuts, (axis, part)), len(cuts) if rows else shared)
        return rows

    def _run(self, index: _Index, cuts: tuple[tuple[int, Part], ...], shared: int) -> tuple[object, ...]:
        """One row of RUN: the call on one combination of pieces, repeated."""
        unit, given = int(self.calls.units[index]), int(self.calls.given[index])
        by_axis = []
        for axis, part in sorted(cuts, key=lambda cut: cut[0]):
            low, high = int(self.units.lows[unit, axis]), int(self.units.extents[unit, axis])
            mode = TailMode.EXACT
            if part.length < high:
                mode = ranged_mode(low) if given >> axis & 1 else TailMode.DISCARD
            by_axis.append((int(mode), part.start, part.length, part.length, part.count, low, high))
        unused = MAX_TILED_AXES - len(cuts)
        by_axis += [(int(TailMode.EXACT), 0, 1, 0, 1, 1, 1)] * unused
        order = (*(axis for axis, _ in cuts), *range(len(cuts), MAX_TILED_AXES))
        return (unit, shared, order, *zip(*by_axis, strict=True))


def optimised_table(units: UnitSet, cost: CallCost, shape: tuple[int, ...]) -> ShapeTable:
    """The cheapest strip decomposition of one shape; a shape without elements has no calls."""
    if 0 not in checked_shape(units, shape):
        return StripSearch.build(units, cost, shape).table(shape)
    none: Runs = np.zeros(0, dtype=RUN)
    return ShapeTable(
        signature=units.signature,
        dtype=units.dtype,
        shape=shape,
        units=units.ids,
        runs=none,
        cost_cycles=0.0,
        kind="optimised",
    )


def _calls(units: UnitSet, cost: CallCost, pieces: tuple[Pieces, ...]) -> _Calls:
    # imported where it is used alone: it brings a compiler with it
    from compiler.shapes.kernels import cheapest_calls

    fixed, given = zip(*(_factors(units, cost, axis, kinds) for axis, kinds in enumerate(pieces)), strict=True)
    # axes that a shape does not have: one piece that every unit fits
    fits, never = np.ones((1, len(units))), np.full((1, len(units)), np.inf)
    unused = MAX_TILED_AXES - len(pieces)
    cycles, chosen, lengths = cheapest_calls(
        (*fixed, *(fits for _ in range(unused))),
        (*given, *(never for _ in range(unused))),
        float(cost.call_cycles),
        float(cost.variable_cycles),
        float(cost.compute_cycles),
        2 ** len(pieces),
    )
    shape = tuple(map(len, pieces))
    return _Calls(cycles=cycles.reshape(shape), units=chosen.reshape(shape), given=lengths.reshape(shape))


def _factors(units: UnitSet, cost: CallCost, axis: int, pieces: Pieces) -> tuple[Floats, Floats]:
    """By kind of piece and unit: the computed factor of the whole unit, and with the length given to it."""
    extents, lows = units.extents[:, axis], units.lows[:, axis]
    factor, length = cost.compute[axis], pieces.lengths[:, None]
    is_tail = (np.arange(len(pieces)) >= len(pieces.extents))[:, None]
    fits = (extents == length) | (is_tail & (extents > length))
    accepts = is_tail & (extents > length) & (lows <= length)
    whole = np.where(fits, factor[extents], np.inf)
    by_length = np.where(accepts, factor[length], np.inf)
    return np.ascontiguousarray(whole), np.ascontiguousarray(by_length)


def _too_large(units: UnitSet, what: str, actual: int, limit: int) -> LimitError:
    return LimitError(
        f"{what} of an optimised table are too many",
        stage="shapes",
        op_type=units.signature,
        actual=actual,
        limit=limit,
        hint="Use the simple table",
    )
