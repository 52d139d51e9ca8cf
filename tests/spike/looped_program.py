"""The spike's statements as a looped program."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
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
    LoopedProgram,
    Loops,
)
from compiler.program.program import Program
from tests.spike.expand import firsts_of
from tests.spike.statements import ENTRY, Looped, Statement, Wait, with_rings


def looped_program_of(found: Looped) -> LoopedProgram:
    """The same statements in the order of an iteration."""
    statements = sorted(found.statements, key=lambda s: (s.order, s.place, s.queue))
    program = firsts_of(replace(found, statements=statements))
    _leave_out_rings(program, statements)
    spaces: list[Any] = []
    numbers: dict[Any, int] = {}
    rows: list[tuple[int, int]] = []
    runs, terms, rings = _Lists(), _Lists(), _Lists()
    for statement in statements:
        unit = statement.unit
        if id(unit) not in numbers:
            numbers[id(unit)] = len(spaces)
            counts, strides = ((), ()) if unit is None else (unit.counts, unit.strides())
            # a counter of one value has no stride in the spike
            strides = tuple(max(1, stride) for stride in strides)
            base = found.entry if unit is None else unit.lag
            spaces.append((0, len(counts), base, _padded(counts, 1), _padded(strides, 0)))
        rows.append((numbers[id(unit)], statement.stage))
        runs.add([tuple(run) for run in statement.runs])
        terms.add(_terms(statement))
        rings.add(_rings(statement))
    waits = _waits(statements)
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
    offsets = np.cumsum([0, *map(len, waits)]).astype(np.int32)
    named = np.array([number for its in waits for number, _ in its], dtype=np.int32)
    return LoopedProgram(program=replace(program, waits=named, wait_offsets=offsets), loops=loops)


def _leave_out_rings(program: Program, statements: list[Statement]) -> None:
    """Take from addresses what rings add to them at the first tile."""
    for statement, row in zip(statements, program.commands, strict=True):
        if statement.unit is None:
            continue
        numbers = with_rings(statement.key, statement.base, [run.first for run in statement.runs])
        added = [number - base for number, base in zip(numbers, statement.base, strict=True)]
        for field, offset in zip(_fields(statement), added, strict=True):
            if field in (SOURCE_ADDRESS, TARGET_ADDRESS):
                row["source_address" if field == SOURCE_ADDRESS else "target_address"] -= offset
            elif field >= BINDING_ADDRESS:
                binding, part = divmod(field - BINDING_ADDRESS, BINDING_FIELDS)
                assert part == 0 or offset == 0
                if part == 0:
                    program.bindings[program.calls[row["call"]]["first"] + binding]["address"] -= offset


class _Lists:
    """Rows of all statements, and where each one's begin."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._sizes = [0]

    def add(self, rows: list[Any]) -> None:
        """Those of the next statement."""
        self.rows += rows
        self._sizes.append(len(rows))

    def offsets(self) -> Any:
        """Where each statement's rows begin."""
        return np.cumsum(self._sizes).astype(np.int32)


def _padded(values: tuple[int, ...], rest: int) -> tuple[int, ...]:
    return (*values, *(rest,) * (MAX_COUNTERS - len(values)))


def _fields(statement: Statement) -> list[int]:
    """The field of each of a statement's numbers."""
    key = statement.key
    if key[0] == "copy":
        return [SOURCE_ADDRESS, TARGET_ADDRESS]
    found = [ENTRY_START + axis for axis in range(len(key[5]))]
    for number, bound in enumerate(key[-1]):
        first = BINDING_ADDRESS + number * BINDING_FIELDS
        found += range(first, first + 1 + len(bound[2]))
    return found


def _terms(statement: Statement) -> list[tuple[int, int, int]]:
    fields = _fields(statement)
    found = []
    for counter, coefficients in enumerate(statement.coefficients):
        found += [(field, counter, c) for field, c in zip(fields, coefficients, strict=True) if c]
    return sorted(found)


def _rings(statement: Statement) -> list[Any]:
    key = statement.key
    if key[0] == "copy":
        pairs = list(zip((SOURCE_ADDRESS, TARGET_ADDRESS), key[-2:], strict=True))
    else:
        pairs = [(BINDING_ADDRESS + n * BINDING_FIELDS, bound[-1]) for n, bound in enumerate(key[-1])]
    found = []
    for field, ring in pairs:
        if ring is not None:
            delta, coefficients, base = ring
            found.append((field, 2, delta, base, _padded(coefficients, 0)))
    return found


def _waits(statements: list[Statement]) -> list[list[tuple[int, int]]]:
    """Per statement the statements that it waits for, with distances."""
    by_queue: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for number, statement in enumerate(statements):
        by_queue[statement.queue, statement.unit is None].append(number)

    def named(statement: Statement, wait: Wait) -> tuple[int, int] | None:
        is_entry = wait.position.iteration <= ENTRY
        its = by_queue[wait.queue, is_entry]
        past = [n for n in its if (statements[n].order, statements[n].place) <= wait.position[1:]]
        distance = 0 if is_entry else -(statement.stage + wait.position.iteration)
        if past:
            return past[-1], distance
        return None if is_entry or not its else (its[-1], distance + 1)

    found = []
    for statement in statements:
        latest: dict[tuple[int, bool], tuple[int, int]] = {}
        for wait in statement.waits:
            its = named(statement, wait)
            if its is not None:
                latest[wait.queue, wait.position.iteration <= ENTRY] = its
        found.append(sorted(latest.values()))
    return found
