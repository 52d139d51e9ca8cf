"""A shadow of every memory: who wrote each word last, and who read it since (PROG-4).

A word is as large as all accesses of its memory allow. Numbers in a shadow are commands counted from 1; 0 is what was
there before the program, NOTHING what nobody has written. That the last accesses of a word are ordered suffices:
whoever came before them was ordered with them when they were judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.program.accesses import Accesses, Kind
from compiler.program.clocks import Clocks
from compiler.program.errors import ProgramError

Words = NDArray[np.int32]
NOTHING: Final = -1


@dataclass(slots=True, kw_only=True)
class Shadow:
    """One memory, or one area of the DRAM: words from byte `begin` on.

    `readers` are the last readers by queue, for the queues that ever read here; None for the DRAM, where nothing is
    written twice, so no write has to wait for reads.
    """

    name: str
    begin: int
    word_bytes: int
    writers: Words
    readers: dict[int, Words] | None
    has_residents: bool = False

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
        return Window(self, tuple(shape or (1,)), tuple(steps or (4,)), (low - self.begin) // word * 4)


class Window:
    """One access' words in a shadow; made once for all commands that touch just these."""

    __slots__ = ("offset", "readers", "reading", "shadow", "shape", "strides", "writers")

    def __init__(self, shadow: Shadow, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> None:
        self.shadow = shadow
        self.shape = shape
        self.strides = strides
        self.offset = offset
        self.writers = self._view(shadow.writers)
        self.reading: dict[int, Words] = {}
        self.readers = (
            ()
            if shadow.readers is None
            else tuple((queue, self._view(words)) for queue, words in shadow.readers.items())
        )
        self.reading.update(self.readers)

    def _view(self, words: Words) -> Words:
        return np.ndarray(self.shape, np.int32, words, self.offset, self.strides)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judge:
    """Goes through accesses in program order and refuses the first that may go wrong.

    `queues`: the queue of each command, counted from 1.
    """

    clocks: Clocks
    queues: NDArray[np.int32]

    def run(self, accesses: Accesses, windows: list[Window | None]) -> None:
        """Judge all accesses; `windows` of what needs no judging are None. Raises ProgramError."""
        smallest, largest = np.minimum.reduce, np.maximum.reduce
        rows = list(self.clocks)
        queue_list = self.queues.tolist()
        queues = self.queues
        overwritten, write = int(Kind.OVERWRITTEN), int(Kind.WRITE)
        for kind, command, window in zip(accesses.kinds.tolist(), accesses.commands.tolist(), windows, strict=True):
            if window is None:
                continue
            number = command + 1
            writers = window.writers
            queue = queue_list[number]
            if kind == write:
                latest = int(largest(writers, axis=None))
                if latest >= 0:
                    row = rows[number]
                    shadow = window.shadow
                    if latest >= number or shadow.has_residents or shadow.readers is None:
                        self._check_written(window, command, latest)
                    if latest > row[queue_list[latest]] or (
                        smallest(writers, axis=None) != latest and not _all_before(writers, row, queues)
                    ):
                        raise _unordered(window, command, _first_after(writers, row, queues), "writes", "was written")
                for other, words in window.readers:
                    reader = int(largest(words, axis=None))
                    if reader > rows[number][other]:
                        raise _unordered(window, command, reader - 1, "writes", "is read")
                    if reader == number:
                        raise ProgramError(
                            "a call's result lies on an operand that it does not overwrite in place",
                            violation="overlap",
                            command=command,
                            actual=window.shadow.name,
                        )
                writers[...] = number
                continue
            if kind <= overwritten:
                earliest = int(smallest(writers, axis=None))
                if earliest < 0:
                    raise ProgramError(
                        f"reads bytes of {window.shadow.name} that nobody has written",
                        violation="unwritten",
                        command=command,
                    )
                row = rows[number]
                latest = int(largest(writers, axis=None))
                if latest > row[queue_list[latest]] or (earliest != latest and not _all_before(writers, row, queues)):
                    raise _unordered(window, command, _first_after(writers, row, queues), "reads", "was written")
            if kind != overwritten:
                mine = window.reading.get(queue)
                if mine is not None:
                    mine[...] = number

    @staticmethod
    def _check_written(window: Window, command: int, latest: int) -> None:
        """A write over what must not be written any more."""
        shadow = window.shadow
        if latest >= command + 1:
            raise ProgramError("writes a byte twice", violation="twice", command=command, actual=shadow.name)
        if shadow.readers is None:
            raise ProgramError(
                f"writes bytes of {shadow.name} that command {latest - 1} has written",
                violation="write-once",
                command=command,
            )
        if shadow.has_residents and bool((window.writers == 0).any()):
            raise ProgramError(
                f"writes over weights that stay in {shadow.name}", violation="read-only", command=command
            )


def _all_before(writers: Words, row: Words, queues: NDArray[np.int32]) -> bool:
    """True if each of these commands happens before the one that `row` is the clock of."""
    return bool((row[queues[writers]] >= writers).all())


def _first_after(writers: Words, row: Words, queues: NDArray[np.int32]) -> int:
    """The first of these commands that does not."""
    late = writers[row[queues[writers]] < writers]
    return int(late.min()) - 1


def _unordered(window: Window, command: int, other: int, verb: str, done: str) -> ProgramError:
    return ProgramError(
        f"{verb} bytes of {window.shadow.name} that {done} by command {other}, for which it does not wait",
        violation="dependency",
        command=command,
        actual=f"no path of waits from command {other}",
        hint="Let it wait for that command, or for one that comes after it in its queue",
    )
