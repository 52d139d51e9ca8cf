"""Statements of one group as rows of loops: spaces, runs, and how their fields change (PROG-5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.program.loops.loops import (
    BINDING_ADDRESS,
    BINDING_FIELDS,
    ENTRY_START,
    ENTRY_SUM,
    MAX_COUNTERS,
    RING,
    RUN,
    SOURCE_ADDRESS,
    TARGET_ADDRESS,
    TERM,
)
from compiler.program.steps.action import Copy, Space
from compiler.program.steps.commands import Lists
from compiler.program.steps.statements import Statement
from compiler.program.timing.ticks import Flags, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoopRows:
    """How a group's statements loop, in whatever order they come.

    `spaces`: the counters of statements; None stands for statements that run once, before the loop. By statement: the
    number of its space, whether that is None, whether it has no counters, and the last iteration in which it holds.
    """

    spaces: Sequence[Space | None]
    space_of: Ints
    is_once: Flags
    is_single: Flags
    lasts: Ints
    runs: Lists
    terms: Lists
    rings: Lists

    @property
    def tiles(self) -> Ints:
        """By statement for how many tiles it holds."""
        found = np.ones(len(self.space_of), dtype=np.int64)
        np.multiply.at(found, np.repeat(np.arange(len(found)), np.diff(self.runs.offsets)), self.runs.rows["count"])
        return found

    def holds(self, statements: Ints, iterations: Ints) -> Flags:
        """Whether each of some statements holds for the tile of an iteration, -1: what is done once."""
        spaces = self.space_of[statements]
        rest = iterations - np.array([-1 if its is None else its.base for its in self.spaces], dtype=np.int64)[spaces]
        found: Flags = rest >= 0
        for counter in range(max((len(its.counts) for its in self.spaces if its is not None), default=0)):
            sides = [
                (1, 0) if its is None or counter >= len(its.counts) else (its.counts[counter], its.strides[counter])
                for its in self.spaces
            ]
            counts, strides = np.array(sides, dtype=np.int64)[spaces].T
            # a counter of one value is 0
            values = np.where(counts > 1, rest // np.maximum(1, strides), 0)
            rest = rest - values * strides
            at = self.runs.offsets[statements] + counter
            is_there = at < self.runs.offsets[statements + 1]
            runs = self.runs.rows[at[is_there]]
            places, odd = np.divmod(values[is_there] - runs["first"], runs["step"])
            found[is_there] &= (odd == 0) & (places >= 0) & (places < runs["count"])
        found &= rest == 0
        return found


def loop_rows_of(statements: Sequence[Statement]) -> LoopRows:
    """The rows of these statements."""
    numbers: dict[Space | None, int] = {}
    space_of = np.array([numbers.setdefault(its.space, len(numbers)) for its in statements], dtype=np.int64)
    spaces = list(numbers)
    runs = Lists.of([its.runs for its in statements], RUN)
    fields: dict[Any, list[int]] = {}
    terms, rings = [], []
    for its in statements:
        known = fields.get(its.key)
        if known is None:
            known = fields[its.key] = _fields(its)
        terms.append(_terms(its, known))
        rings.append(_rings(its, known))
    strides = np.array([padded(() if its is None else its.strides, 0) for its in spaces], dtype=np.int64)
    bases = np.array([-1 if its is None else its.base for its in spaces], dtype=np.int64)
    owners = np.repeat(np.arange(len(statements)), np.diff(runs.offsets))
    slots = np.arange(len(owners)) - runs.offsets[owners]
    ends = (runs.rows["first"] + runs.rows["step"] * (runs.rows["count"] - 1)) * strides[space_of[owners], slots]
    lasts = bases[space_of]
    np.add.at(lasts, owners, ends)
    return LoopRows(
        spaces=spaces,
        space_of=space_of,
        is_once=np.array([its is None for its in spaces], dtype=np.bool_)[space_of],
        is_single=np.array([its is None or not its.counts for its in spaces], dtype=np.bool_)[space_of],
        lasts=lasts,
        runs=runs,
        terms=Lists.of(terms, TERM),
        rings=Lists.of(rings, RING),
    )


def single_rows(count: int) -> LoopRows:
    """So many statements that are done once each, in one space without counters."""
    return LoopRows(
        spaces=[Space((), (), 0)],
        space_of=np.zeros(count, dtype=np.int64),
        is_once=np.zeros(count, dtype=np.bool_),
        is_single=np.ones(count, dtype=np.bool_),
        lasts=np.zeros(count, dtype=np.int64),
        runs=Lists.none(count, RUN),
        terms=Lists.none(count, TERM),
        rings=Lists.none(count, RING),
    )


def padded(values: tuple[int, ...], rest: int) -> tuple[int, ...]:
    """The values of all counters that a space may have; `rest`: of those that it does not have."""
    return (*values, *(rest,) * (MAX_COUNTERS - len(values)))


def strides_of(space: Space) -> tuple[int, ...]:
    """Strides of a space's counters, of those with one value too: as many iterations as the counters inside take."""
    found, span = [], 1
    for count, stride in reversed(list(zip(space.counts, space.strides, strict=True))):
        found.append(span if count == 1 else stride)
        span += (count - 1) * found[-1]
    return tuple(reversed(found))


def _fields(statement: Statement) -> list[int]:
    """The field of each of a statement's numbers."""
    key = statement.key
    if isinstance(key, Copy):
        return [SOURCE_ADDRESS, TARGET_ADDRESS]
    found = [*(ENTRY_START + axis for axis in range(len(key.lengths))), ENTRY_SUM]
    for number, bound in enumerate(key.bound):
        first = BINDING_ADDRESS + number * BINDING_FIELDS
        found += range(first, first + 1 + len(bound.lengths))
    return found


def _terms(statement: Statement, fields: Sequence[int]) -> list[tuple[int, int, int]]:
    return sorted(
        [
            (field, counter, up)
            for counter, change in enumerate(statement.rule.changes)
            for field, up in zip(fields, change.up, strict=True)
            if up
        ]
    )


def _rings(statement: Statement, fields: Sequence[int]) -> list[tuple[Any, ...]]:
    """The fields that change between two buffers: by the places of counters in their runs, as their values say."""
    found: list[tuple[Any, ...]] = []
    if not any(statement.rule.other):
        return found
    for number, (field, size) in enumerate(zip(fields, statement.rule.other, strict=True)):
        if not size:
            continue
        turning = [change.turns[number] for change in statement.rule.changes]
        if any(turning):
            base, coefficients = 0, []
            for run, turns in zip(statement.runs, turning, strict=True):
                # the place is (value - first) / step; steps of runs that turn are odd, so its parity is value - first's
                coefficients.append(int(turns))
                base -= run.first if turns else 0
            found.append((field, 2, size, base % 2, padded(tuple(coefficients), 0)))
    return found
