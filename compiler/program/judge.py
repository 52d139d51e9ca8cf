"""The judge of accesses: reads find what was written, reads and writes of the same bytes are ordered (PROG-4).

That the last accesses of a word are ordered suffices: whoever came before them was ordered with them when they were
judged. Most accesses need no look at the words: the clocks tell which commands may still be running, and where these
are tells whether they may meet the access (`meetings.py`). Only if one may, the words themselves are compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compiler.program.accesses import Kind
from compiler.program.clocks import Clocks
from compiler.program.errors import ProgramError
from compiler.program.meetings import Logs
from compiler.program.shadow import Marks, Window, Windows
from compiler.program.strided import Flags, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Doubts:
    """Accesses that need a look at the words, by what is to be looked for there.

    `unwritten`: whether all has been written; `kept`: whether something that stays is overwritten; `writers`: whether
    all who wrote have ended; `readers`: of which queues all who read.
    """

    unwritten: Flags
    kept: Flags
    writers: Flags
    readers: dict[int, list[int]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judge:
    """Goes through accesses in program order and refuses the first that may go wrong.

    `queues`: the queue of each command, counted from 1; `calls`: which of them call units, whose results do not lie
    on their operands.
    """

    clocks: Clocks
    queues: NDArray[np.int32]
    calls: Flags

    def run(self, kinds: Ints, commands: Ints, windows: Windows, results: Iterable[int] = ()) -> None:
        """Judge all accesses, given in program order by kind, command and window. Raises ProgramError.

        Of the memories `results` the words show all writes then.
        """
        if not len(windows.memories):
            return
        numbers = commands + 1
        memories = np.where(windows.of_access >= 0, windows.memories[windows.of_access], -1)
        on_chip = np.array([shadow.readers is not None for shadow in windows.shadows])[memories] & (memories >= 0)
        written = np.flatnonzero((kinds == Kind.WRITE) & (memories >= 0))
        read = np.flatnonzero(((kinds == Kind.READ) | (kinds == Kind.LATE)) & on_chip)
        queues = self.queues[numbers].astype(np.int64)
        doubts = self._doubts(kinds, numbers, queues, windows, memories, written, read)
        width = int(queues.max()) + 1
        writes = Marks(written, memories[written], numbers[written], windows)
        reads = Marks(read, memories[read] * width + queues[read], numbers[read], windows)
        looked = doubts.unwritten | doubts.kept | doubts.writers
        rows = np.flatnonzero(looked | np.isin(np.arange(len(kinds)), list(doubts.readers)))
        columns = (
            rows,
            numbers[rows],
            memories[rows],
            windows.of_access[rows],
            kinds[rows] == Kind.WRITE,
            looked[rows],
        )
        for row, number, memory, its, is_write, asks in zip(*(column.tolist() for column in columns), strict=True):
            window = windows.window(its)
            if asks:
                writes.show(memory, row)
            if is_write:
                if doubts.kept[row]:
                    _check_kept(window, number)
                if doubts.writers[row]:
                    if int(np.maximum.reduce(window.writers, axis=None)) == number:
                        raise _twice(window, number)
                    self._check_writers(window, number, "writes")
                for queue in doubts.readers.get(row, ()):
                    reads.show(memory * width + queue, row, queue)
                    self._check_readers(window, number, queue)
                continue
            if doubts.unwritten[row] and int(np.minimum.reduce(window.writers, axis=None)) < 0:
                name = window.shadow.name
                raise ProgramError(
                    f"reads bytes of {name} that nobody has written", violation="unwritten", command=number - 1
                )
            if doubts.writers[row]:
                self._check_writers(window, number, "reads")
        for memory in results:
            writes.show(memory)

    def _doubts(
        self,
        kinds: Ints,
        numbers: Ints,
        queues: Ints,
        windows: Windows,
        memories: Ints,
        written: Ints,
        read: Ints,
    ) -> _Doubts:
        """Which accesses need a look at the words; `written` and `read` are those that leave marks there."""
        of, extents, count = windows.of_access, windows.extents, len(windows.shadows)
        writes, reads = (
            Logs.of(rows, memories[rows], queues[rows], numbers[rows], of[rows], count) for rows in (written, read)
        )
        is_write, is_judged = kinds == Kind.WRITE, memories >= 0
        in_dram = np.array([shadow.readers is None for shadow in windows.shadows])[memories] & is_judged
        doubted = np.zeros(len(kinds), dtype=np.bool_)
        residents = np.array([shadow.residents for shadow in windows.shadows])[memories]
        kept = is_write & is_judged & (extents.low[of] < residents[:, 1]) & (residents[:, 0] < extents.high[of])
        unwritten = np.zeros_like(doubted)
        # what once was written stays written: of each window only what comes first may find it unwritten
        rows = np.flatnonzero(is_judged & (kinds != Kind.LATE))
        first = rows[np.unique(of[rows], return_index=True)[1]]
        unwritten[first[kinds[first] != Kind.WRITE]] = True
        clocks = self.clocks

        def met(logs: Logs, rows: Ints, own: Ints) -> list[tuple[Ints, Ints]]:
            """Rows and queues; a command's own accesses are met from the number `own` on."""
            its, mine = numbers[rows], queues[rows]

            def ended(places: Ints, others: Ints) -> Ints:
                found = clocks[its[places], others].astype(np.int64)
                return np.where(mine[places] == others, own[places], found)

            return [
                (rows[places], others) for places, others in logs.met(rows, memories[rows], of[rows], extents, ended)
            ]

        rows = np.flatnonzero(is_judged & (kinds <= Kind.OVERWRITTEN))
        for found, _ in met(writes, rows, numbers[rows]):
            doubted[found] = True
        # the writer of words on the chip waits for all who wrote and read them. Its own command has to be looked for,
        # too, though it is never late: it writes nothing twice, and the result of a call lies on no operand
        rows = np.flatnonzero(is_write & is_judged & ~in_dram)
        for found, _ in met(writes, rows, numbers[rows] - 1):
            doubted[found] = True
        readers: dict[int, list[int]] = {}
        for found, others in met(reads, rows, numbers[rows] - self.calls[numbers[rows]]):
            for row, queue in zip(found.tolist(), others.tolist(), strict=True):
                readers.setdefault(row, []).append(queue)
        # nothing is written twice to the DRAM, whoever waits for whom
        rows = np.flatnonzero(is_write & in_dram)
        for places, _ in writes.met(rows, memories[rows], of[rows], extents, lambda places, _: np.zeros_like(places)):
            kept[rows[places]] = True
        return _Doubts(unwritten=unwritten, kept=kept, writers=doubted, readers=readers)

    def _check_writers(self, window: Window, number: int, verb: str) -> None:
        """Every command that wrote one of the words happens before this one."""
        row, writers = self.clocks[number], window.writers
        first, last = max(0, int(writers.min())), int(writers.max())
        if last - first < writers.size:
            # of fewer commands than there are words: if all of these have ended, so have the writers among them
            ended = row.take(self.queues[first : last + 1])
            if bool((ended >= np.arange(first, last + 1)).all()):
                return
        late = row.take(self.queues.take(writers, mode="clip")) < writers
        if late.any():
            raise _unordered(window, number, int(writers[late].min()) - 1, verb, "was written")

    def _check_readers(self, window: Window, number: int, queue: int) -> None:
        """Every command of a queue that read one of the words happens before this one, which writes them."""
        reader = int(np.maximum.reduce(window.readers(queue), axis=None))
        if reader == number and self.calls[number]:
            raise ProgramError(
                "a call's result lies on an operand that it does not overwrite in place",
                violation="overlap",
                command=number - 1,
                actual=window.shadow.name,
            )
        if reader > self.clocks[number, queue]:
            raise _unordered(window, number, reader - 1, "writes", "is read")


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
        raise _twice(window, number)
    else:
        raise ProgramError(
            f"writes bytes of {shadow.name} that command {latest - 1} has written",
            violation="write-once",
            command=number - 1,
        )


def _twice(window: Window, number: int) -> ProgramError:
    return ProgramError("writes a byte twice", violation="twice", command=number - 1, actual=window.shadow.name)


def _unordered(window: Window, number: int, other: int, verb: str, done: str) -> ProgramError:
    return ProgramError(
        f"{verb} bytes of {window.shadow.name} that {done} by command {other}, for which it does not wait",
        violation="dependency",
        command=number - 1,
        actual=f"no path of waits from command {other}",
        hint="Let it wait for that command, or for one that comes after it in its queue",
    )
