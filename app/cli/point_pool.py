"""Compiles the points of a sweep in processes of the command, without a service; a dead process loses no point."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from compiler.errors import TesseraError
from compiler.profile import Profile, profile_json

MAX_ATTEMPTS: Final = 3
_END_S: Final = 2.0


class Computed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a point: its figures as JSON, or its problem as `TesseraError.to_dict` gives it."""

    figures: str | None = None
    problem: dict[str, Any] | None = None


@dataclass(slots=True)
class _Slot:
    """One process and its present point, None while it is idle."""

    process: SpawnProcess
    connection: Connection
    number: int | None = None


@dataclass(slots=True)
class PointPool:
    """Up to `count` processes that compile one model with the same options; use as a context manager.

    The processes are started anew, not forked, because this process may have threads. At the end, also after Ctrl-C,
    they are killed.
    """

    model: Path
    settings: Sequence[str]
    count: int
    _slots: list[_Slot] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for slot in self._slots:
            slot.process.kill()
        for slot in self._slots:
            slot.process.join(_END_S)
            slot.connection.close()
        self._slots.clear()

    def run(self, profiles: Sequence[Profile]) -> Iterator[tuple[int, Computed]]:
        """Yields finished points with the number of their profile; each is tried at most MAX_ATTEMPTS times."""
        waiting = deque(range(len(profiles)))
        attempts = dict.fromkeys(waiting, 0)
        while waiting or any(slot.number is not None for slot in self._slots):
            self._deal(waiting, attempts, profiles)
            busy = [slot for slot in self._slots if slot.number is not None]
            ready = wait([slot.connection for slot in busy])
            for slot in (slot for slot in busy if slot.connection in ready):
                number = slot.number
                assert number is not None
                computed = self._received(slot)
                if computed is None and attempts[number] < MAX_ATTEMPTS:
                    waiting.appendleft(number)
                else:
                    yield number, _lost() if computed is None else computed

    def _deal(self, waiting: deque[int], attempts: dict[int, int], profiles: Sequence[Profile]) -> None:
        """Gives a point to each idle process, and starts processes while there are too few."""
        while waiting:
            idle = next((slot for slot in self._slots if slot.number is None), None)
            if idle is None:
                if len(self._slots) == self.count:
                    return
                idle = self._started()
            number = idle.number = waiting.popleft()
            attempts[number] += 1
            try:
                idle.connection.send_bytes(profile_json(profiles[number]))
            except OSError:  # it died while idle; reading from it will show that
                return

    def _started(self) -> _Slot:
        from app.cli.point_process import serve

        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, str(self.model), list(self.settings)), daemon=True)
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: only this process handles Ctrl-C
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, previous)
        theirs.close()
        slot = _Slot(process=process, connection=ours)
        self._slots.append(slot)
        return slot

    def _received(self, slot: _Slot) -> Computed | None:
        """Reads the answer of a process; if the process died, returns None and removes its slot."""
        try:
            computed = msgspec.json.decode(slot.connection.recv_bytes(), type=Computed)
        except (EOFError, OSError):
            slot.process.join(_END_S)
            slot.connection.close()
            self._slots.remove(slot)
            return None
        slot.number = None
        return computed


def _lost() -> Computed:
    error = TesseraError(
        "the process of this point died at each attempt",
        code="worker_lost",
        stage="sweep",
        actual=MAX_ATTEMPTS,
        limit=MAX_ATTEMPTS,
        hint="Set a memory_limit_bytes, or use fewer --workers",
    )
    return Computed(problem=error.to_dict())
