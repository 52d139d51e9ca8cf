"""The commands that a group's statements stand for in some iterations: no step is asked for them (SCHED-2)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from compiler.program.steps.action import Numbers, Steps
from compiler.program.steps.commands import Commands, Kinds, Lists, ranks_of, spread
from compiler.program.steps.statements import Statement, ranks_in
from compiler.program.timing.ticks import Ints


class StatementCommands:
    """Statements as columns, from which commands are worked out."""

    def __init__(self, asked: Steps, statements: Sequence[Statement]) -> None:
        """`asked`: the steps that the statements were found from."""
        self._asked = asked
        self._keys = [its.key for its in statements]
        kinds = Kinds()
        self._kinds = kinds.of((its.key, ()) for its in statements)
        sides = [(its.step, its.queue, its.place, its.rank) for its in statements]
        self._steps, self._queues, self._places, self._ranks = _columns(sides, 4)
        spaces = [its.space for its in statements]
        self._firsts = np.array(
            [
                -1 if space is None else space.iteration([run.first for run in its.runs])
                for space, its in zip(spaces, statements, strict=True)
            ],
            dtype=np.int64,
        )
        # by counter and statement: for how many tiles it holds, and how many iterations these are apart
        depth = max((len(its.runs) for its in statements), default=0)
        counters: list[list[tuple[int, int]]] = [[] for _ in range(depth)]
        ups: list[list[Numbers]] = [[] for _ in range(depth)]
        turns: list[list[Sequence[int]]] = [[] for _ in range(depth)]
        for space, its in zip(spaces, statements, strict=True):
            nothing = (0,) * len(its.base)
            for counter in range(depth):
                run = its.runs[counter] if space is not None and counter < len(its.runs) else None
                stride = 0 if space is None or run is None else space.strides[counter]
                counters[counter].append((1, 0) if run is None else (run.tiles, run.step * stride))
                ups[counter].append(nothing if run is None else its.rule.changes[counter].up)
                turns[counter].append(nothing if run is None else its.rule.changes[counter].turns)
        self._counters = [_columns(its, 2) for its in counters]
        self._bases = Lists.of([its.base for its in statements])
        self._others = _flat([its.rule.other for its in statements], len(self._bases.rows))
        self._ups = [_flat(its, len(self._bases.rows)) for its in ups]
        self._turns = [_flat(its, len(self._bases.rows)) for its in turns]

    def at(self, iterations: Ints, kinds: Kinds) -> Commands:
        """The commands of these iterations, ascending; -1: what is done once."""
        owners, its_iterations, places = self._tiles(iterations)
        order = self._order(owners, its_iterations)
        owners, its_iterations, places = owners[order], its_iterations[order], [its[order] for its in places]
        numbers = self._numbers(owners, places)
        return Commands(
            kinds=self._kinds_of(owners, numbers, kinds),
            numbers=numbers,
            steps=self._steps[owners],
            queues=self._queues[owners],
            iterations=its_iterations,
            ranks=self._ranks[owners],
        )

    def first(self, commands_max: int, iterations_min: int, iterations: int, kinds: Kinds) -> Commands:
        """The commands of the first of a group's iterations.

        They end with the first one after which there have been at least so many iterations, and more commands.
        """
        if iterations <= iterations_min:
            return self.at(np.arange(-1, iterations), kinds)
        span, count = iterations_min, 0
        while span < iterations and count <= commands_max:
            span = min(2 * span, iterations)
            _, found, _ = self._tiles(np.arange(-1, span))
            count = len(found)
        # by iteration how many commands there are up to it
        counts = np.cumsum(np.bincount(found + 1, minlength=span + 1))
        end = max(iterations_min, int(np.searchsorted(counts, commands_max, side="right")))
        return self.at(np.arange(-1, min(end, iterations)), kinds)

    def _tiles(self, iterations: Ints) -> tuple[Ints, Ints, list[Ints]]:
        """What statements do in these iterations: of each the statement, the iteration, and its place by counter."""
        owners, found, places = np.arange(len(self._keys)), self._firsts, list[Ints]()
        # how many iterations the counters that are still at their first value go through
        rest = [np.zeros(len(self._keys), dtype=np.int64)]
        for tiles, apart in reversed(self._counters):
            rest.append(rest[-1] + (tiles - 1) * apart)
        for counter in range(len(rest)):
            low = np.searchsorted(iterations, found)
            kept = np.searchsorted(iterations, found + rest[-1 - counter][owners], side="right") > low
            owners, found, places = owners[kept], found[kept], [its[kept] for its in places]
            if counter < len(self._counters):
                tiles, apart = self._counters[counter]
                rows, place = spread(tiles[owners])
                owners, places = owners[rows], [*(its[rows] for its in places), place]
                found = found[rows] + place * apart[owners]
        return owners, found, places

    def _order(self, owners: Ints, iterations: Ints) -> Ints:
        """The order of the commands of these statements in these iterations: by steps, and as steps say."""
        steps, places = self._steps[owners], self._places[owners]
        order = np.lexsort((places, steps, iterations))
        # where units do more or less than at the tiles from which the statements were found steps are asked for it
        width = int(steps.max(initial=0)) + 1
        is_odd = ranks_of(iterations[order] * width + steps[order]) != places[order]
        for iteration, step in np.unique(np.stack([iterations, steps])[:, order[is_odd]], axis=1).T.tolist():
            queues = [action.queue for action in self._asked.at(step, iteration)]
            stands = {pair: place for place, pair in enumerate(zip(queues, ranks_in(queues), strict=True))}
            mine = np.flatnonzero((iterations == iteration) & (steps == step))
            its = zip(self._queues[owners[mine]].tolist(), self._ranks[owners[mine]].tolist(), strict=True)
            places[mine] = [stands[pair] for pair in its]
        return np.lexsort((places, steps, iterations)) if is_odd.any() else order

    def _numbers(self, owners: Ints, places: Sequence[Ints]) -> Lists:
        """The numbers of these statements at these places of their counters."""
        which = Lists(offsets=self._bases.offsets, rows=np.arange(len(self._bases.rows))).ordered(owners)
        rows, (commands, _) = which.rows, spread(np.diff(which.offsets))
        found, flips = self._bases.rows[rows], np.zeros(len(rows), dtype=np.int64)
        for place, ups, turns in zip(places, self._ups, self._turns, strict=True):
            its = place[commands]
            found += its * ups[rows]
            flips += its * turns[rows]
        found += flips % 2 * self._others[rows]
        return Lists(offsets=which.offsets, rows=found)

    def _kinds_of(self, owners: Ints, numbers: Lists, kinds: Kinds) -> Ints:
        """The kinds of the commands of these statements, new ones numbered as they come."""
        present, first, which = np.unique(self._kinds[owners], return_index=True, return_inverse=True)
        found, order = np.empty(len(present), dtype=np.int64), np.argsort(first)
        begins, ends = (numbers.offsets[first[order] + side].tolist() for side in (0, 1))
        found[order] = kinds.of(
            (self._keys[owner], tuple(numbers.rows[begin:end].tolist()))
            for owner, begin, end in zip(owners[first[order]].tolist(), begins, ends, strict=True)
        )
        kinds_of: Ints = found[which]
        return kinds_of


def _columns(rows: Sequence[tuple[int, ...]], count: int) -> Sequence[Ints]:
    return list(np.ascontiguousarray(np.array(rows, dtype=np.int64).reshape(-1, count).T))


def _flat(lists: Sequence[Sequence[Any]], count: int) -> Ints:
    return np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=count)
