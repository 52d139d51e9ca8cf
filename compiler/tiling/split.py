"""Splitting a map by steps instead of directly: `top-down` and `bottom-up` beside `exact` (FUSE-S2, FUSE-S3).

Both are one sequence of tiles, a path. Top-down walks it from what a unit gets downwards and takes the first tile that
holds; bottom-up starts at the smallest unit and grows until the next step would not hold. The search lays the path out
as arrays (`Path`), so that all its tiles, of all configurations, are judged at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from compiler.ir.box import Ints
from compiler.tiling.sizes import SizeTable, part_sizes
from compiler.units import ceil_div

Kind = Literal["exact", "top-down", "bottom-up"]

# Bottom-up: position by position up to this size, then by this part of what is there.
_ONE_BY_ONE_UP_TO: Final = 64
_GROWTH: Final = 16
# So many smaller tiles of a path are tried one after another, then every time half of those left are skipped.
STEPS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How the SRAM tile is found (SPEC section 5.2).

    granularity: ratios above 0 and below 1 for top-down; the i-th cut keeps ratio i of the axis that it cuts, and the
    last ratio repeats. order: axes in the order in which they are cut; axes of the output that it does not name come
    after those it does. cycle: one cut of each axis in turn; else one axis is exhausted before the next.
    """

    kind: Kind = "exact"
    granularity: tuple[Fraction, ...] = (Fraction(1, 2),)
    order: tuple[str, ...] = ("N", "H", "W")
    cycle: bool = True

    def axes(self, caps: Mapping[str, int]) -> tuple[str, ...]:
        """The axes of a map in the order in which they are cut."""
        return (*(a for a in self.order if a in caps), *(a for a in caps if a not in self.order))


def top_down_sizes(caps: Mapping[str, int], split: Split) -> Iterator[dict[str, int]]:
    """The tiles in the order in which top-down splitting tries them, from the caps until every axis is 1 (FUSE-S2).

    Each step cuts one axis: its current extent times the next ratio, rounded up, and at least one position less, so
    that each tile is strictly smaller than the one before. The ratios advance with every cut, whichever axis it cuts.
    Axes of extent 1 are passed over. Of 100 rows, halving leaves 50, 25, 13; 1/2 then 3/4 leaves 50, 38, 29.
    """
    tile = dict(caps)
    yield dict(tile)
    cuts = 0
    axes = split.axes(caps)
    turn = 0
    while any(tile[axis] > 1 for axis in axes):
        axis = axes[turn % len(axes)]
        if tile[axis] == 1:
            turn += 1
            continue
        ratio = split.granularity[min(cuts, len(split.granularity) - 1)]
        tile[axis] = min(tile[axis] - 1, ceil_div(tile[axis] * ratio.numerator, ratio.denominator))
        cuts += 1
        turn += split.cycle
        yield dict(tile)


def bottom_up_sizes(caps: Mapping[str, int], split: Split) -> Iterator[dict[str, int]]:
    """The tiles of bottom-up splitting from one position to the caps; each is strictly larger (FUSE-S3).

    The last axis of the order grows first, until it is whole, then the one before it. An axis grows position by
    position up to 64, then by a sixteenth of what is there. Where to start on this sequence: `smallest_units`.
    """
    tile = dict.fromkeys(caps, 1)
    yield dict(tile)
    for axis in reversed(split.axes(caps)):
        while tile[axis] < caps[axis]:
            step = 1 if tile[axis] < _ONE_BY_ONE_UP_TO else tile[axis] // _GROWTH
            tile[axis] = min(caps[axis], tile[axis] + step)
            yield dict(tile)


def smallest_units(caps: Mapping[str, int], split: Split) -> Iterator[dict[str, int]]:
    """The tiles that bottom-up splitting may start from, in the order in which it asks whether they fit (FUSE-S3).

    With axes N, H, W: one image (1×H×W×C), else one row (1×1×W×C), else one position (1×1×1×C). In another order the
    axes become 1 in that order; where there is one image, the whole of it comes first in every order.
    """
    axes = split.axes(caps)
    seen: list[dict[str, int]] = []
    for ones in range(1 if caps.get("N", 1) > 1 else 0, len(axes) + 1):
        unit = {axis: 1 if axis in axes[:ones] else caps[axis] for axis in caps}
        if unit not in seen:
            seen.append(unit)
            yield unit


def path_sizes(caps: Mapping[str, int], split: Split) -> list[dict[str, int]]:
    """The tiles of a split from the smallest to the largest."""
    if split.kind == "top-down":
        return list(top_down_sizes(caps, split))[::-1]
    return list(bottom_up_sizes(caps, split))


def split_candidates(extents: Mapping[str, int], split: Split, counts: Iterable[int], tensors: int) -> dict[str, Ints]:
    """Per axis the sizes, ascending, that a split can meet in a group of so many tensors.

    `extents` are those of the axes that may be cut, N first; `counts` the numbers of units that may share out images
    or rows. As for `exact`, an axis in very many tiles gets fewer sizes: there, only those at least twice as fine.
    """
    bands = next((axis for axis, extent in extents.items() if axis != "N" and extent > 1), None)
    met: dict[str, set[int]] = {axis: {extent} for axis, extent in extents.items()}
    shared = [(axis, count) for axis in ("N", bands) if axis in extents for count in sorted(set(counts))]
    for caps in [extents, *({**extents, a: ceil_div(extents[a], count)} for a, count in shared if a is not None)]:
        for tile in path_sizes(caps, split):
            for axis, size in tile.items():
                met[axis].add(size)
    return {axis: _bounded(sorted(sizes), extents[axis], tensors) for axis, sizes in met.items()}


def _bounded(sizes: list[int], extent: int, tensors: int) -> Ints:
    """Sizes of which the ranges of all tiles stay few, as `part_sizes` bounds them."""
    parts = part_sizes(extent, tensors)
    least = int(parts[0])
    fine = ceil_div(extent, 512)
    kept: list[int] = []
    for size in reversed(sizes):
        if size >= fine or (size >= least and 2 * size <= kept[-1]):
            kept.append(size)
    return np.array(kept[::-1], dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The tiles of a split under one configuration as rows of a table, ascending in size.

    `at`: per axis the position of each tile's size among the table's candidates. `units`: rows of the smallest units
    of bottom-up, in the order in which they are asked for; none for top-down.
    """

    at: Mapping[str, Ints]
    count: int
    units: tuple[int, ...]

    @classmethod
    def build(cls, table: SizeTable, caps: Mapping[str, int], channel_size: int | None, split: Split) -> Path:
        """The path under caps per axis (what one unit gets); an axis with a single candidate is not cut."""
        cut = {axis: caps[axis] for axis in table.axes if len(table.grids[axis].sizes) > 1}
        rows: dict[tuple[int, ...], int] = {}
        for tile in path_sizes(cut, split):
            # sizes that are no candidates share one, so that some tiles of the path become the same
            rows.setdefault(_positions(table, tile), len(rows))
        positions = np.array(list(rows), dtype=np.int64).reshape(len(rows), len(cut))
        at = {axis: np.zeros(len(rows), dtype=np.int64) for axis in table.axes}
        at |= {axis: positions[:, column] for column, axis in enumerate(cut)}
        if channel_size is not None:
            at["C"] = np.full(len(rows), table.index("C", channel_size), dtype=np.int64)
        units: tuple[int, ...] = ()
        if split.kind == "bottom-up":
            units = tuple(rows[_positions(table, unit)] for unit in smallest_units(cut, split))
        return cls(at=at, count=len(rows), units=units)

    @property
    def even(self) -> NDArray[np.bool_]:
        """All rows: a split does not ask whether a tile fills the array's lanes."""
        return np.ones(self.count, dtype=np.bool_)

    def sizes(self, table: SizeTable, row: int) -> dict[str, int]:
        """The tile of one row: size per axis."""
        return {axis: int(table.grids[axis].sizes[places[row]]) for axis, places in self.at.items()}

    def chosen(self, holds: NDArray[np.bool_]) -> int | None:
        """The row that the split ends at, given which rows hold; None if it finds none.

        Top-down the largest that holds; bottom-up the last before the first that does not, from the first smallest
        unit that holds.
        """
        if not self.units:
            rows = np.flatnonzero(holds)
            return int(rows[-1]) if len(rows) else None
        start = next((unit for unit in self.units if holds[unit]), None)
        if start is None:
            return None
        failing = np.flatnonzero(~holds[start:])
        return start + int(failing[0]) - 1 if len(failing) else self.count - 1

    def smaller(self, holds: NDArray[np.bool_], row: int, attempt: int) -> int | None:
        """The next row to try after `row`, whose core tile or exact figures did not hold; None if there is none."""
        rows = np.flatnonzero(holds[: row if attempt < STEPS else (row + 1) // 2])
        return int(rows[-1]) if len(rows) else None


def _positions(table: SizeTable, tile: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(table.index(axis, size) for axis, size in tile.items())
