"""Which accesses may meet others that they do not wait for, told without a look at memory (PROG-4).

A *log* has the accesses of one queue to one memory in program order. What a command does not wait for is the end of
each log of the memories that it touches: all after the last command that surely has ended. Of these the last few are
compared with the access itself, hull by hull and run by run; all accesses are at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from compiler.program.strided import Flags, Ints

# How far back a log is followed before the words are asked.
_STEPS: Final = 64
# Pairs of an access and a log that are looked at in one go.
_PAIRS: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Extents:
    """Where windows lie: bytes in [low, high), at positions of which there are `counts` along each stride.

    `step` is what all strides but that of single bytes are multiples of, 0 if there are none.
    """

    low: Ints
    high: Ints
    counts: Ints
    strides: Ints
    step: Ints

    @classmethod
    def of(cls, low: Ints, counts: Ints, strides: Ints) -> Extents:
        """The extents of accesses in normal form."""
        strides = np.where(counts > 1, strides, 0)
        step = np.gcd.reduce(np.where(strides > 1, strides, 0), axis=1)
        high = low + 1 + ((counts - 1) * strides).sum(axis=1)
        return cls(low=low, high=high, counts=counts, strides=strides, step=step)

    def meet(self, some: Ints, others: Ints) -> Flags:
        """Which pairs of windows may have a byte in common."""
        found = (self.low[others] < self.high[some]) & (self.low[some] < self.high[others])
        near = np.flatnonzero(found)
        found[near] = ~self.are_apart(some[near], others[near])
        return found

    def are_apart(self, some: Ints, others: Ints) -> Flags:
        """Which pairs of windows pass each other, as different channels or columns of the same rows do.

        Modulo a number, all that strides of its multiples repeat lies in one place: two windows that share no byte
        there share none at all. Asked are what all strides have in common, and each stride.
        """
        common = np.gcd(self.step[some], self.step[others])
        apart = (common > 0) & self._pass(some, others, np.maximum(common, 1))
        for mine in (some, others):
            for axis in range(self.strides.shape[1]):
                left = np.flatnonzero(~apart & (self.strides[mine, axis] > 1))
                if len(left):
                    modulus = self.strides[mine[left], axis]
                    apart[left] = self._pass(some[left], others[left], modulus)
        return apart

    def _pass(self, some: Ints, others: Ints, modulus: Ints) -> Flags:
        """Which pairs share no byte modulo these numbers."""
        ahead = (self.low[others] - self.low[some]) % modulus
        apart: Flags = (ahead >= self._length(some, modulus)) & (modulus - ahead >= self._length(others, modulus))
        return apart

    def _length(self, windows: Ints, modulus: Ints) -> Ints:
        """How far windows reach modulo these numbers: all axes count whose strides are no multiples."""
        strides = self.strides[windows]
        steps = np.where(strides % modulus[:, None] != 0, (self.counts[windows] - 1) * strides, 0)
        length: Ints = 1 + steps.sum(axis=1)
        return length


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Logs:
    """Accesses by memory and queue, log after log; in each in program order.

    By entry: `rows` (numbers among all accesses), `numbers` of commands, `windows`. By log: its `queues`, `firsts` and
    `stops` among the entries. By memory: its `logs` and how many these are, one after another.
    """

    rows: Ints
    numbers: Ints
    windows: Ints
    queues: Ints
    firsts: Ints
    stops: Ints
    logs: Ints
    log_counts: Ints
    of_entry: Ints

    @classmethod
    def of(cls, rows: Ints, memories: Ints, queues: Ints, numbers: Ints, windows: Ints, count: int) -> Logs:
        """The logs of accesses given in program order; `count` is how many memories there are."""
        width = int(queues.max(initial=0)) + 1
        keys = memories * width + queues
        order = np.argsort(keys, kind="stable")
        known, firsts = np.unique(keys[order], return_index=True)
        stops = np.append(firsts, len(order))[1:].astype(np.int64)
        log_counts = np.bincount(known // width, minlength=count)
        return cls(
            rows=rows[order],
            numbers=numbers[order],
            windows=windows[order],
            queues=known % width,
            firsts=firsts.astype(np.int64),
            stops=stops,
            logs=np.cumsum(log_counts) - log_counts,
            log_counts=log_counts,
            of_entry=np.repeat(np.arange(len(known)), stops - firsts),
        )

    def met(
        self, rows: Ints, memories: Ints, windows: Ints, extents: Extents, ended: Callable[[Ints, Ints], Ints]
    ) -> Iterator[tuple[Ints, Ints]]:
        """The accesses (positions in `rows`) and queues of which commands that have not surely ended may be met.

        `ended`: for positions and queues the last command of the queue that has.
        """
        if not len(self.rows):
            return
        # entries by log and row, and by log and command: both ascend
        span = int(max(self.rows.max(), rows.max(initial=0))) + 2
        reach = int(self.numbers.max()) + 2
        by_row, by_number = self.of_entry * span + self.rows, self.of_entry * reach + self.numbers
        counts = self.log_counts[memories]
        totals = np.cumsum(counts)
        start = 0
        while start < len(rows):
            before = int(totals[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(totals, before + _PAIRS, side="right")))
            its = counts[start:stop]
            places = np.repeat(np.arange(start, stop), its)
            log = np.arange(len(places)) - np.repeat(np.cumsum(its) - its, its) + self.logs[memories[places]]
            limits = np.minimum(ended(places, self.queues[log]), reach - 1)
            # most accesses come after all of a log, and after all of it has ended
            last = self.stops[log]
            inside = np.flatnonzero(self.rows[last - 1] >= rows[places])
            last[inside] = np.searchsorted(by_row, log[inside] * span + rows[places[inside]])
            late = np.flatnonzero((last > self.firsts[log]) & (self.numbers[last - 1] > limits))
            places, log, last, limits = places[late], log[late], last[late], limits[late]
            pending = last - np.searchsorted(by_number, log * reach + limits, side="right")
            meets = pending > _STEPS
            for step in range(_STEPS):
                open_ = np.flatnonzero((pending > step) & ~meets)
                if not len(open_):
                    break
                others = self.windows[last[open_] - 1 - step]
                meets[open_] = extents.meet(windows[places[open_]], others)
            yield places[meets], self.queues[log[meets]]
            start = stop
