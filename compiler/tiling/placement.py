"""Placement and traversal: which unit works on which tile, and when (TILE-4).

A placement is pure arithmetic on tile indices; units are the cores of a cluster or the clusters of a chip. What the
units have to pass each other follows from two things alone: who owns which tile, and which tiles made the positions
that a tile needs. Both go axis by axis, so nothing here walks over tiles one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isqrt

import numpy as np

from compiler.errors import InternalError
from compiler.ir.box import Ints


class Placement(StrEnum):
    """How the tiles of a grid are dealt to units (TILE-4)."""

    BANDS = "bands"
    BAND_COLUMNS = "columns"
    BLOCKS = "blocks"
    QUADRANTS = "quadrants"
    CHECKERBOARD = "checkerboard"
    ROW_MAJOR = "row-major"
    Z_ORDER = "z-order"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assignment:
    """The owner of every tile of a grid and the step at which it works on it (TILE-4).

    `owner` and `step` are arrays [rows, columns]. Tiles of equal step are worked on at the same time by different
    units. Steps count from 0 and are as many as the largest load; a unit whose part is narrower than others' leaves
    some out, so that neighbours stay in step.
    """

    rows: int
    columns: int
    units: int
    owner: Ints
    step: Ints

    @property
    def loads(self) -> Ints:
        """Number of tiles of each unit; 0 for an idle one."""
        return np.bincount(self.owner.ravel(), minlength=self.units).astype(np.int64)

    @property
    def steps(self) -> int:
        """Number of steps until every tile is done."""
        return int(self.step.max()) + 1


def assign(placement: Placement, rows: int, columns: int, units: int) -> Assignment:
    """Deal the tiles of a grid to units; each tile has one owner (TILE-4).

    The schemes, and by how many tiles the largest and the smallest load differ (a x b: see `unit_grid`):

    - bands: unit u takes the u-th run of tile rows and walks them from left to right one after another;
      (⌈rows/units⌉ − ⌊rows/units⌋)·columns. With fewer rows than units some are idle.
    - columns: the same of tile columns, walked from top to bottom.
    - blocks: each unit of a grid a x b takes one block and walks it row by row from its top left;
      ⌈rows/a⌉·⌈columns/b⌉ − ⌊rows/a⌋·⌊columns/b⌋.
    - quadrants: the grid a x b repeated over the tiles and mirrored each time, so that tiles that meet where two
      repetitions meet have one owner; one repetition is one step; as blocks.
    - checkerboard: repeated without mirroring; as blocks.
    - row-major: dealt one by one in row-major order; at most 1.
    - z-order: equal runs of the Morton order (bits of row and column interleaved); at most 1.

    Raises InternalError for a grid without tiles or units.
    """
    if min(rows, columns, units) < 1:
        raise InternalError("a placement needs tiles and units", stage="tiling", actual=f"{rows}x{columns}, {units}")
    row, column = np.arange(rows)[:, None], np.arange(columns)[None, :]
    match placement:
        case Placement.BANDS:
            owner, step = _bands(rows, columns, units)
        case Placement.BAND_COLUMNS:
            owner, step = (array.T for array in _bands(columns, rows, units))
        case Placement.BLOCKS:
            a, b = unit_grid(rows, columns, units)
            (part, i), (other, j) = _runs(rows, a), _runs(columns, b)
            owner = part[:, None] * b + other
            step = i[:, None] * (int(j.max()) + 1) + j
        case Placement.QUADRANTS | Placement.CHECKERBOARD:
            a, b = unit_grid(rows, columns, units)
            mirrored = placement is Placement.QUADRANTS
            owner = _repeated(row, a, mirrored) * b + _repeated(column, b, mirrored)
            step = row // a * -(-columns // b) + column // b
        case Placement.ROW_MAJOR:
            order = row * columns + column
            owner, step = order % units, order // units
        case Placement.Z_ORDER:
            part, place = _runs(rows * columns, units)
            rank = _morton_rank(rows, columns)
            owner, step = part[rank], place[rank]
    owner, step = np.ascontiguousarray(owner), np.ascontiguousarray(step)
    owner.setflags(write=False)
    step.setflags(write=False)
    return Assignment(rows=rows, columns=columns, units=units, owner=owner, step=step)


def unit_grid(rows: int, columns: int, units: int) -> tuple[int, int]:
    """The arrangement a x b of all units that suits a tile grid: least load, then shortest borders."""

    def badness(shape: tuple[int, int]) -> tuple[int, int]:
        a, b = shape
        load = -(-rows // a) * -(-columns // b)
        borders = (min(a, rows) - 1) * columns + (min(b, columns) - 1) * rows
        return load, borders

    divisors = [a for a in range(1, isqrt(units) + 1) if units % a == 0]
    return min((shape for a in divisors for shape in ((a, units // a), (units // a, a))), key=badness)


def parts_of(placement: Placement, rows: int, columns: int, units: int) -> tuple[Ints, Ints, int] | None:
    """Placements that deal rows and columns apart: the part of each row and column, and the parts of columns.

    The owner of a tile is part of its row × that number + part of its column. None for placements that interleave.
    """
    a, b = {Placement.BANDS: (units, 1), Placement.BAND_COLUMNS: (1, units)}.get(placement, (0, 0))
    if placement is Placement.BLOCKS:
        a, b = unit_grid(rows, columns, units)
    if a == 0:
        return None
    return _runs(rows, a)[0], _runs(columns, b)[0], b


def pairs(assignment: Assignment) -> tuple[int, int]:
    """Number of horizontally and of vertically neighbouring tile pairs with different owners."""
    owner = assignment.owner
    return (
        int(np.count_nonzero(owner[:, 1:] != owner[:, :-1])),
        int(np.count_nonzero(owner[1:] != owner[:-1])),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AxisOverlap:
    """Along one axis, which tiles made the positions that each tile needs.

    Tile i needs [need_starts[i], need_stops[i]) of a tensor of which tile j made [made_starts[j], made_stops[j]);
    `makers` are the tiles that made anything, and the made ranges kept here are theirs. Needs may reach over any
    number of tiles. `first[i]` and `last[i]` bound the makers that tile i needs something of.
    """

    need_starts: Ints
    need_stops: Ints
    made_starts: Ints
    made_stops: Ints
    makers: Ints
    first: Ints
    last: Ints

    @classmethod
    def of(cls, need_starts: Ints, need_stops: Ints, made_starts: Ints, made_stops: Ints) -> AxisOverlap:
        """The overlap of half-open ranges, one need and one made range per tile; either may be empty.

        InternalError if two tiles made the same position (then no exchange would be needed) or if made ranges do
        not rise with the tile.
        """
        makers = np.flatnonzero(made_stops > made_starts)
        starts, stops = made_starts[makers], made_stops[makers]
        if len(need_starts) != len(made_starts) or bool((starts[1:] < stops[:-1]).any()):
            raise InternalError("tiles that exchange halos have to make disjoint rising ranges", stage="tiling")
        ends = np.maximum(need_starts, need_stops)
        first = np.searchsorted(stops, need_starts, side="right")
        last = np.searchsorted(starts, ends, side="left")
        return cls(
            need_starts=need_starts,
            need_stops=ends,
            made_starts=starts,
            made_stops=stops,
            makers=makers,
            first=first,
            last=np.where(ends > need_starts, np.maximum(last, first), first),
        )

    @property
    def tiles(self) -> int:
        """Number of tiles along the axis."""
        return len(self.need_starts)

    @property
    def reach(self) -> int:
        """The largest number of tiles that one tile needs something of, itself included."""
        return int((self.last - self.first).max(initial=0))

    def hop(self, number: int) -> tuple[Ints, Ints]:
        """For each tile, the `number`-th tile that it needs something of, and how many positions (0: no such)."""
        index = self.first + number
        exists = index < self.last
        index = np.where(exists, index, 0)
        low = np.maximum(self.made_starts[index], self.need_starts)
        high = np.minimum(self.made_stops[index], self.need_stops)
        return self.makers[index], np.where(exists, high - low, 0)

    def gather(self, values: Ints) -> Ints:
        """The product of the overlap matrix [tile i, tile j] and `values` [tile j, ...], by prefix sums.

        Takes the time of a few passes over `values`, however many tiles a need reaches over.
        """
        made = values[self.makers]
        total = np.zeros((len(self.makers) + 1, *values.shape[1:]), dtype=np.int64)
        np.cumsum(made * _stand(self.made_stops - self.made_starts, made), axis=0, out=total[1:])
        return self._until(self.need_stops, made, total) - self._until(self.need_starts, made, total)

    def _until(self, position: Ints, made: Ints, total: Ints) -> Ints:
        """Sum over all made positions before a position, each weighted by its tile's value."""
        if not len(self.makers):
            return np.zeros((len(position), *made.shape[1:]), dtype=np.int64)
        tile = np.maximum(np.searchsorted(self.made_starts, position, side="right") - 1, 0)
        inside = np.clip(position - self.made_starts[tile], 0, self.made_stops[tile] - self.made_starts[tile])
        partial = made[tile] * _stand(inside, made)
        return np.asarray(total[tile] + partial)


def exchanged_elements(assignment: Assignment, rows: AxisOverlap, columns: AxisOverlap) -> int:
    """Elements per channel that pass between units when tiles exchange halos (TILE-3, TILE-4).

    What a tile needs is cut by the tiles that made it; every piece that another unit's tile made counts once for
    the tile that needs it. In both directions of both axes, corners included: the sum over tiles (i, k), (j, l) of
    different owners of rowOverlap[i, j]·columnOverlap[k, l]. What two tiles of one unit need in common counts for
    each of them.
    """
    _check(assignment, rows, columns)
    # One pass per pair of hops suits halos; where needs reach over much of the grid, a pass per unit is shorter.
    if rows.reach * columns.reach > 8 * assignment.units:
        matrix = exchange_matrix(assignment, rows, columns)
        return int(matrix.sum() - matrix.trace())
    total = 0
    hops = [columns.hop(number) for number in range(columns.reach)]
    for number in range(rows.reach):
        makers, height = rows.hop(number)
        across = assignment.owner[makers]
        for others, width in hops:
            differs = across[:, others] != assignment.owner
            total += int(height @ (differs @ width))
    return total


def exchange_matrix(assignment: Assignment, rows: AxisOverlap, columns: AxisOverlap) -> Ints:
    """Elements per channel that tiles of each unit need of what tiles of each unit made: [made by, needed by].

    The diagonal is what units keep; the sum of the rest is `exchanged_elements`.
    """
    _check(assignment, rows, columns)
    units, owner = assignment.units, assignment.owner
    matrix = np.zeros((units, units), dtype=np.int64)
    if bool((owner == owner[:, :1] + (owner[0] - owner[0, 0])).all()):
        # rows and columns are dealt apart: so are the overlaps of their parts
        (row_parts, by_row), (column_parts, by_column) = (
            _overlap_of_parts(rows, owner[:, 0]),
            _overlap_of_parts(columns, owner[0] - owner[0, 0]),
        )
        dealt = np.add.outer(row_parts, column_parts).ravel()
        np.add.at(matrix, (dealt[:, None], dealt), np.kron(by_row, by_column))
        return matrix
    for unit in range(units):
        made = (owner == unit).astype(np.int64)
        if made.any():
            needed = columns.gather(rows.gather(made).T).T
            np.add.at(matrix[unit], owner.ravel(), needed.ravel())
    return matrix


def _overlap_of_parts(axis: AxisOverlap, part: Ints) -> tuple[Ints, Ints]:
    """The parts of an axis, and the positions that tiles of each need of tiles of each: [made by, needed by]."""
    parts, number = np.unique(part, return_inverse=True)
    is_of = (number[:, None] == np.arange(len(parts))).astype(np.int64)
    return parts, axis.gather(is_of).T @ is_of


def mesh_hops(matrix: Ints, mesh_columns: int) -> int:
    """Elements of an exchange matrix times the links they cross, units lying row-major on a mesh of that width."""
    row, column = np.divmod(np.arange(len(matrix)), mesh_columns)
    links = np.abs(row[:, None] - row) + np.abs(column[:, None] - column)
    return int((matrix * links).sum())


def _bands(rows: int, columns: int, units: int) -> tuple[Ints, Ints]:
    part, place = _runs(rows, units)
    return np.repeat(part[:, None], columns, axis=1), place[:, None] * columns + np.arange(columns)


def _runs(count: int, parts: int) -> tuple[Ints, Ints]:
    """`count` items in runs that differ by at most one: the run of each item and its place in it."""
    used = min(parts, count)
    part = np.arange(count) * used // count
    # run p begins at the first item i with i·used // count = p
    begin = -(-np.arange(used) * count // used)
    return part, np.arange(count) - begin[part]


def _repeated(index: Ints, period: int, mirrored: bool) -> Ints:
    """0 .. period−1 again and again, with `mirrored` every other time backwards."""
    place = index % period
    return np.where(index // period % 2 == 1, period - 1 - place, place) if mirrored else place


def _morton_rank(rows: int, columns: int) -> Ints:
    """Place of each tile [row, column] in the Morton order."""
    code = 2 * _spread_bits(np.arange(rows))[:, None] + _spread_bits(np.arange(columns))
    rank = np.empty(rows * columns, dtype=np.int64)
    rank[np.argsort(code, axis=None)] = np.arange(rows * columns)
    return rank.reshape(rows, columns)


def _spread_bits(index: Ints) -> Ints:
    """Bit b of an index moved to bit 2·b."""
    spread = np.zeros_like(index)
    for bit in range(int(index.max()).bit_length()):
        spread |= (index >> bit & 1) << 2 * bit
    return spread


def _stand(weights: Ints, values: Ints) -> Ints:
    """Weights of the first axis, shaped to multiply values."""
    return weights.reshape(-1, *(1,) * (values.ndim - 1))


def _check(assignment: Assignment, rows: AxisOverlap, columns: AxisOverlap) -> None:
    if (rows.tiles, columns.tiles) != (assignment.rows, assignment.columns):
        raise InternalError(
            "the overlaps of the axes are not of this tile grid",
            stage="tiling",
            actual=f"{rows.tiles}x{columns.tiles}",
            limit=f"{assignment.rows}x{assignment.columns}",
        )
