"""Which commands meet, against a shadow of single bytes (PROG-5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from compiler.program.steps.action import Action, Copy, touches_of
from compiler.program.steps.commands import Commands, Kinds, Lists, Nodes
from compiler.program.steps.conflicts import conflicts_of
from compiler.program.steps.key_rows import KeyRows
from compiler.program.steps.meetings import atoms_of, runs_of

SIZE = 48


def random_runs(random: Any) -> tuple[int, tuple[int, int], int]:
    """The first byte of some strided bytes of a memory of SIZE bytes; how many runs, and how long; their stride."""
    run, count = int(random.integers(1, 9)), int(random.integers(1, 4))
    return random_stride(random, run, count)


def random_stride(random: Any, run: int, count: int) -> tuple[int, tuple[int, int], int]:
    """The same for `count` runs of `run` bytes."""
    stride = int(random.integers(run, 13))
    address = int(random.integers(0, SIZE - (count - 1) * stride - run + 1))
    if count > 1 and random.integers(2):
        # backwards
        return address + (count - 1) * stride, (count, run), -stride
    return address, (count, run), stride


def bytes_of(address: int, counts: Sequence[int], strides: Sequence[int]) -> set[int]:
    """All bytes that are touched."""
    places = product(*(range(count) for count in counts))
    return {address + sum(p * s for p, s in zip(its, strides, strict=True)) for its in places}


def random_copy(random: Any) -> Action:
    """A copy of some bytes of one of two memories to the same one or the other."""
    queue, (source, target) = int(random.integers(4)), random.integers(1, 3, size=2).tolist()
    first, (count, run), stride = random_runs(random)
    second, _, jump = random_stride(random, run, count)
    key = Copy(0, queue, 0, source, target, 1, (run, (count, 1, 1, 1), (stride, 0, 0, 0), (jump, 0, 0, 0)))
    return Action(key, (first, second))


@pytest.mark.parametrize("seed", range(20))
def test_atoms_are_the_words_of_the_same_boxes(seed: int) -> None:
    random = np.random.default_rng(seed)
    boxes = [random_runs(random) for _ in range(8)]
    touches = [bytes_of(address, counts, (stride, 1)) for address, counts, stride in boxes]
    low = [min(touch) for touch in touches]
    sides = np.array([(*counts, *(1,) * 4) for _, counts, _ in boxes], dtype=np.int64)
    strides = np.array([(abs(stride), 1, *(0,) * 4) for *_, stride in boxes], dtype=np.int64)
    runs, starts, lengths = runs_of(np.array(low, dtype=np.int64), sides, strides, 1)
    offsets, atoms, _ = atoms_of(runs, starts, lengths, SIZE)
    boxes_of = {byte: frozenset(n for n, its in enumerate(touches) if byte in its) for byte in range(SIZE)}
    for number, touch in enumerate(touches):
        its = atoms[offsets[number] : offsets[number + 1]]
        assert len(set(its.tolist())) == len(its) == len({boxes_of[byte] for byte in touch})
    shared = {
        frozenset(n for n in range(len(touches)) if atom in atoms[offsets[n] : offsets[n + 1]])
        for atom in atoms.tolist()
    }
    assert shared == {its for its in boxes_of.values() if its}


@pytest.mark.parametrize("seed", range(20))
def test_a_command_waits_for_the_last_of_each_engine_of_a_memory_that_touched_its_bytes(seed: int) -> None:
    """PROG-5: reads for the writer, writes for the readers since, and for the writer if there are none."""
    random = np.random.default_rng(seed)
    actions = [random_copy(random) for _ in range(40)]
    queues = np.array([action.queue for action in actions], dtype=np.int64)
    none = np.zeros(len(actions), dtype=np.int64)
    kinds = Kinds()
    commands = Commands(
        kinds=kinds.of((action.key, action.numbers) for action in actions),
        numbers=Lists.of([action.numbers for action in actions]),
        steps=none,
        queues=queues,
        iterations=none,
        ranks=none,
    )
    found = conflicts_of(Nodes.of([(0, none, queues)]), [commands], [KeyRows.of(kinds.keys)], [1], [])
    writer: dict[tuple[int, int], int] = {}
    readers: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    wanted = set()
    for number, action in enumerate(actions):
        # of each memory by itself
        latest: dict[tuple[int, int], int] = {}

        def meet(
            place: int, other: int, latest: dict[tuple[int, int], int] = latest, queue: int = action.queue
        ) -> None:
            key = place, actions[other].queue
            if key[1] != queue:
                latest[key] = max(latest.get(key, -1), other)

        for touch in sorted(touches_of(action.key), key=lambda touch: touch.is_write):
            its_bytes = bytes_of(action.numbers[touch.number], touch.counts, touch.strides)
            for at in product(touch.places, its_bytes):
                is_reread = touch.is_write and bool(readers[at])
                for other in readers[at].values() if is_reread else [writer[at]] if at in writer else []:
                    meet(at[0], other)
                if touch.is_write:
                    writer[at], readers[at] = number, {}
                else:
                    readers[at][action.queue] = number
        wanted |= {(other, number) for other in latest.values()}
    assert set(zip(found.before.tolist(), found.after.tolist(), strict=True)) == wanted
