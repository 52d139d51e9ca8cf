"""A shadow of every memory: who wrote each word last, and who read it since (PROG-4).

A word is as large as all accesses of its memory allow. Numbers in a shadow are commands counted from 1; 0 is what was
there before the program, NOTHING what nobody has written. That the last accesses of a word are ordered suffices:
whoever came before them was ordered with them when they were judged.

Most accesses need no look at the words: a log per queue tells which of its commands may still be running, and where
they are. Only if one of these may meet the access are the words themselves compared, and only then are the words
brought up to date: accesses to the same words that nobody looked at in between are entered once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.program.accesses import Accesses, Kind
from compiler.program.clocks import Clocks
from compiler.program.errors import ProgramError
from compiler.program.strided import Flags

Words = NDArray[np.int32]
NOTHING: Final = -1


# How far back a log is followed before the words are asked.
_STEPS: Final = 8
# Commands and where they were, in program order.
_Log = list[tuple[int, "Window"]]


@dataclass(slots=True, kw_only=True)
class Shadow:
    """One memory, or one area of the DRAM: words from byte `begin` on.

    `readers` are the last readers by queue, for the queues that ever read here; None for the DRAM, where nothing is
    written twice, so no write has to wait for reads. `written` and `read` are the logs, `last_written` and `last_read`
    their last commands.
    """

    name: str
    begin: int
    word_bytes: int
    writers: Words
    readers: dict[int, Words] | None
    has_residents: bool = False
    written: dict[int, _Log] = field(default_factory=dict)
    read: dict[int, _Log] = field(default_factory=dict)
    last_written: dict[int, int] = field(default_factory=dict)
    last_read: dict[int, int] = field(default_factory=dict)
    # what the words do not show yet: writes of all queues, and by queue how many of its reads they do show
    _unseen: _Log = field(default_factory=list)
    _seen: dict[int, int] = field(default_factory=dict)

    def write(self, window: Window, number: int, queue: int) -> None:
        """A command of a queue writes here."""
        _log(self.written, queue, number, window)
        self.last_written[queue] = number
        self._unseen.append((number, window))
        window.is_written = True

    def note_read(self, window: Window, number: int, queue: int) -> None:
        """A command of a queue reads here, and whoever writes these words later has to wait for it."""
        _log(self.read, queue, number, window)
        self.last_read[queue] = number

    def show_writes(self) -> None:
        """Bring the words of the last writers up to date."""
        for number, window in _latest(self._unseen):
            window.writers[...] = number
        self._unseen.clear()

    def show_reads(self, queue: int) -> None:
        """Bring the words of the last readers among a queue's commands up to date."""
        log = self.read[queue]
        for number, window in _latest(log[self._seen.get(queue, 0) :]):
            window.readers(queue)[...] = number
        self._seen[queue] = len(log)

    def window(self, low: int, counts: list[int], strides: list[int]) -> Window:
        """The words of an access in normal form."""
        word = self.word_bytes
        shape, steps = [], []
        high = low + 1
        run, step = 1, 0
        for count, stride in zip(counts, strides, strict=True):
            if count == 1:
                continue
            high += (count - 1) * stride
            if stride == 1:
                run += count - 1
                if count > word:
                    shape.append(count // word)
                    steps.append(4)
            else:
                step = gcd(step, stride)
                shape.append(count)
                steps.append(stride // word * 4)
        return Window(self, (low, high, run, step), tuple(shape or (1,)), tuple(steps or (4,)))


class Window:
    """One access' words in a shadow; made once for all commands that touch just these.

    Its bytes lie in [low, high), in runs of at most `run` bytes that begin at multiples of `step` from the first (0:
    there is one run).
    """

    __slots__ = (
        "_offset",
        "_reading",
        "_shape",
        "_steps",
        "high",
        "is_written",
        "low",
        "run",
        "shadow",
        "step",
        "writers",
    )

    def __init__(
        self, shadow: Shadow, extent: tuple[int, int, int, int], shape: tuple[int, ...], steps: tuple[int, ...]
    ) -> None:
        self.shadow = shadow
        self.low, self.high, self.run, self.step = extent
        low = self.low
        # what once was written stays written
        self.is_written = False
        self._shape = shape
        self._steps = steps
        self._offset = (low - shadow.begin) // shadow.word_bytes * 4
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judge:
    """Goes through accesses in program order and refuses the first that may go wrong.

    `queues`: the queue of each command, counted from 1; `calls`: which of them call units, whose results do not lie
    on their operands.
    """

    clocks: Clocks
    queues: NDArray[np.int32]
    calls: Flags

    def run(self, accesses: Accesses, windows: list[Window | None]) -> None:
        """Judge all accesses; `windows` of what needs no judging are None. Raises ProgramError."""
        queues, calls = self.queues.tolist(), self.calls.tolist()
        overwritten, write = int(Kind.OVERWRITTEN), int(Kind.WRITE)
        judged, row = -1, [0]
        for kind, command, window in zip(accesses.kinds.tolist(), accesses.commands.tolist(), windows, strict=True):
            if window is None:
                continue
            number = command + 1
            if number != judged:
                judged, row = number, self.clocks[number].tolist()
            if kind == write:
                self._write(window, number, row, queues[number], calls[number])
                continue
            if kind <= overwritten:
                self._read(window, number, row)
            if kind != overwritten and window.shadow.readers is not None:
                window.shadow.note_read(window, number, queues[number])

    def _read(self, window: Window, number: int, row: list[int]) -> None:
        """Every word has been written, and the reader waits for whoever wrote it."""
        shadow = window.shadow
        if not window.is_written:
            shadow.show_writes()
            if int(np.minimum.reduce(window.writers, axis=None)) < 0:
                raise ProgramError(
                    f"reads bytes of {shadow.name} that nobody has written", violation="unwritten", command=number - 1
                )
            window.is_written = True
        for queue, last in shadow.last_written.items():
            if last > row[queue] and _may_meet(shadow.written[queue], row[queue], window):
                shadow.show_writes()
                self._check_writers(window, number, "reads")
                return

    def _write(self, window: Window, number: int, row: list[int], queue: int, is_call: bool) -> None:
        """Nothing that stays is overwritten, and the writer waits for all who wrote and read here."""
        shadow = window.shadow
        if shadow.readers is None or shadow.has_residents:
            shadow.show_writes()
            _check_kept(window, number)
        # nobody can have touched the words of the DRAM that nobody has written
        if shadow.readers is not None:
            self._check_ordered(window, number, row, is_call)
        shadow.write(window, number, queue)

    def _check_ordered(self, window: Window, number: int, row: list[int], is_call: bool) -> None:
        """The writer of words on the chip waits for all who wrote and read them.

        Its own command has to be looked for, too, though it is never late: it writes nothing twice, and the result of a
        call lies on no operand.
        """
        shadow = window.shadow
        for other, last in shadow.last_written.items():
            if last > row[other] or last == number:
                limit = number - 1 if last == number else row[other]
                if _may_meet(shadow.written[other], limit, window):
                    shadow.show_writes()
                    if int(np.maximum.reduce(window.writers, axis=None)) == number:
                        raise ProgramError(
                            "writes a byte twice", violation="twice", command=number - 1, actual=shadow.name
                        )
                    self._check_writers(window, number, "writes")
                    break
        for other, last in shadow.last_read.items():
            is_own = last == number and is_call
            if (last > row[other] or is_own) and _may_meet(
                shadow.read[other], number - 1 if is_own else row[other], window
            ):
                shadow.show_reads(other)
                reader = int(np.maximum.reduce(window.readers(other), axis=None))
                if reader == number and is_call:
                    raise ProgramError(
                        "a call's result lies on an operand that it does not overwrite in place",
                        violation="overlap",
                        command=number - 1,
                        actual=shadow.name,
                    )
                if reader > row[other]:
                    raise _unordered(window, number, reader - 1, "writes", "is read")

    def _check_writers(self, window: Window, number: int, verb: str) -> None:
        """Every command that wrote one of the words happens before this one."""
        row, writers = self.clocks[number], window.writers
        late = row.take(self.queues.take(writers, mode="clip")) < writers
        if late.any():
            raise _unordered(window, number, int(writers[late].min()) - 1, verb, "was written")


def _latest(log: _Log) -> list[tuple[int, Window]]:
    """The last entry of each window, in program order."""
    if len(log) < 2:
        return log
    last = {window: number for number, window in log}
    return sorted([(number, window) for window, number in last.items()], key=itemgetter(0))


def _log(logs: dict[int, _Log], queue: int, number: int, window: Window) -> None:
    log = logs.get(queue)
    if log is None:
        log = logs[queue] = []
    log.append((number, window))


def _may_meet(log: _Log, limit: int, window: Window) -> bool:
    """True if a command of this queue after `limit` may have touched a byte of the window."""
    low, high = window.low, window.high
    for steps, (number, other) in enumerate(reversed(log)):
        if number <= limit:
            return False
        if steps == _STEPS or (other.low < high and low < other.high and not are_apart(window, other)):
            return True
    return False


def are_apart(window: Window, other: Window) -> bool:
    """True if the runs of two windows pass each other, as those of different channels of the same positions do."""
    step = gcd(window.step, other.step)
    if not step:
        return False
    ahead = (other.low - window.low) % step
    # modulo the step either window is one run
    return ahead >= window.run and step - ahead >= other.run


def _check_kept(window: Window, number: int) -> None:
    """What stays is not overwritten: all of the DRAM that is written, and weights that lie on the chip."""
    shadow = window.shadow
    latest = int(np.maximum.reduce(window.writers, axis=None))
    if latest < 0:
        return
    if shadow.readers is not None:
        if (window.writers == 0).any():
            raise ProgramError(
                f"writes over weights that stay in {shadow.name}", violation="read-only", command=number - 1
            )
    elif latest == number:
        raise ProgramError("writes a byte twice", violation="twice", command=number - 1, actual=shadow.name)
    else:
        raise ProgramError(
            f"writes bytes of {shadow.name} that command {latest - 1} has written",
            violation="write-once",
            command=number - 1,
        )


def _unordered(window: Window, number: int, other: int, verb: str, done: str) -> ProgramError:
    return ProgramError(
        f"{verb} bytes of {window.shadow.name} that {done} by command {other}, for which it does not wait",
        violation="dependency",
        command=number - 1,
        actual=f"no path of waits from command {other}",
        hint="Let it wait for that command, or for one that comes after it in its queue",
    )
