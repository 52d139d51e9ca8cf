"""The least cost of all strip decompositions by writing them all out; shares nothing with `compiler/shapes/strips.py`.

Sources of truth are SPEC SHAPE-6 and the cost of one call. For small shapes only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import inf

from compiler.shapes.cost import CallCost
from compiler.shapes.units import UnitSet


@dataclass(frozen=True)
class Cut:
    """One piece along an axis: its length inside the tensor; a tail may be shorter than the unit that works on it."""

    length: int
    is_tail: bool


def covers(length: int, extents: list[int]) -> Iterator[list[Cut]]:
    """All ways to make up a length of whole pieces, whatever their order, and at most one tail."""
    for wholes in _sums(length, sorted(set(extents))):
        before = sum(wholes)
        pieces = [Cut(whole, is_tail=False) for whole in wholes]
        if before == length:
            yield pieces
        elif length - before <= max(extents):
            yield [*pieces, Cut(length - before, is_tail=True)]


def _sums(most: int, extents: list[int]) -> Iterator[tuple[int, ...]]:
    """All multisets of extents that come to at most a length."""
    yield ()
    for number, extent in enumerate(extents):
        if extent <= most:
            for rest in _sums(most - extent, extents[number:]):
                yield (extent, *rest)


def call_cycles(cuts: dict[int, Cut], units: UnitSet, cost: CallCost) -> float:
    """The cheapest unit, and the cheapest way to give it the piece."""
    best = inf
    for extents, lows in zip(units.extents.tolist(), units.lows.tolist(), strict=True):
        ways: list[list[tuple[int, int]]] = []
        for axis, (extent, low) in enumerate(zip(extents, lows, strict=True)):
            cut, found = cuts[axis], []
            if extent == cut.length or (cut.is_tail and extent > cut.length):
                found.append((extent, 0))
            if cut.is_tail and low <= cut.length < extent:
                found.append((cut.length, 1))
            ways.append(found)
        for way in product(*ways):
            best = min(best, cost.work_cycles([computed for computed, _ in way], sum(given for _, given in way)))
    return best


def least_cycles(units: UnitSet, cost: CallCost, shape: tuple[int, ...]) -> float:
    """The least cost of a shape, operands that depend on no axis included."""
    known: dict[tuple[tuple[int, Cut], ...], float] = {}

    def slab(cuts: dict[int, Cut]) -> float:
        key = tuple(sorted(cuts.items(), key=lambda item: item[0]))
        if key not in known:
            known[key] = inner(cuts)
        return known[key]

    def inner(cuts: dict[int, Cut]) -> float:
        if len(cuts) == len(shape):
            return call_cycles(cuts, units, cost)
        best = inf
        for axis in range(len(shape)):
            if axis not in cuts:
                extents = units.extents[:, axis].tolist()
                for pieces in covers(shape[axis], extents):
                    best = min(best, sum(piece_cycles(cuts, axis, cut) for cut in pieces))
        return best

    def piece_cycles(cuts: dict[int, Cut], axis: int, cut: Cut) -> float:
        now = {**cuts, axis: cut}
        total = slab(now)
        for operand in cost.operands:
            if axis in operand.axes and set(operand.axes) <= set(now):
                total += operand.cycles([now[a].length if a in now else 0 for a in range(len(shape))])
        return total

    once = sum(operand.start_cycles + operand.move_cycles for operand in cost.operands if not operand.axes)
    return slab({}) + once
