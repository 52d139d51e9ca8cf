"""How much strip decompositions leave: the best guillotine cuts in two dimensions, offline (SHAPE-6, N-5).

A rectangle is one strip of calls, or is cut through into two rectangles, again and again. All strip decompositions are
among these, and many more: the strips of one part need not go on in the next. Costs are those of tables; operands stay
in the core along a strip, and nothing stays from one rectangle to the next.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.errors import LimitError, RequestError
from compiler.shapes.cost import CallCost, Floats
from compiler.shapes.strips import StripSearch
from compiler.shapes.units import UnitSet

# Rectangles times cuts that are looked at.
_MAX_STEPS: Final = 2_000_000_000


def guillotine(units: UnitSet, cost: CallCost, shape: tuple[int, int]) -> Floats:
    """The least cost by guillotine cuts of `shape` with each of its heights, index 0 being height 1.

    Cuts lie at multiples of the greatest divisor of the units' extents along the axis, counted from one side. Raises
    RequestError for units of other than two axes or a shape without elements, LimitError for shapes that are too large.
    """
    if units.rank != 2 or min(shape) < 1:
        raise RequestError("guillotine cuts are of two axes", stage="shapes", op_type=units.signature, actual=shape)
    height, width = shape
    grain = int(np.gcd.reduce(units.extents[:, 1]))
    heights, widths = list(range(1, height + 1)), _lengths(width, grain)
    row_cuts, row_first = _cuts(heights, 1)
    column_cuts, column_first = _cuts(widths, grain)
    steps = len(widths) * len(row_cuts) + len(heights) * len(column_cuts)
    if steps > _MAX_STEPS:
        raise LimitError("too many cuts", stage="shapes", op_type=units.signature, actual=steps, limit=_MAX_STEPS)
    search = StripSearch.over(units, cost, (heights, widths))
    rows = _by_length(search.strip_cycles(0), search, 0, heights)
    columns = _by_length(search.strip_cycles(1), search, 1, widths)
    # imported where it is used alone: it brings a compiler with it
    from compiler.shapes.kernels import guillotine_cycles

    best = guillotine_cycles(rows, columns, row_cuts, row_first, column_cuts, column_first)
    whole: Floats = best[:, widths.index(width)] + cost.once_cycles
    return whole


def _lengths(length: int, grain: int) -> list[int]:
    """The lengths between cuts, and from a cut to the end."""
    return sorted({*range(grain, length + 1, grain), *range(length % grain or grain, length + 1, grain)})


def _cuts(lengths: list[int], grain: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Per length the pairs of lengths that make it up, one of them between cuts; and where those of each begin."""
    numbers = {length: number for number, length in enumerate(lengths)}
    pairs: list[tuple[int, int]] = []
    first = [0]
    for length in lengths:
        longest = length // 2 if length % grain == 0 else length - 1
        parts = range(grain, longest + 1, grain)
        pairs += [(numbers[part], numbers[length - part]) for part in parts if length - part in numbers]
        first.append(len(pairs))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2), np.array(first, dtype=np.int64)


def _by_length(slabs: Floats, search: StripSearch, axis: int, lengths: list[int]) -> Floats:
    """The costs of slabs by length along `axis`; infinite where no unit is so long."""
    kinds = np.moveaxis(slabs, axis, 0)
    found = np.full((len(lengths), kinds.shape[1]), np.inf)
    pieces = search.pieces[axis]
    numbers = {length: number for number, length in enumerate(lengths)}
    # any length that some unit has or exceeds is a tail; units of just that length work on it too
    for kind, length in enumerate(pieces.tails.tolist(), start=len(pieces.extents)):
        if length in numbers:
            found[numbers[length]] = kinds[kind]
    return np.ascontiguousarray(np.moveaxis(found, 0, axis))
