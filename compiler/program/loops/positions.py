"""Where the commands of statements stand among those of their engines, counted over runs (PROG-5)."""

from __future__ import annotations

import numpy as np

from compiler.program.loops.form import owners_of, slots_of
from compiler.program.loops.instances import Instances
from compiler.program.loops.judge import numbers_at
from compiler.program.loops.loops import LoopedProgram
from compiler.program.strided import Ints

# A counter of one value leads nowhere, however many tiles a loop has.
_APART = 1 << 62


class Positions:
    """Statements by engine, and how their runs lie in iterations.

    By statement `tile_counts` and `leaps`: how many places each run has, and how many iterations lie between two;
    `origins`: the iteration of the tile at which all counters are 0; `parts`: the number of its nest and engine;
    `befores`: commands of its engine in nests before. As machine code reads them, `runs`, and `order`: by part the
    statements of several tiles, and those of one tile in their order, with their iterations.
    """

    def __init__(self, looped: LoopedProgram, instances: Instances) -> None:
        loops, count = looped.loops, len(looped.loops.statements)
        spaces = loops.spaces[loops.statements["space"]]
        width = int(spaces["counters"].max(initial=0))
        owners, slots = owners_of(loops.run_offsets), slots_of(loops.run_offsets)
        self.tile_counts = np.ones((count, width), dtype=np.int64)
        self.tile_counts[owners, slots] = loops.runs["count"]
        self.leaps = np.zeros((count, width), dtype=np.int64)
        self.leaps[owners, slots] = loops.runs["step"] * spaces["strides"][owners, slots]
        self.origins: Ints = spaces["base"] - loops.statements["stage"]
        self._firsts = instances.firsts
        moduli = np.where(spaces["extents"][owners, slots] > 1, spaces["strides"][owners, slots], _APART)
        self.runs = (
            loops.run_offsets.astype(np.int64),
            loops.runs["first"].astype(np.int64),
            loops.runs["step"].astype(np.int64),
            loops.runs["count"].astype(np.int64),
            moduli.astype(np.int64),
        )
        queues = looped.program.commands["queue"].astype(np.int64)
        engines = max(1, len(looped.program.queues))
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
