"""Where the commands of statements stand among those of their engines, counted over runs (PROG-5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.machine_code import compiled
from compiler.program.loops.form import owners_of, slots_of
from compiler.program.loops.instances import Instances
from compiler.program.strided import Ints

# A counter of one value leads nowhere, however many tiles a loop has.
_APART = 1 << 62


@compiled(allocates=False)
def _tiles_before(
    statement: int,
    left: int,
    is_included: bool,
    run_offsets: Any,
    firsts: Any,
    steps: Any,
    run_counts: Any,
    moduli: Any,
) -> Any:
    """How many tiles of a statement come before the tile of a number (or up to it)."""
    inner = 1
    for run in range(run_offsets[statement], run_offsets[statement + 1]):
        inner *= run_counts[run]
    found = 0
    for run in range(run_offsets[statement], run_offsets[statement + 1]):
        inner //= run_counts[run]
        value = left // moduli[run]
        left -= value * moduli[run]
        if value < firsts[run]:
            return found
        place = (value - firsts[run]) // steps[run]
        if place >= run_counts[run]:
            return found + run_counts[run] * inner
        found += place * inner
        if firsts[run] + place * steps[run] != value:
            return found + inner
    if left < 0:
        return found
    return found + 1 if left > 0 or is_included else found


@compiled(allocates=False)
def number_at(
    iteration: int,
    statement: int,
    part: int,
    order: Any,
    origins: Any,
    run_offsets: Any,
    firsts: Any,
    steps: Any,
    run_counts: Any,
    moduli: Any,
) -> Any:
    """How many commands the statements of a part, those of one engine and nest, make up to a position."""
    loop_offsets, loops, single_offsets, singles, single_iterations = order
    low, high = single_offsets[part], single_offsets[part + 1]
    while low < high:
        middle = (low + high) >> 1
        at = single_iterations[middle]
        if at < iteration or (at == iteration and singles[middle] <= statement):
            low = middle + 1
        else:
            high = middle
    found = low - single_offsets[part]
    for at in range(loop_offsets[part], loop_offsets[part + 1]):
        its = loops[at]
        left = iteration - origins[its]
        found += _tiles_before(its, left, its <= statement, run_offsets, firsts, steps, run_counts, moduli)
    return found


@compiled(
    "int64[::1](int64[::1], int64[::1], int64[::1], UniTuple(int64[::1], 5), int64[::1], UniTuple(int64[::1], 5))"
)
def numbers_at(iterations: Any, its: Any, parts: Any, order: Any, origins: Any, runs: Any) -> Any:
    """For positions (iteration, statement) how many commands the statements of a part make up to each.

    order, runs: columns of `Positions`.
    """
    run_offsets, firsts, steps, run_counts, moduli = runs
    found = np.zeros(len(its), dtype=np.int64)
    for row in range(len(its)):
        found[row] = number_at(
            iterations[row], its[row], parts[row], order, origins, run_offsets, firsts, steps, run_counts, moduli
        )
    return found


class Positions:
    """Statements by engine, and how their runs lie in iterations.

    By statement `tile_counts` and `leaps`: how many places each run has, and how many iterations lie between two;
    `origins`: the iteration of the tile at which all counters are 0; `parts`: the number of its nest and engine;
    `befores`: commands of its engine in nests before. As machine code reads them, `runs`, and `order`: by part the
    statements of several tiles, and those of one tile in their order, with their iterations.
    """

    def __init__(self, instances: Instances) -> None:
        program, loops = instances.program, instances.program.loops
        spaces = loops.spaces[loops.statements["space"]]
        owners, slots = owners_of(loops.run_offsets), slots_of(loops.run_offsets)
        self.tile_counts, self.leaps, self.origins = instances.tile_counts, instances.leaps, instances.origins
        self._firsts = instances.firsts
        moduli = np.where(spaces["extents"][owners, slots] > 1, spaces["strides"][owners, slots], _APART)
        self.runs = (
            loops.run_offsets.astype(np.int64),
            loops.runs["first"].astype(np.int64),
            loops.runs["step"].astype(np.int64),
            loops.runs["count"].astype(np.int64),
            moduli.astype(np.int64),
        )
        queues = program.commands["queue"].astype(np.int64)
        engines = max(1, len(program.queues))
        nests = int(instances.nests.max(initial=-1)) + 1
        self.parts: Ints = instances.nests * engines + queues
        is_single = instances.counts == 1
        singles, loop = np.flatnonzero(is_single), np.flatnonzero(~is_single)
        singles = singles[np.lexsort((instances.firsts[singles], self.parts[singles]))]
        loop = loop[np.argsort(self.parts[loop], kind="stable")]
        bounds = np.arange(nests * engines + 1)
        self.order = (
            np.searchsorted(self.parts[loop], bounds).astype(np.int64),
            loop.astype(np.int64),
            np.searchsorted(self.parts[singles], bounds).astype(np.int64),
            singles.astype(np.int64),
            instances.firsts[singles].astype(np.int64),
        )
        made = np.zeros((nests, engines), dtype=np.int64)
        np.add.at(made, (instances.nests, queues), instances.counts)
        self.befores: Ints = (np.cumsum(made, axis=0) - made)[instances.nests, queues]

    def iterations(self, statements: Ints, tiles: Ints) -> Ints:
        """The iterations of tiles of statements, whose tiles are numbered in order."""
        found = self._firsts[statements].copy()
        for counter in range(self.leaps.shape[1] - 1, -1, -1):
            tiles, place = np.divmod(tiles, self.tile_counts[statements, counter])
            found += place * self.leaps[statements, counter]
        return found

    def numbers(self, iterations: Ints, statements: Ints) -> Ints:
        """How many commands the engines of statements have made up to their commands of some iterations."""
        counted = numbers_at(iterations, statements, self.parts[statements], self.order, self.origins, self.runs)
        found: Ints = self.befores[statements] + counted
        return found
