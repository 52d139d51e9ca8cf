"""The DRAM in the proof of programs: all is written once, before it is read, and completely (PROG-4, PROG-6).

Tiles move through the DRAM, so what was seen there does not recur. But nothing is written twice there, so the writes of
a statement at all its tiles are one box with its counters as further axes, and boxes that share no byte say all. Who
reads has to come after the last of the tiles that write what it reads; which number its command has is counted, not
looked up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from compiler.machine_code import compiled
from compiler.program.accesses import Kind
from compiler.program.errors import ProgramError
from compiler.program.fields import ProgramLimits
from compiler.program.loops.instances import Instances
from compiler.program.loops.positions import Positions, number_at
from compiler.program.loops.shapes import Shapes, joined, over_tiles, shape_columns, shapes_of
from compiler.program.loops.statement_accesses import StatementAccesses
from compiler.program.loops.windows import NONE, WRITTEN, common_bytes, meet, touch_all, which_meet
from compiler.program.program import Region
from compiler.program.strided import Ints, normalise
from compiler.units import element_bytes

# Pairs of boxes that are compared in one go.
_PAIRS: Final = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Writes:
    """What is written to areas of the DRAM that are not given: one row per part of a statement.

    `lows`: the first byte of all tiles. `numbers`: of the command of its last tile, among those of its engine.
    `origins`: the iteration of its first tile; `spans`, `leaps`, `slopes`, `axes`: how many places a counter has, by
    how many iterations and bytes each moves it, and along which axis.
    """

    areas: Ints
    statements: Ints
    lows: Ints
    highs: Ints
    shapes: Shapes
    bytes_each: Ints
    numbers: Ints
    origins: Ints
    spans: Ints
    leaps: Ints
    slopes: Ints
    axes: Ints


def writes_of(found: StatementAccesses, instances: Instances, positions: Positions) -> Writes:
    """The writes of all statements."""
    rows = np.flatnonzero((found.areas >= 0) & (found.kinds == Kind.WRITE))
    statements = found.statements[rows]
    apart = found.are_apart[statements]
    spans = np.where(apart[:, None], 1, positions.tile_counts[statements])
    shapes, axes = over_tiles(shapes_of(found.counts[rows], found.strides[rows]), spans, found.slopes[rows])
    origins, lasts = instances.firsts[statements].copy(), instances.lasts[statements].copy()
    if apart.any():
        parts = np.searchsorted(found.part_offsets, rows[apart], side="right") - 1
        index = parts - found.first_parts[statements[apart]]
        origins[apart] = lasts[apart] = positions.iterations(statements[apart], index)
    return Writes(
        areas=found.areas[rows],
        statements=statements,
        lows=found.least[rows],
        highs=found.most[rows],
        shapes=shapes,
        bytes_each=shapes.runs * shapes.counts.prod(axis=1),
        numbers=positions.numbers(lasts, statements),
        origins=origins,
        spans=spans,
        leaps=np.where(apart[:, None], 0, positions.leaps[statements]),
        slopes=found.slopes[rows],
        axes=axes,
    )


class DramProof:
    """Judges what does not depend on order, area by area. Raises ProgramError."""

    def __init__(self, found: StatementAccesses, writes: Writes, limits: ProgramLimits) -> None:
        self._found, self._writes, self._limits = found, writes, limits
        self._program = found.program
        self._columns = shape_columns(writes.shapes)
        self._totals = np.zeros(len(found.region_areas.starts), dtype=np.int64)
        np.add.at(self._totals, writes.areas, writes.bytes_each)

    def run(self) -> None:
        """Every area is written once; results completely; what is read somewhere."""
        areas = self._found.region_areas
        regions: dict[int, list[Region]] = {}
        for region, area in zip(self._program.regions, areas.of_region, strict=True):
            if areas.is_result[area] and not areas.is_given[area] and 0 not in region.shape:
                regions.setdefault(area, []).append(region)
        order = np.argsort(self._writes.areas, kind="stable")
        bounds = np.searchsorted(self._writes.areas[order], np.arange(len(areas.starts) + 1))
        for area in range(len(areas.starts)):
            rows = order[bounds[area] : bounds[area + 1]]
            self._judge_area(area, rows, regions.get(area, []))
        self._judge_reads()

    def _judge_area(self, area: int, rows: Ints, regions: list[Region]) -> None:
        writes, areas = self._writes, self._found.region_areas
        by_low = rows[np.argsort(writes.lows[rows], kind="stable")]
        stops = np.searchsorted(writes.lows[by_low], writes.highs[by_low])
        pairs = int((stops - np.arange(len(by_low)) - 1).sum())
        size = int(areas.stops[area] - areas.starts[area])
        word = self._word(area, rows, regions)
        if pairs > size // word and size // word <= self._limits.shadow_bytes:
            self._mark(area, rows, regions, word)
            return
        for some, others in self._pairs(by_low, stops):
            met = self._meet(some, others)
            if met.any():
                at = int(met.argmax())
                first, last = sorted((int(writes.statements[some[at]]), int(writes.statements[others[at]])))
                raise self._twice(area, last, first)
        for region in regions:
            if self._totals[area] == size:
                continue
            low, shapes = _elements(region)
            columns, counts, strides = shape_columns(joined(writes.shapes, shapes))
            others = np.full(len(rows), len(writes.lows))
            lows = np.full(len(rows), low)
            covered = common_bytes(writes.lows[rows], rows, lows, others, columns, counts, strides).sum()
            if covered != shapes.runs[0] * shapes.counts[0].prod():
                raise _incomplete(region)

    def _word(self, area: int, rows: Ints, regions: list[Region]) -> int:
        """How many bytes are written together at least, and lie so."""
        shapes, begin = self._writes.shapes, int(self._found.region_areas.starts[area])
        numbers = [self._writes.lows[rows] - begin, shapes.runs[rows], shapes.strides[rows].ravel()]
        for region in regions:
            _, its = _elements(region)
            numbers += [its.runs, its.strides.ravel()]
        return int(np.gcd.reduce(np.concatenate(numbers))) or 1

    def _mark(self, area: int, rows: Ints, regions: list[Region], word: int) -> None:
        """Judge an area word by word, where comparing all boxes would take longer."""
        writes, areas = self._writes, self._found.region_areas
        begin, size = int(areas.starts[area]), int(areas.stops[area] - areas.starts[area])
        # what is left over at the end is never written
        written = np.zeros(-(-size // word), dtype=np.uint8)
        none = np.zeros(1, dtype=np.int64)
        columns, counts, strides = shape_columns(joined(writes.shapes, *(_elements(region)[1] for region in regions)))

        def look(lows: Ints, its: Ints, put: int) -> Ints:
            memories = np.zeros(len(lows), dtype=np.int64)
            begins, words = np.array([begin]), np.array([word])
            seen: Ints = touch_all(lows, its, memories, begins, words, written, none, columns, counts, strides, put)
            return seen

        greatest = look(writes.lows[rows], rows, WRITTEN) & 3
        if greatest.any():
            raise self._twice(area, int(writes.statements[rows[greatest.argmax()]]), None)
        for number, region in enumerate(regions):
            seen = look(np.array([region.address]), np.array([len(writes.lows) + number]), 0)
            if seen[0] >> 2 == 0:
                raise _incomplete(region)

    def _pairs(self, by_low: Ints, stops: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Pairs of boxes whose ends do not keep them apart."""
        counts = stops - np.arange(len(by_low)) - 1
        totals = np.cumsum(counts)
        begin = 0
        while begin < len(by_low):
            before = int(totals[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(totals, before + _PAIRS, side="right")))
            its = counts[begin:end]
            some = np.repeat(np.arange(begin, end), its)
            others = some + 1 + np.arange(len(some)) - np.repeat(np.cumsum(its) - its, its)
            yield by_low[some], by_low[others]
            begin = end

    def _meet(self, some: Ints, others: Ints) -> Ints:
        lows = self._writes.lows
        columns, counts, strides = self._columns
        found: Ints = which_meet(lows[some], some, lows[others], others, columns, counts, strides)
        return found

    def _twice(self, area: int, statement: int, other: int | None) -> ProgramError:
        name = self._name(area)
        whom = "other commands have" if other is None or other == statement else f"command {other} has"
        return ProgramError(f"writes bytes of {name} that {whom} written", violation="write-once", command=statement)

    def _name(self, area: int) -> str:
        names = [
            region.name
            for region, its in zip(self._program.regions, self._found.region_areas.of_region, strict=True)
            if its == area
        ]
        return f"region {names[0]!r}"

    def _judge_reads(self) -> None:
        """What is read of areas that are not given is written by somebody."""
        found, writes, areas = self._found, self._writes, self._found.region_areas
        rows = np.flatnonzero((found.areas >= 0) & (found.kinds != Kind.WRITE))
        its = found.areas[rows]
        # where all is written nothing has to be looked for
        rows = rows[~areas.is_given[its] & (self._totals[its] != (areas.stops - areas.starts)[its])]
        if not len(rows):
            return
        tiles = np.where(found.are_apart[found.statements[rows]], 1, found.tiles[rows])
        spans = np.where((tiles > 1)[:, None], found.tile_counts[found.statements[rows]], 1)
        shapes, _ = over_tiles(shapes_of(found.counts[rows], found.strides[rows]), spans, found.slopes[rows])
        columns, counts, strides = shape_columns(joined(writes.shapes, shapes))
        for number, row in enumerate(rows.tolist()):
            others = np.flatnonzero(writes.areas == found.areas[row])
            one = np.full(len(others), len(writes.lows) + number)
            lows = np.full(len(others), found.least[row])
            held = common_bytes(lows, one, writes.lows[others], others, columns, counts, strides).sum()
            if held != shapes.runs[number] * shapes.counts[number].prod():
                raise ProgramError(
                    f"reads bytes of {self._name(int(found.areas[row]))} that nobody has written",
                    violation="unwritten",
                    command=int(found.statements[row]),
                )


def _elements(region: Region) -> tuple[int, Shapes]:
    """Address and shape of a region's elements."""
    shape, strides = np.array([region.shape], dtype=np.int64), np.array([region.strides], dtype=np.int64)
    normal = normalise(np.array([region.address]), shape, strides, np.array([element_bytes(region.dtype)]))
    return region.address, shapes_of(normal.counts, normal.strides)


def _incomplete(region: Region) -> ProgramError:
    return ProgramError(f"region {region.name!r} is not written completely", violation="incomplete")


@compiled(allocates=False)
def _latest_tile(
    low: int, shape: int, piece: int, pieces: Any, tiles: Any, shapes: Any, counts: Any, strides: Any
) -> Any:
    """The iteration of the last tile of a piece whose bytes meet a window, which those of all its tiles meet together.

    The last row of the shapes is scratch.
    """
    lows, piece_shapes, _, origins, _, _ = pieces
    slopes, spans, axes, leaps = tiles
    dims, runs, reaches, rows, nested = shapes
    scratch, of = len(dims) - 1, piece_shapes[piece]
    dims[scratch], runs[scratch], nested[scratch] = dims[of], runs[of], 1
    for axis in range(dims[of]):
        counts[scratch, axis], strides[scratch, axis] = counts[of, axis], strides[of, axis]
    # where all places are 0
    at, iteration = lows[piece], origins[piece]
    for counter in range(spans.shape[1]):
        at -= min(0, slopes[piece, counter] * (spans[piece, counter] - 1))
    for counter in range(spans.shape[1]):
        axis, span, slope = axes[piece, counter], spans[piece, counter], slopes[piece, counter]
        if axis == NONE:
            continue
        least, most = 0, span - 1
        while least < most:
            middle = (least + most + 1) >> 1
            counts[scratch, axis] = span - middle
            start = at + min(middle * slope, (span - 1) * slope)
            for inner in range(counter + 1, spans.shape[1]):
                start += min(0, slopes[piece, inner] * (spans[piece, inner] - 1))
            reaches[scratch], rows[scratch] = runs[scratch], 1
            for its in range(dims[scratch]):
                reaches[scratch] += (counts[scratch, its] - 1) * strides[scratch, its]
                rows[scratch] *= counts[scratch, its]
            if meet(low, shape, start, scratch, shapes, counts, strides):
                least = middle
            else:
                most = middle - 1
        counts[scratch, axis] = 1
        at += least * slope
        iteration += least * leaps[piece, counter]
    return iteration


@compiled(allocates=False)
def is_late(
    low: int,
    shape: int,
    piece: int,
    bound: int,
    pieces: Any,
    tiles: Any,
    order: Any,
    origins: Any,
    runs: Any,
    shapes: Any,
    counts: Any,
    strides: Any,
) -> Any:
    """True if a tile of a piece whose command's number is beyond `bound` meets a window."""
    lows, piece_shapes, owners, _, befores, parts = pieces
    if not meet(low, shape, lows[piece], piece_shapes[piece], shapes, counts, strides):
        return False
    iteration = _latest_tile(low, shape, piece, pieces, tiles, shapes, counts, strides)
    run_offsets, firsts, steps, run_counts, moduli = runs
    number = befores[piece] + number_at(
        iteration,
        owners[piece],
        parts[piece],
        order,
        origins,
        run_offsets,
        firsts,
        steps,
        run_counts,
        moduli,
    )
    return number > bound
