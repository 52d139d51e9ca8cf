"""Programs whose loops and waits are drawn at random: what no lowering emits, but the form allows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from compiler.program.loops.loops import MAX_COUNTERS, RING, RUN, SPACE, STATEMENT, TERM, Loops
from compiler.program.program import Program


def arbitrary_loops(base: Program, seed: int, *, nests: int = 2, statements: int = 6) -> Program:
    """Commands of a program in `nests` nests of up to `statements` statements each, in loops of up to 96 tiles."""
    random = np.random.default_rng(seed)

    def pick(low: int, high: int) -> int:
        return int(random.integers(low, high + 1))

    spaces: list[Any] = []
    rows: list[Any] = []
    runs: list[list[tuple[int, int, int]]] = []
    begins: list[int] = []
    for nest in range(nests):
        first_space = len(spaces)
        for _ in range(pick(1, 3)):
            extents = [pick(2, 24), pick(1, 4)][: pick(1, 2)]
            inner = 1 if len(extents) == 1 else extents[1] + pick(0, 1)
            strides = [inner, 1][: len(extents)]
            rest = MAX_COUNTERS - len(extents)
            spaces.append((nest, len(extents), pick(0, 2), (*extents, *(1,) * rest), (*strides, *(0,) * rest)))
        spaces.append((nest, 0, pick(0, 20), (1,) * MAX_COUNTERS, (0,) * MAX_COUNTERS))
        for _ in range(pick(1, statements)):
            number = pick(first_space, len(spaces) - 1) if random.random() < 0.2 else pick(first_space, len(spaces) - 2)
            _, counters, begin, extents, strides = spaces[number]
            stage, its = pick(-2, 2), []
            for extent in extents[:counters]:
                first, step = (0, 1) if random.random() < 0.6 else (pick(0, extent - 1), pick(1, 2))
                its.append((first, step, pick(1, 1 + (extent - 1 - first) // step) if first else -(-extent // step)))
            rows.append((number, stage))
            runs.append(its)
            values = zip(its, strides, strict=False)
            begins.append(begin - stage + sum(first * stride for (first, _, _), stride in values))
    count = len(rows)
    commands = base.commands[random.integers(len(base.commands), size=count)]
    named = [_waits(random, spaces, rows, begins, number) for number in range(count)]
    none = np.zeros(count + 1, dtype=np.int32)
    loops = Loops(
        spaces=np.array(spaces, dtype=SPACE),
        statements=np.array(rows, dtype=STATEMENT),
        run_offsets=np.cumsum([0, *map(len, runs)]).astype(np.int32),
        runs=np.array([run for its in runs for run in its], dtype=RUN),
        term_offsets=none,
        terms=np.zeros(0, dtype=TERM),
        ring_offsets=none,
        rings=np.zeros(0, dtype=RING),
        distances=np.array([distance for its in named for _, distance in its], dtype=np.int64),
    )
    return replace(
        base,
        commands=commands,
        waits=np.array([statement for its in named for statement, _ in its], dtype=np.int32),
        wait_offsets=np.cumsum([0, *map(len, named)]).astype(np.int32),
        loops=loops,
    )


def _waits(random: Any, spaces: list[Any], rows: list[Any], begins: list[int], number: int) -> list[tuple[int, int]]:
    """Up to three waits of a statement, none of them for what comes after it."""
    nest, found = spaces[rows[number][0]][0], []
    for _ in range(int(random.integers(4))):
        other = int(random.integers(len(rows)))
        its_nest, counters, *_ = spaces[rows[other][0]]
        distance = int(random.integers(4))
        is_later = counters == 0 and (begins[other], other) >= (begins[number], number)
        if its_nest > nest or (its_nest == nest and is_later):
            continue
        found.append((other, distance if its_nest < nest or other < number else max(1, distance)))
    return found
