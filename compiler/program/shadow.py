"""A shadow of every memory: who wrote each word last, and who read it since (PROG-4).

A word is as large as all accesses of its memory allow. Numbers in a shadow are commands counted from 1; 0 is what was
there before the program, NOTHING what nobody has written.

Words are brought up to date only when they are looked at: accesses to the same words that nobody looked at in between
are entered once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.program.meetings import Extents
from compiler.program.strided import Ints

Words = NDArray[np.int32]
NOTHING: Final = -1


@dataclass(slots=True, kw_only=True, eq=False)
class Shadow:
    """One memory, or one area of the DRAM: words from byte `begin` on.

    `readers` are the last readers by queue, for the queues that ever read here; None for the DRAM, where nothing is
    written twice, so no write has to wait for reads. `residents`: from the first to the last byte of the weights that
    stay here.
    """

    name: str
    begin: int
    word_bytes: int
    writers: Words
    readers: Mapping[int, Words] | None
    residents: tuple[int, int] = (0, 0)

    def window(self, low: int, counts: list[int], strides: list[int]) -> Window:
        """The words of an access in normal form."""
        word = self.word_bytes
        shape, steps = [], []
        for count, stride in zip(counts, strides, strict=True):
            if count == 1:
                continue
            if stride == 1:
                if count > word:
                    shape.append(count // word)
                    steps.append(4)
            else:
                shape.append(count)
                steps.append(stride // word * 4)
        return Window(self, (low - self.begin) // word * 4, tuple(shape or (1,)), tuple(steps or (4,)))


class Window:
    """One access' words in a shadow; made once for all commands that touch just these."""

    __slots__ = ("_offset", "_reading", "_shape", "_steps", "shadow", "writers")

    def __init__(self, shadow: Shadow, offset: int, shape: tuple[int, ...], steps: tuple[int, ...]) -> None:
        self.shadow = shadow
        self._shape = shape
        self._steps = steps
        self._offset = offset
        self._reading: dict[int, Words] = {}
        self.writers = self._view(shadow.writers)

    def readers(self, queue: int) -> Words:
        """The last readers of the words among a queue's commands; for queues that ever read here."""
        found = self._reading.get(queue)
        if found is None:
            assert self.shadow.readers is not None
            found = self._reading[queue] = self._view(self.shadow.readers[queue])
        return found

    def _view(self, words: Words) -> Words:
        return np.ndarray(self._shape, np.int32, words, self._offset, self._steps)


@dataclass(kw_only=True, eq=False)
class Windows:
    """What all accesses touch: `of_access` the numbers of their windows, -1 for what needs no judging.

    By window: the number of its memory in `shadows`, and its low byte, counts and strides in normal form.
    """

    shadows: list[Shadow]
    of_access: Ints
    memories: Ints
    low: Ints
    counts: Ints
    strides: Ints
    _known: dict[int, Window] = field(default_factory=dict)

    @cached_property
    def extents(self) -> Extents:
        """Where the windows lie."""
        return Extents.of(self.low, self.counts, self.strides)

    def window(self, number: int) -> Window:
        """The words of a window."""
        found = self._known.get(number)
        if found is None:
            shadow = self.shadows[int(self.memories[number])]
            counts, strides = self.counts[number].tolist(), self.strides[number].tolist()
            found = self._known[number] = shadow.window(int(self.low[number]), counts, strides)
        return found


class Marks:
    """Accesses that leave marks in words, memory by memory in program order, and how far the words show them."""

    def __init__(self, rows: Ints, keys: Ints, numbers: Ints, windows: Windows) -> None:
        """`rows` are numbers among all accesses, `keys` what is shown together, `numbers` commands, by access."""
        order = np.argsort(keys, kind="stable")
        known, firsts = np.unique(keys[order], return_index=True)
        self._rows, self._numbers = rows[order], numbers[order]
        self._windows = windows
        self._of_row = windows.of_access[self._rows]
        ends = [*firsts.tolist(), len(order)][1:]
        self._ranges = {
            key: (first, end) for key, first, end in zip(known.tolist(), firsts.tolist(), ends, strict=True)
        }

    def show(self, key: int, row: int | None = None, queue: int | None = None) -> None:
        """Bring words up to date with what came before an access (or all): of writers, or of a queue's readers."""
        first, end = self._ranges.get(key, (0, 0))
        stop = end if row is None else first + int(self._rows[first:end].searchsorted(row))
        if stop <= first:
            return
        self._ranges[key] = (stop, end)
        windows, numbers = self._of_row[first:stop].tolist(), self._numbers[first:stop].tolist()
        # of each window the last mark, in program order
        last = dict(zip(windows, numbers, strict=True))
        for window, number in sorted(last.items(), key=itemgetter(1)) if len(last) > 1 else last.items():
            found = self._windows.window(window)
            words = found.writers if queue is None else found.readers(queue)
            words[...] = number
