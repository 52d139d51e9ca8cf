"""The groups of a segment as one program: their nests, in the order in which engines go through them (PROG-5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from compiler.lazy import lazy
from compiler.program.loops.loops import SPACE, STATEMENT, Loops
from compiler.program.program import Rows
from compiler.program.steps.commands import Lists, slots_of
from compiler.program.steps.loop_rows import LoopRows, padded, strides_of
from compiler.program.steps.rows import CommandRows, joined
from compiler.program.timing.ticks import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupStatements:
    """A group's statements as rows, in whatever order they come.

    By statement its kind, those of the segment counted from `first_kind` on, its node in the segment, its place among
    what its step does in an iteration, and its number (`ranks`) among what its engine does of that. `iterations`: how
    many the group has. `is_listed`: each statement is a command of its own, as in `Conflicts.commands`.
    """

    number: int
    rows: CommandRows
    kinds: Ints
    first_kind: int
    loops: LoopRows
    nodes: Ints
    places: Ints
    ranks: Ints
    iterations: int
    is_listed: bool

    @property
    def samples(self) -> Ints:
        """By statement the number of its kind in the segment."""
        return self.kinds + self.first_kind

    @property
    def slots(self) -> Ints:
        """What tells the statements of a node that hold in one iteration apart, as that of commands."""
        return slots_of(self.kinds, self.ranks)


@dataclass(frozen=True, kw_only=True, eq=False)
class OrderedGroup:
    """A group on its way into a program. `order`: its statements as they come; by statement its stage."""

    group: GroupStatements
    order: Ints
    stages: Ints

    @lazy
    def places(self) -> Ints:
        """By statement its place in the order."""
        found = np.empty(len(self.order), dtype=np.int64)
        found[self.order] = np.arange(len(self.order))
        return found


def begin_of(its: OrderedGroup) -> int:
    """The iteration in which statements without a loop run: not after the first iteration of those that loop."""
    return -int(its.stages[~its.group.loops.is_once].max(initial=0))


class Waits(NamedTuple):
    """Waits in no order: statements that wait and statements waited for, both by places in the program, distances."""

    owners: Ints
    names: Ints
    distances: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assembled:
    """Rows in the order of the program, what they wait for, and how they loop."""

    rows: CommandRows
    wait_offsets: Rows
    waits: Rows
    loops: Loops


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OrderedSegment:
    """The groups of a segment on their way into a program.

    `nests`: by group the number of its nest, ascending; neighbours may share one. `places`: by statement its place in
    the program. Statements are numbered group by group, in the order of each.
    """

    groups: Sequence[OrderedGroup]
    nests: Ints
    places: Ints

    @classmethod
    def of(cls, group: OrderedGroup) -> OrderedSegment:
        """A group by itself."""
        return cls(groups=[group], nests=np.zeros(1, dtype=np.int64), places=np.arange(len(group.order)))

    @property
    def firsts(self) -> Ints:
        """By group the number of its first statement, and how many there are."""
        return np.append(0, np.cumsum([len(its.order) for its in self.groups])).astype(np.int64)

    @property
    def samples(self) -> Ints:
        """By place in the program the number of the statement's kind in the segment."""
        samples = [its.group.samples[its.order] for its in self.groups]
        found: Ints = np.concatenate(samples)[np.argsort(self.places)]
        return found


def assemble(segment: OrderedSegment, waits: Waits) -> Assembled:
    """The statements of a segment's groups; `waits`: of all of them, by places in the program."""
    offsets, names, loops = loops_of(segment, waits)
    order = np.concatenate([first + its.order for first, its in zip(segment.firsts, segment.groups, strict=False)])
    rows = joined([its.group.rows for its in segment.groups], order[np.argsort(segment.places)])
    return Assembled(rows=rows, wait_offsets=offsets, waits=names, loops=loops)


def loops_of(segment: OrderedSegment, waits: Waits) -> tuple[Rows, Rows, Loops]:
    """The waits of all statements, as offsets and names, and how statements loop."""
    spaces: list[Any] = []
    space_of, stages = [], []
    groups, turns = segment.groups, np.argsort(segment.places)
    for nest, its in zip(segment.nests.tolist(), groups, strict=True):
        loops, first = its.group.loops, len(spaces)
        begin = begin_of(its)
        for space in loops.spaces:
            if space is None:
                spaces.append((nest, 0, begin, padded((), 1), padded((), 0)))
            else:
                sides = padded(space.counts, 1), padded(strides_of(space), 0)
                spaces.append((nest, len(space.counts), space.base, *sides))
        space_of.append(first + loops.space_of[its.order])
        stages.append(its.stages[its.order])
    runs, terms, rings = (
        Lists.joined([getattr(its.group.loops, name).ordered(its.order) for its in groups]).ordered(turns)
        for name in ("runs", "terms", "rings")
    )
    statements = np.zeros(len(runs.offsets) - 1, dtype=STATEMENT)
    statements["space"], statements["stage"] = np.concatenate(space_of)[turns], np.concatenate(stages)[turns]
    order = np.lexsort((waits.names, waits.owners))
    offsets = np.append(0, np.cumsum(np.bincount(waits.owners, minlength=len(statements))))
    found = Loops(
        spaces=np.array(spaces, dtype=SPACE),
        statements=statements,
        run_offsets=runs.offsets.astype(np.int32),
        runs=runs.rows,
        term_offsets=terms.offsets.astype(np.int32),
        terms=terms.rows,
        ring_offsets=rings.offsets.astype(np.int32),
        rings=rings.rows,
        distances=waits.distances[order],
    )
    return offsets.astype(np.int32), waits.names[order].astype(np.int32), found
