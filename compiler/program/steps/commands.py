"""Some of a group's commands, as they are asked for: which step they are of, on which engine, in which iteration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np

from compiler.program.program import Rows
from compiler.program.steps.action import Action, Call, Copy, Numbers, Steps
from compiler.program.timing.ticks import Ints

# Bits of the numbers of steps and engines in a node's code.
_BITS: Final = 20
_MASK: Final = (1 << _BITS) - 1
# Both ends of what is equal, as `np.searchsorted` is asked for them.
SIDES: Final = ("left", "right")
SLOTS: Final = 1 << 2 * _BITS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Nodes:
    """The nodes of a segment, steps of its groups on one engine each, ascending: numbers of these three parts."""

    codes: Ints

    @classmethod
    def of(cls, parts: Iterable[tuple[int, Ints, Ints]]) -> Nodes:
        """The nodes of these groups, steps and engines."""
        codes = [group << 2 * _BITS | steps << _BITS | queues for group, steps, queues in parts]
        return cls(codes=np.unique(np.concatenate(codes)).astype(np.int64))

    @property
    def groups(self) -> Ints:
        """By node its group."""
        return self.codes >> 2 * _BITS

    @property
    def steps(self) -> Ints:
        """By node its step."""
        return self.codes >> _BITS & _MASK

    @property
    def queues(self) -> Ints:
        """By node its engine."""
        return self.codes & _MASK

    @property
    def group_steps(self) -> Ints:
        """By node the number of its group's step among those of all groups, ascending."""
        found: Ints = np.unique(self.codes >> _BITS, return_inverse=True)[1].astype(np.int64)
        return found

    def numbers(self, group: int, steps: Ints, queues: Ints) -> Ints:
        """The numbers of nodes that are there."""
        found: Ints = np.searchsorted(self.codes, group << 2 * _BITS | steps << _BITS | queues).astype(np.int64)
        return found

    def slice(self, group: int) -> slice:
        """The numbers of a group's nodes."""
        begin, end = np.searchsorted(self.codes, [group << 2 * _BITS, group + 1 << 2 * _BITS]).tolist()
        return slice(begin, end)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lists:
    """A list of rows for each of some things: those of thing i are `rows[offsets[i]:offsets[i + 1]]`."""

    offsets: Ints
    rows: Rows

    @classmethod
    def of(cls, lists: Sequence[Sequence[Any]], dtype: Any = np.int64) -> Lists:
        """These lists."""
        sizes = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        if dtype is np.int64:
            rows = np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=int(sizes.sum()))
        else:
            rows = np.array([row for its in lists for row in its], dtype=dtype)
        return cls(offsets=np.append(0, np.cumsum(sizes)).astype(np.int64), rows=rows)

    @classmethod
    def none(cls, count: int, dtype: Any) -> Lists:
        """So many empty lists."""
        return cls(offsets=np.zeros(count + 1, dtype=np.int64), rows=np.zeros(0, dtype=dtype))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def ordered(self, order: Ints) -> Lists:
        """The lists in another order, or some of them."""
        sizes = np.diff(self.offsets)[order]
        offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[order] - offsets[:-1], sizes)
        return Lists(offsets=offsets, rows=self.rows[places])

    @staticmethod
    def joined(parts: Sequence[Lists]) -> Lists:
        """The lists of all parts, one after another."""
        sizes = np.concatenate([np.diff(part.offsets) for part in parts])
        offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
        return Lists(offsets=offsets, rows=np.concatenate([part.rows for part in parts]))


class Kinds:
    """The different keys of commands, numbered as they come, each with the numbers that it came with."""

    def __init__(self) -> None:
        self._numbers: dict[Copy | Call, int] = {}
        self.keys: list[Copy | Call] = []
        self.first: list[Numbers] = []

    def of(self, its: Iterable[tuple[Copy | Call, Numbers]]) -> Ints:
        """The kind of each of these."""
        numbers, keys = self._numbers, list[Copy | Call]()
        for key, values in its:
            if key not in numbers:
                numbers[key] = len(numbers)
                self.keys.append(key)
                self.first.append(values)
            keys.append(key)
        return np.fromiter(map(numbers.__getitem__, keys), dtype=np.int64, count=len(keys))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Commands:
    """Commands of some iterations, in order of iterations and steps; iteration -1: what is done once.

    By command its kind, as `Kinds` numbers them, and its numbers; `ranks`: the number of each among what its engine
    does for its step in that iteration.
    """

    kinds: Ints
    numbers: Lists
    steps: Ints
    queues: Ints
    iterations: Ints
    ranks: Ints

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def slots(self) -> Ints:
        """What tells the commands of a node in one iteration apart: kind and number."""
        return slots_of(self.kinds, self.ranks)


def slots_of(kinds: Ints, ranks: Ints) -> Ints:
    """Kinds and numbers of commands, each pair as one number, below `SLOTS`."""
    return kinds << _BITS | ranks


def _commands(kinds: Kinds, asked: Iterable[tuple[tuple[int, int], Sequence[Action]]]) -> Commands:
    """The commands of iterations and steps with what is done there."""
    actions: list[Action] = []
    sizes, numbers = [], []
    for place, its in asked:
        if its:
            actions += its
            sizes.append(len(its))
            numbers.append(place)
    iterations, its_steps = np.repeat(np.array(numbers, dtype=np.int64).reshape(-1, 2), sizes, axis=0).T.copy()
    its_kinds = kinds.of(actions)
    queues = np.fromiter((key.queue for key, _ in actions), dtype=np.int64, count=len(actions))
    parts = np.repeat(np.arange(len(sizes)), sizes)
    ranks = ranks_of(parts * (int(queues.max(initial=0)) + 1) + queues)
    return Commands(
        kinds=its_kinds,
        numbers=Lists.of([numbers for _, numbers in actions]),
        steps=its_steps,
        queues=queues,
        iterations=iterations,
        ranks=ranks,
    )


def all_commands(steps: Steps, kinds: Kinds, commands_max: float) -> Commands | None:
    """The commands of all iterations; None of a group that has so many commands, or more."""
    asked: list[tuple[tuple[int, int], Sequence[Action]]] = []
    count = 0
    for iteration in range(-1, steps.iterations):
        for step in steps.doing(iteration):
            found = steps.at(step, iteration)
            asked.append(((iteration, step), found))
            count += len(found)
        if count >= commands_max:
            return None
    return _commands(kinds, asked)


def different(values: Ints) -> Ints:
    """The different values, ascending; `np.unique` takes many times as long where there are millions."""
    ascending = np.sort(values)
    found: Ints = ascending[np.append(True, ascending[1:] != ascending[:-1])[: len(ascending)]]
    return found


def ranks_of(keys: Ints) -> Ints:
    """The number of each key among those before it that are equal."""
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    is_first = np.append(True, sorted_keys[1:] != sorted_keys[:-1])[: len(keys)]
    places = np.arange(len(keys))
    found = np.empty(len(keys), dtype=np.int64)
    found[order] = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return found


def spread(sizes: Ints) -> tuple[Ints, Ints]:
    """Of so many rows by owner each one's owner, and its number among the owner's."""
    owners = np.repeat(np.arange(len(sizes)), sizes)
    return owners, np.arange(len(owners)) - (np.cumsum(sizes) - sizes)[owners]
