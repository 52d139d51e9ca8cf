"""The groups of a segment as one looped program: a nest each, in the order in which engines go through it (PROG-5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.program.loops.loops import (
    BINDING_ADDRESS,
    BINDING_FIELDS,
    ENTRY_START,
    MAX_COUNTERS,
    RING,
    RUN,
    SOURCE_ADDRESS,
    SPACE,
    STATEMENT,
    TARGET_ADDRESS,
    TERM,
    Loops,
)
from compiler.program.program import Rows
from compiler.program.steps.action import Copy, Space, Steps
from compiler.program.steps.conflicts import Node
from compiler.program.steps.order import GroupOrder
from compiler.program.steps.statements import Statement


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OrderedGroup:
    """A group on its way into a program: its number in the segment, its steps, their statements, its loop's order."""

    number: int
    steps: Steps
    statements: Sequence[Statement]
    order: GroupOrder


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assembled:
    """Statements in the order of the program, what they wait for, and how they loop."""

    statements: Sequence[Statement]
    wait_offsets: Rows
    waits: Rows
    loops: Loops


def assemble(groups: Sequence[OrderedGroup]) -> Assembled:
    """The statements of groups that are worked on one after another; nothing is waited for of groups left out."""
    spaces: list[Any] = []
    runs, terms, rings = _Lists(), _Lists(), _Lists()
    rows: list[tuple[int, int]] = []
    ordered: list[Statement] = []
    named: dict[int, _Named] = {}
    for nest, group in enumerate(groups):
        turns, number = group.order.turns, group.number
        its = sorted(group.statements, key=lambda s: (turns[_node(number, s)].order, s.place, s.queue))
        space_of = _spaces(nest, group, spaces)
        named[number] = _Named(group, len(ordered), its)
        for statement in its:
            rows.append((space_of[statement.space], turns[_node(number, statement)].stage))
            runs.add([tuple(run) for run in statement.runs])
            terms.add(_terms(statement))
            rings.add(_rings(statement))
        ordered += its
    waits = [
        _waits(named, its, statement, place)
        for its in named.values()
        for place, statement in enumerate(its.statements, its.first)
    ]
    loops = Loops(
        spaces=np.array(spaces, dtype=SPACE),
        statements=np.array(rows, dtype=STATEMENT),
        run_offsets=runs.offsets(),
        runs=np.array(runs.rows, dtype=RUN),
        term_offsets=terms.offsets(),
        terms=np.array(terms.rows, dtype=TERM),
        ring_offsets=rings.offsets(),
        rings=np.array(rings.rows, dtype=RING),
        distances=np.array([distance for its in waits for _, distance in its], dtype=np.int64),
    )
    return Assembled(
        statements=ordered,
        wait_offsets=np.cumsum([0, *map(len, waits)]).astype(np.int32),
        waits=np.array([name for its in waits for name, _ in its], dtype=np.int32),
        loops=loops,
    )


def _node(group: int, statement: Statement) -> Node:
    return Node(group, statement.step, statement.queue)


class _Lists:
    """Rows of all statements, and where each one's begin."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._sizes = [0]

    def add(self, rows: list[Any]) -> None:
        """Those of the next statement."""
        self.rows += rows
        self._sizes.append(len(rows))

    def offsets(self) -> Rows:
        """Where each statement's rows begin."""
        return np.cumsum(self._sizes).astype(np.int32)


def _spaces(nest: int, group: OrderedGroup, spaces: list[Any]) -> dict[Space | None, int]:
    """Enter a group's spaces and return their numbers; None: of what is done once."""
    turns = group.order.turns
    stages = [turns[_node(group.number, s)].stage for s in group.statements if s.space is not None]
    found: dict[Space | None, int] = {}
    if any(statement.space is None for statement in group.statements):
        found[None] = len(spaces)
        # no later than the first iteration of what loops
        spaces.append((nest, 0, -max([0, *stages]), _padded((), 1), _padded((), 0)))
    for space in dict.fromkeys(statement.space for statement in group.statements):
        if space is None:
            continue
        found[space] = len(spaces)
        spaces.append((nest, len(space.counts), space.base, _padded(space.counts, 1), _padded(_strides(space), 0)))
    return found


def _strides(space: Space) -> tuple[int, ...]:
    """Strides of a space's counters, of those with one value too: as many iterations as the counters inside take."""
    found, span = [], 1
    for count, stride in reversed(list(zip(space.counts, space.strides, strict=True))):
        found.append(span if count == 1 else stride)
        span += (count - 1) * found[-1]
    return tuple(reversed(found))


def _padded(values: tuple[int, ...], rest: int) -> tuple[int, ...]:
    return (*values, *(rest,) * (MAX_COUNTERS - len(values)))


# --- fields -----------------------------------------------------------------------------------------------------------


def _fields(statement: Statement) -> list[int]:
    """The field of each of a statement's numbers."""
    key = statement.key
    if isinstance(key, Copy):
        return [SOURCE_ADDRESS, TARGET_ADDRESS]
    found = [ENTRY_START + axis for axis in range(len(key.lengths))]
    for number, bound in enumerate(key.bound):
        first = BINDING_ADDRESS + number * BINDING_FIELDS
        found += range(first, first + 1 + len(bound.lengths))
    return found


def _terms(statement: Statement) -> list[tuple[int, int, int]]:
    fields = _fields(statement)
    return sorted(
        (field, counter, up)
        for counter, change in enumerate(statement.rule.changes)
        for field, up in zip(fields, change.up, strict=True)
        if up
    )


def _rings(statement: Statement) -> list[tuple[Any, ...]]:
    """The fields that change between two buffers: by the places of counters in their runs, as their values say."""
    found = []
    for number, (field, size) in enumerate(zip(_fields(statement), statement.rule.other, strict=True)):
        turning = [change.turns[number] for change in statement.rule.changes]
        if size and any(turning):
            base, coefficients = 0, []
            for run, turns in zip(statement.runs, turning, strict=True):
                # the place is (value - first) / step; steps of runs that turn are odd, so its parity is value - first's
                coefficients.append(int(turns))
                base -= run.first if turns else 0
            found.append((field, 2, size, base % 2, _padded(tuple(coefficients), 0)))
    return found


# --- waits ------------------------------------------------------------------------------------------------------------


class _Named:
    """The statements of a group by node, in their order: numbers in the program, and places in their steps."""

    def __init__(self, group: OrderedGroup, first: int, statements: Sequence[Statement]) -> None:
        self.group, self.first, self.statements = group, first, statements
        self.by_node: dict[Node, list[tuple[int, int]]] = defaultdict(list)
        for number, statement in enumerate(statements, first):
            self.by_node[_node(group.number, statement)].append((statement.place, number))


def _waits(named: Mapping[int, _Named], mine: _Named, statement: Statement, place: int) -> list[tuple[int, int]]:
    """The statements that one waits for, with distances: of each engine, nest and kind of space the latest."""
    order, number = mine.group.order, mine.group.number
    node = _node(number, statement)
    stage = order.turns[node].stage
    latest: dict[tuple[int, int, bool], tuple[int, int, int]] = {}
    for wait in order.waits.get(node, ()):
        before = named.get(wait.node.group)
        if before is None:
            continue
        its = before.by_node[wait.node]
        distance, name = wait.distance, its[-1][1]
        space = before.statements[name - before.first].space
        is_once = space is None or not space.counts
        if before is not mine and not is_once:
            name, distance, position = _in_nest_before(before, its, distance)
        else:
            if before is mine and wait.node.step == node.step and not distance:
                # of its own step what stands before it, or else all of the iteration before
                past = [name for its_place, name in its if its_place < statement.place]
                if is_once and not past:
                    continue
                distance, name = (0, past[-1]) if past else (1, name)
            if not is_once:
                distance += order.turns[wait.node].stage - stage
                assert distance > 0 or (distance == 0 and name < place)
                position = -distance
            else:
                distance, position = 0, (0 if space is None else space.base) - before.group.order.turns[wait.node].stage
        key = wait.node.group, wait.node.queue, is_once
        latest[key] = max(latest.get(key, (-(1 << 62), 0, 0)), (position, name, distance))
    return sorted((name, distance) for _, name, distance in latest.values())


def _in_nest_before(before: _Named, its: Sequence[tuple[int, int]], distance: int) -> tuple[int, int, int]:
    """Of a node in a nest before the statement to wait for, the distance from its last iteration, and the iteration."""
    lasts = {}
    for _, name in its:
        statement = before.statements[name - before.first]
        assert statement.space is not None
        lasts[name] = statement.space.iteration([run.last for run in statement.runs])
    stage = before.group.order.turns[_node(before.group.number, statement)].stage
    wanted, name = before.group.steps.iterations - 1 - distance, its[-1][1]
    if lasts[name] >= wanted:
        return name, lasts[name] - wanted, wanted - stage
    # the last one of the node ends before: all of it
    name = max(lasts, key=lambda name: (lasts[name], name))
    return name, 0, lasts[name] - stage
