"""Programs of one chip one after another: nest after nest, with waits from each nest to those before."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np

from compiler.program.loops.loops import Loops
from compiler.program.program import ParameterTable, Program, Rows, Step, Unit


def appended(parts: list[Program], waits: int, seed: int) -> Program:
    """All of them, group g0, g1, ... each, and so many waits at random of statements for some of a nest before."""
    loops = [part.loops for part in parts]
    assert len({program.queues for program in parts}) == 1
    counts = [len(program.commands) for program in parts]
    firsts = [0, *accumulate(counts)]
    commands: list[Rows] = []
    calls: list[Rows] = []
    tables: list[ParameterTable] = []
    units: list[Unit] = []
    steps: list[Step] = []
    bindings = 0
    for number, program in enumerate(parts):
        rows, called = program.commands.copy(), program.calls.copy()
        rows["call"] += np.where(rows["call"] >= 0, sum(len(its) for its in calls), 0)
        rows["step"] += len(steps)
        called["table"] += len(tables)
        called["first"] += bindings
        bindings += len(program.bindings)
        tables += [replace(table, unit=table.unit + len(units)) for table in program.tables]
        units += program.units
        steps += [Step(group=f"g{number}", nodes=step.nodes, tensor=step.tensor) for step in program.steps]
        commands.append(rows)
        calls.append(called)
    spaces = [its.spaces.copy() for its in loops]
    statements = [its.statements.copy() for its in loops]
    for number, rows in enumerate(spaces):
        rows["nest"] = number
        statements[number]["space"] += sum(len(its) for its in spaces[:number])
    named: list[list[tuple[int, int]]] = []
    for first, part in zip(firsts, parts, strict=False):
        pairs = list(zip((part.waits + first).tolist(), part.loops.distances.tolist(), strict=True))
        offsets = part.wait_offsets
        named += [pairs[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    random = np.random.default_rng(seed)
    for _ in range(waits):
        later = int(random.integers(1, len(parts)))
        waiter = firsts[later] + int(random.integers(counts[later]))
        named[waiter].append((int(random.integers(firsts[later])), int(random.integers(4))))
    return replace(
        parts[0],
        steps=tuple(steps),
        commands=np.concatenate(commands),
        waits=np.array([statement for its in named for statement, _ in its], dtype=np.int32),
        wait_offsets=np.cumsum([0, *map(len, named)]).astype(np.int32),
        calls=np.concatenate(calls),
        bindings=np.concatenate([program.bindings for program in parts]),
        units=tuple(units),
        tables=tuple(tables),
        loops=Loops(
            spaces=np.concatenate(spaces),
            statements=np.concatenate(statements),
            distances=np.array([distance for its in named for _, distance in its], dtype=np.int64),
            **_lists(loops),
        ),
    )


def _lists(loops: list[Loops]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("run", "term", "ring"):
        rows = [getattr(its, f"{name}s") for its in loops]
        sizes = [np.diff(getattr(its, f"{name}_offsets")) for its in loops]
        found[f"{name}s"] = np.concatenate(rows)
        found[f"{name}_offsets"] = np.append(0, np.cumsum(np.concatenate(sizes))).astype(np.int32)
    return found
