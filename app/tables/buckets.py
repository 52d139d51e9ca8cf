"""Buckets: a few tables of a routine serve the shapes that nobody asked for before (SHAPE-5).

A bucket's table is a grid of one unit over the largest shape that the package knows. A smaller shape drops whole pieces
and clips the last. The histogram of requested shapes decides which grids a routine has (`compiler/shapes/buckets.py`);
a shape is served by the one of them that is estimated to cost least there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Final

import msgspec
import numpy as np

# check_cover needs this module; loading it with the first request from a bucket would take 10 ms
import redis

from app.settings import Settings
from app.tables import simple_tables
from app.tables.counts import REQUESTS, TableCounts
from app.tables.open_packages import Asked, OpenPackage
from app.tables.table_encoding import StoredTable, restored, stored_runs
from compiler.cache_key import bucket_key
from compiler.errors import LimitError
from compiler.shapes.buckets import choose_buckets
from compiler.shapes.clip import clipped
from compiler.shapes.core_time import on_cores
from compiler.shapes.model import ShapeModel

# Buckets per routine, and requests before the first choice; they are chosen again when requests have doubled.
_BUCKETS: Final = 16
_FIRST_CHOICE: Final = 32
# Requests for a shape with which it gets tables of its own, optimised ones.
_OFTEN: Final = 8
# The most requested shapes of the histogram; the choice takes 0.1 ms for each and routine.
_SHAPES: Final = 128
# A bucket serves a shape if its table costs at most this many times the simple table.
WORTH: Final = 1.05
# A table that serves a shape at more than so many times the least cost is as bad as any other.
_DEAREST: Final = 4.0


class Grid(msgspec.Struct, frozen=True, array_like=True):
    """The table of a bucket: a unit and a call order, by number."""

    unit: int
    order: int


class Buckets(msgspec.Struct, frozen=True, kw_only=True):
    """The grids of each routine, and the number of requests behind the choice."""

    requests: int
    grids: tuple[tuple[Grid, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketChoice:
    """The buckets of packages, in the broker's Redis."""

    client: redis.Redis
    counts: TableCounts
    settings: Settings

    def of(self, package: str) -> Buckets | None:
        """The buckets chosen for a package."""
        value = self.client.get(_key(package))
        return msgspec.json.decode(value, type=Buckets) if isinstance(value, str) else None

    def serving(self, package: str, extents: Sequence[int]) -> Buckets | None:
        """The buckets that may serve a shape; None where none are chosen, or the shape is asked for often."""
        pipeline = self.client.pipeline(transaction=False)
        pipeline.get(_key(package))
        self.counts.ask(pipeline, package, extents)
        value, *found = pipeline.execute()
        # counts of a histogram that is full may be too high
        if value is None or self.counts.least_count(*found) >= _OFTEN:
            return None
        return msgspec.json.decode(value, type=Buckets)

    def choose_if_due(self, opened: OpenPackage) -> None:
        """Chooses buckets by the requested shapes, if requests have doubled since the last choice.

        Where the broker refuses because its memory or disk is full, they stay as they are.
        """
        with suppress(redis.ResponseError):
            self._choose_if_due(opened)

    def _choose_if_due(self, opened: OpenPackage) -> None:
        last = self.of(opened.digest)
        requests = self.counts.count(opened.digest, REQUESTS)
        if requests < (_FIRST_CHOICE if last is None else 2 * last.requests):
            return
        names = sorted(opened.model.ranges)
        shapes = self.counts.of(opened.digest, _SHAPES).shapes
        if not shapes:
            return  # shapes may be forgotten before the count of requests
        histogram = [(dict(zip(names, extents, strict=True)), count) for extents, count in shapes]
        grids = tuple(grids_of(opened.model, number, histogram) for number in range(len(opened.model.libraries)))
        chosen = Buckets(requests=requests, grids=grids)
        keep_ms = round(self.settings.keep_table_s * 1000)
        self.client.set(_key(opened.digest), msgspec.json.encode(chosen), px=keep_ms)


def grids_of(model: ShapeModel, number: int, histogram: list[tuple[dict[str, int], int]]) -> tuple[Grid, ...]:
    """The grids that serve a routine's buckets, by requests for dimensions; none for a routine of one call."""
    tiled = model.libraries[number].routine.tiled
    counts: Counter[tuple[int, ...]] = Counter()
    for dims, count in histogram:
        counts[model.problem(number, dims)] += count
    problems = sorted((one for one in counts if 0 not in one), key=lambda one: (prod(one), one))
    if not tiled or not problems:
        return ()
    choosers = [model.chooser(number, problem) for problem in problems]
    shapes = [tuple(problem[axis] for axis in tiled) for problem in problems]
    costs = np.stack([one.grid_costs(shape) for one, shape in zip(choosers, shapes, strict=True)])
    units = costs.shape[-1]
    costs = costs.reshape(len(problems), -1)
    excess = np.minimum(costs / costs.min(axis=1, keepdims=True), _DEAREST)
    found = {one.table for one in choose_buckets(excess, [counts[one] for one in problems], _BUCKETS)}
    return tuple(Grid(unit=table % units, order=table // units) for table in sorted(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which bucket may serve a shape: its table, the grid that this is, and the shape's own simple table to compare."""

    bucket: Asked
    grid: Grid
    simple: StoredTable


def choice(opened: OpenPackage, asked: Asked, grids: tuple[Grid, ...]) -> Choice | None:
    """The bucket whose table is estimated to cost a shape least; None where no bucket reaches the shape."""
    model, tiled = opened.model, opened.model.libraries[asked.routine].routine.tiled
    largest = opened.largest[asked.routine]
    if not grids or not all(1 <= asked.problem[axis] <= largest[axis] for axis in tiled):
        return None
    chooser = model.chooser(asked.routine, asked.problem)
    shape = tuple(asked.problem[axis] for axis in tiled)
    simple, number = chooser.table_and_grid(shape, [(one.order, one.unit) for one in grids])
    grid, over = grids[number], tuple(largest[axis] for axis in tiled)
    key = bucket_key(opened.routine_keys[asked.routine], over, grid.unit, grid.order)
    bucket = Asked(routine=asked.routine, problem=largest, key=key)
    return Choice(bucket=bucket, grid=grid, simple=simple_tables.stored(simple))


def made(opened: OpenPackage, found: Choice) -> StoredTable:
    """A bucket's table, which is final."""
    bucket, grid = found.bucket, found.grid
    tiled = opened.model.libraries[bucket.routine].routine.tiled
    chooser = opened.model.chooser(bucket.routine, bucket.problem)
    table = chooser.priced(chooser.grid(tuple(bucket.problem[axis] for axis in tiled), grid.order, grid.unit))
    return simple_tables.stored(table, is_final=True)


def served(opened: OpenPackage, asked: Asked, table: StoredTable, simple: StoredTable) -> StoredTable | None:
    """A bucket's table clipped to a shape; None if it costs too much.

    As the tables of hits it is not proved again: that would take longer than making it.
    """
    library = opened.model.libraries[asked.routine]
    shape = tuple(asked.problem[axis] for axis in library.routine.tiled)
    found = clipped(restored(table, library.units), library.units, shape)
    runs, cycles = stored_runs(found), simple.cycles
    if runs != simple.runs:
        try:
            cost = opened.model.chooser(asked.routine, asked.problem).cost
            cycles = on_cores(found, library.units, cost, opened.model.cores, library.loaders).cost_cycles
        except LimitError:
            return None
    if cycles > WORTH * simple.cycles:
        return None
    return StoredTable(
        kind="simple",
        settled=True,
        simple_cycles=simple.cycles,
        optimised_cycles=None,
        shape=shape,
        runs=runs,
        clipped_cycles=cycles,
    )


def _key(package: str) -> str:
    return f"tessera:package:{package}:bucket-grids"
