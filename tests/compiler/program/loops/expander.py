"""A program command by command, in plain Python: what is said of loops has to hold of this."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from compiler.program.loops.loops import (
    BINDING_ADDRESS,
    BINDING_FIELDS,
    ENTRY_START,
    ENTRY_SUM,
    SOURCE_ADDRESS,
    TARGET_ADDRESS,
)
from compiler.program.program import BINDING, CALL, COMMAND, ENTRY, Program


class Instance(NamedTuple):
    """One command: where it stands in its engine's order (nest, iteration, statement), and its tile's counters."""

    nest: int
    iteration: int
    statement: int
    counters: tuple[int, ...]


def instances_of(program: Program) -> list[Instance]:
    """All commands, iteration by iteration."""
    loops, found = program.loops, []
    for number, (space_number, stage) in enumerate(loops.statements.tolist()):
        space = loops.spaces[space_number]
        count = int(space["counters"])
        runs = loops.runs[loops.run_offsets[number] : loops.run_offsets[number + 1]].tolist()
        assert len(runs) == count
        strides = space["strides"].tolist()[:count]
        for counters in product(*(range(first, first + step * n, step) for first, step, n in runs)):
            tile = int(space["base"]) + sum(c * s for c, s in zip(counters, strides, strict=True))
            found.append(Instance(int(space["nest"]), tile - stage, number, counters))
    return sorted(found)


def fields_at(program: Program, number: int, counters: tuple[int, ...]) -> dict[int, int]:
    """How much each field that changes differs from what the statement's row says."""
    loops = program.loops
    runs = loops.runs[loops.run_offsets[number] : loops.run_offsets[number + 1]].tolist()
    places = [(c - first) // step for c, (first, step, _) in zip(counters, runs, strict=True)]
    found: dict[int, int] = defaultdict(int)
    for field, counter, coefficient in loops.terms[
        loops.term_offsets[number] : loops.term_offsets[number + 1]
    ].tolist():
        found[field] += places[counter] * coefficient
    for ring in loops.rings[loops.ring_offsets[number] : loops.ring_offsets[number + 1]].tolist():
        field, modulus, size, base, coefficients = ring
        turn = base + sum(c * value for c, value in zip(coefficients, counters, strict=False))
        found[field] += size * (turn % modulus)
    return found


def expanded(program: Program) -> Program:
    """The program without loops."""
    loops = program.loops
    order = instances_of(program)
    spaces = loops.spaces["counters"][loops.statements["space"]].tolist()
    nests = loops.spaces["nest"][loops.statements["space"]].tolist()
    last: dict[int, int] = {}
    positions: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    numbers: dict[int, list[int]] = defaultdict(list)
    queues = program.commands["queue"].tolist()
    for number, its in enumerate(order):
        positions[queues[its.statement]].append(its[:3])
        numbers[queues[its.statement]].append(number)
        last[its.statement] = its.iteration
    commands = np.zeros(len(order), dtype=COMMAND)
    calls: list[tuple[Any, ...]] = []
    bindings: list[Any] = []
    entries: list[list[Any]] = [[] for _ in program.tables]
    waits, offsets = [], [0]
    for number, its in enumerate(order):
        commands[number] = program.commands[its.statement]
        changes = fields_at(program, its.statement, its.counters)
        commands[number]["source_address"] += changes.get(SOURCE_ADDRESS, 0)
        commands[number]["target_address"] += changes.get(TARGET_ADDRESS, 0)
        call_number = int(program.commands[its.statement]["call"])
        if call_number >= 0:
            call = program.calls[call_number]
            entry = program.tables[call["table"]].entries[call["entry"]].copy()
            for axis in range(len(entry["starts"])):
                entry["starts"][axis] += changes.get(ENTRY_START + axis, 0)
            for name in ("sum_start", "sum_stop"):
                entry[name] += changes.get(ENTRY_SUM, 0)
            commands[number]["call"] = len(calls)
            calls.append((call["table"], len(entries[call["table"]]), len(bindings), call["count"]))
            entries[call["table"]].append(entry)
            for place in range(int(call["count"])):
                bound = program.bindings[call["first"] + place].copy()
                field = BINDING_ADDRESS + place * BINDING_FIELDS
                bound["address"] += changes.get(field, 0)
                for axis in range(len(bound["starts"])):
                    bound["starts"][axis] += changes.get(field + 1 + axis, 0)
                bindings.append(bound)
        waited = set()
        begin, stop = program.wait_offsets[its.statement : its.statement + 2].tolist()
        for name, distance in zip(
            program.waits[begin:stop].tolist(), loops.distances[begin:stop].tolist(), strict=True
        ):
            iteration = its.iteration if nests[name] == its.nest and spaces[name] else last[name]
            iteration -= distance if spaces[name] or nests[name] != its.nest else 0
            queue = queues[name]
            past = bisect_right(positions[queue], (nests[name], iteration, name))
            if past:
                waited.add(numbers[queue][past - 1])
        waits += sorted(waited)
        offsets.append(len(waits))
    tables = tuple(
        replace(table, entries=np.array(its, dtype=ENTRY)) for table, its in zip(program.tables, entries, strict=True)
    )
    changed = replace(
        program, calls=np.array(calls, dtype=CALL), bindings=np.array(bindings, dtype=BINDING), tables=tables
    )
    return changed.once(commands, np.array(offsets, dtype=np.int32), np.array(waits, dtype=np.int32))
