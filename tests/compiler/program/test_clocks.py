"""Vector clocks beside the plain rule: what a command waits for, and all that had ended by then (PROG-4)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.program.clocks import Clocks, clocks_of
from compiler.program.program import COMMAND, Program, Queue
from tests.compiler.program.random_programs import random_program


def plain_clocks(program: Program) -> Clocks:
    """Clock by clock, with a look at every wait."""
    clocks = np.zeros((len(program.commands) + 1, len(program.queues)), dtype=np.int32)
    last = [0] * len(program.queues)
    for command, queue in enumerate(program.commands["queue"].tolist()):
        low, high = program.wait_offsets[command : command + 2]
        rows = [last[queue], *(program.waits[low:high] + 1).tolist()]
        clocks[command + 1] = clocks[rows].max(axis=0)
        clocks[command + 1, queue] = last[queue] = command + 1
    return clocks


def with_waits(seed: int) -> Program:
    """A program of random waits, of few commands or of many, that need not be in order and may name one twice."""
    random = np.random.default_rng(seed)
    count, width = int(random.integers(1, 120)), int(random.integers(1, 9))
    counts = [int(random.integers(0, 30 if random.random() < 0.1 else 4)) if number else 0 for number in range(count)]
    waits = [random.integers(0, number, size) for number, size in enumerate(counts) if size]
    commands = np.zeros(count, dtype=COMMAND)
    commands["queue"] = random.integers(0, width, count)
    program, _ = random_program(0)
    return replace(
        program,
        queues=tuple(Queue(engine="core", number=number) for number in range(width)),
        commands=commands,
        wait_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        waits=np.concatenate([np.zeros(0, dtype=np.int64), *waits]).astype(np.int32),
    )


@pytest.mark.parametrize("seed", range(40))
def test_clocks_say_what_waits_and_queues_say(seed: int) -> None:
    program = with_waits(seed)
    assert np.array_equal(clocks_of(program), plain_clocks(program))


def test_a_program_without_commands_has_the_clock_of_its_begin() -> None:
    program = with_waits(0)
    none = np.zeros(0, dtype=np.int32)
    program = replace(program, commands=program.commands[:0], wait_offsets=np.zeros(1, dtype=np.int32), waits=none)
    assert np.array_equal(clocks_of(program), np.zeros((1, len(program.queues))))
