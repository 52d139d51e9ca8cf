"""What is done to the service while it works; each fault ends by itself and leaves the service to recover."""

from __future__ import annotations

import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from tests.chaos.topology import Topology

_APPEARS_S: Final = 5.0


class Control:
    """The shared file that preload.c reads: three numbers in the order of its struct."""

    def __init__(self, shared: mmap.mmap) -> None:
        self._shared = shared

    def set(
        self, *, clock_shift_s: int | None = None, sync_ms: int | None = None, disk_full: bool | None = None
    ) -> None:
        """Sets what is given."""
        for index, value in enumerate((clock_shift_s, sync_ms, disk_full)):
            if value is not None:
                struct.pack_into("@l", self._shared, index * struct.calcsize("@l"), int(value))


@contextmanager
def control(path: Path) -> Iterator[Control]:
    """Makes the shared file, with nothing wrong."""
    path.write_bytes(bytes(mmap.PAGESIZE))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), mmap.PAGESIZE) as shared:
        yield Control(shared)


def preloadable(folder: Path) -> Path | None:
    """The preloaded library; None, said aloud, where there is no C compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        print("no C compiler: no slow disk, full disk or set clock")
        return None
    library = (folder / "preload.so").absolute()
    source = Path(__file__).with_name("preload.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    return library


@dataclass(slots=True)
class Faults:
    """All faults by name; `preloaded` is None where no library could be built, which leaves out what needs it."""

    topology: Topology
    dice: random.Random
    word: str = ""
    preloaded: Control | None = None
    missed: list[str] = field(default_factory=list)
    """Kinds of processes that were not running when one was to be hit."""

    def kinds(self) -> Mapping[str, Callable[[], object]]:
        """The faults that this topology can have, those with the word in their name."""
        found: dict[str, Callable[[], object]] = {}
        for part in self.topology.parts():
            if part != "s3":  # not of the service; tests/service/test_s3.py has it absent
                found[f"kill {part}"] = lambda part=part: self._kill(part)  # type: ignore[misc]
            found[f"freeze {part}"] = lambda part=part: self._freeze(part)  # type: ignore[misc]
        found["freeze everything"] = self._freeze_all
        for folder in ("models", "documents"):
            found[f"flip a byte in {folder}"] = lambda folder=folder: self._damage(folder, _flipped)  # type: ignore[misc]
            found[f"truncate one of {folder}"] = lambda folder=folder: self._damage(folder, _cut)  # type: ignore[misc]
        found |= self.topology.restarts()
        if self.preloaded is not None:
            found["slow disk, then kill the broker"] = self._slow_disk
            found["full disk"] = self._full_disk
            found["set the clock"] = self._set_clock
        return {name: fault for name, fault in found.items() if self.word in name}

    def _kill(self, part: str) -> None:
        for process in self._some(part):
            with suppress(psutil.Error):
                process.kill()

    def _kill_if_any(self, part: str) -> None:
        for process in self.topology.processes(part)[:1]:
            with suppress(psutil.Error):
                process.kill()

    def _freeze(self, part: str) -> None:
        with _stopped(self._some(part)):
            time.sleep(self.dice.choice((0.3, 1.0, 2.5, 6.0)))

    def _freeze_all(self) -> None:
        with _stopped(self.topology.everything()):
            time.sleep(self.dice.uniform(1, 8))

    def _some(self, part: str) -> list[psutil.Process]:
        """One process of a kind; waited for, as it may just be started again."""
        ends_at = time.monotonic() + _APPEARS_S
        while not (found := self.topology.processes(part)) and time.monotonic() < ends_at:
            time.sleep(0.05)
        if not found:
            self.missed.append(part)
        return [self.dice.choice(found)] if found else []

    def _damage(self, folder: str, how: Callable[[bytes, random.Random], bytes]) -> None:
        self.topology.blobs.damage(folder, self.dice, lambda data: how(data, self.dice))

    def _slow_disk(self) -> None:
        assert self.preloaded is not None
        self.preloaded.set(sync_ms=self.dice.choice((200, 600, 1500)))
        time.sleep(self.dice.uniform(1, 4))
        self._kill_if_any("broker")
        self.preloaded.set(sync_ms=0)

    def _full_disk(self) -> None:
        assert self.preloaded is not None
        self.preloaded.set(disk_full=True)
        time.sleep(self.dice.uniform(0.5, 4))
        if self.dice.random() < 0.5:
            self._kill_if_any("broker")  # it may have ended by itself
            time.sleep(0.5)
        self.preloaded.set(disk_full=False)

    def _set_clock(self) -> None:
        assert self.preloaded is not None
        most_s = self.topology.most_clock_shift_s
        self.preloaded.set(clock_shift_s=self.dice.choice((-most_s, -90, 0, 90, most_s)))
        if self.dice.random() < 0.5:
            self._kill_if_any(self.dice.choice(("worker", "child")))


@contextmanager
def _stopped(processes: list[psutil.Process]) -> Iterator[None]:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)


def _flipped(data: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << dice.randrange(8))]) + data[place + 1 :]


def _cut(data: bytes, dice: random.Random) -> bytes:
    return data[: dice.randrange(len(data))]
