"""The judge of accesses beside one that looks at every byte of every access at once (PROG-4)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

from compiler.program.accesses import Kind
from compiler.program.errors import ProgramError
from compiler.program.judge import Judge
from compiler.program.shadow import Shadow, Windows

_BYTES = 64
_QUEUES = 3
Layout = tuple[int, tuple[int, ...], tuple[int, ...]]


@dataclass(kw_only=True)
class Sequence:
    """Random accesses of one memory: by access its kind, command and layout; queues and clocks of the commands."""

    kinds: list[Kind]
    commands: list[int]
    layouts: list[Layout]
    queues: list[int]
    calls: list[bool]
    clocks: Any

    @classmethod
    def drawn(cls, seed: int) -> Sequence:
        """The first command writes all; later ones read and write, and wait for some of those before them."""
        chooser = random.Random(seed)
        count = chooser.randint(3, 14)
        queues = [0, *(chooser.randrange(_QUEUES) for _ in range(count))]
        clocks = np.zeros((count + 1, _QUEUES), dtype=np.int32)
        last = [0] * _QUEUES
        for number in range(1, count + 1):
            clocks[number] = clocks[last[queues[number]]]
            for earlier in range(1, number):
                if chooser.random() < 0.55:
                    np.maximum(clocks[number], clocks[earlier], out=clocks[number])
            clocks[number, queues[number]] = last[queues[number]] = number
        found: list[tuple[int, bool, Kind, Layout]] = [(0, True, Kind.WRITE, (0, (_BYTES,), (1,)))]
        for command in range(1, count):
            for _ in range(chooser.randint(1, 3)):
                kind = chooser.choice([Kind.READ, Kind.READ, Kind.WRITE])
                run, stride = chooser.choice([1, 2, 4]), chooser.choice([8, 12, 4])
                layout = (chooser.randint(0, 8), (chooser.randint(1, 4), run), (stride, 1))
                found.append((command, kind is Kind.WRITE, kind, layout))
        # a command reads all before it writes
        found.sort(key=lambda access: access[:2])
        return cls(
            kinds=[access[2] for access in found],
            commands=[access[0] for access in found],
            layouts=[access[3] for access in found],
            queues=queues,
            calls=[False, *(chooser.random() < 0.5 for _ in range(count))],
            clocks=clocks,
        )

    def judged(self) -> int | None:
        """The command that the judge refuses."""
        words = np.full(_BYTES, -1, dtype=np.int32)
        readers = {queue: np.zeros(_BYTES, dtype=np.int32) for queue in range(_QUEUES)}
        shadow = Shadow(name="memory", begin=0, word_bytes=1, writers=words, readers=readers)
        known = sorted(set(self.layouts))
        windows = Windows(
            shadows=[shadow],
            of_access=np.array([known.index(layout) for layout in self.layouts]),
            memories=np.zeros(len(known), dtype=np.int64),
            low=np.array([low for low, _, _ in known]),
            counts=np.array([(1, *counts)[-2:] for _, counts, _ in known]),
            strides=np.array([(0, *strides)[-2:] for _, _, strides in known]),
        )
        judge = Judge(clocks=self.clocks, queues=np.array(self.queues, dtype=np.int32), calls=np.array(self.calls))
        try:
            judge.run(np.array(self.kinds), np.array(self.commands), windows)
        except ProgramError as error:
            return error.command
        return None

    def refused(self) -> int | None:
        """The command that byte after byte shows to be unsafe."""
        writer = [-1] * _BYTES
        reader = [[0] * _BYTES for _ in range(_QUEUES)]
        for kind, command, (low, counts, strides) in zip(self.kinds, self.commands, self.layouts, strict=True):
            number = command + 1
            row, queue = self.clocks[number], self.queues[number]
            touched = {
                low + sum(i * stride for i, stride in zip(place, strides, strict=True))
                for place in product(*map(range, counts))
            }
            for byte in touched:
                before = writer[byte]
                if before == number or (before < 0 and kind is Kind.READ):
                    return command
                if before > 0 and row[self.queues[before]] < before:
                    return command
                read = [reader[other][byte] for other in range(_QUEUES)]
                if kind is Kind.WRITE and any(mark > row[other] for other, mark in enumerate(read)):
                    return command
                if kind is Kind.WRITE and self.calls[number] and number in read:
                    return command
            for byte in touched:
                if kind is Kind.WRITE:
                    writer[byte] = number
                else:
                    reader[queue][byte] = number
        return None


@pytest.mark.parametrize("block", range(4))
def test_the_judge_refuses_what_byte_after_byte_is_unsafe(block: int) -> None:
    refused = 0
    for seed in range(block * 150, (block + 1) * 150):
        found = Sequence.drawn(seed)
        expected = found.refused()
        assert found.judged() == expected, seed
        refused += expected is not None
    assert 50 < refused < 150, "safe and unsafe ones"
