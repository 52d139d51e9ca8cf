"""One supervisor for one data directory."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import psutil

from app.errors import SetupError


class DirectoryLock:
    """A file lock that the supervisor and all of its children hold together.

    The children inherit the open file. After a hard kill of the supervisor the lock is free only when its last child
    has ended, so a new supervisor never meets an old Redis on the same files.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "supervisor.lock"
        self._descriptor = -1

    @property
    def descriptor(self) -> int:
        """The open file, for the children to inherit."""
        return self._descriptor

    def acquire(self, timeout_s: float = 10.0) -> None:
        """Take the lock; raises SetupError naming the process that has it."""
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + timeout_s
        while not self._try():
            owner = self._owner()
            if owner is not None or time.monotonic() > deadline:
                os.close(self._descriptor)
                self._descriptor = -1
                who = f"process {owner}" if owner is not None else "a process that is not ending"
                raise SetupError(
                    f"the data directory {self._path.parent} is in use by {who}",
                    code="data_dir_in_use",
                    stage="setup",
                    actual=owner,
                    hint="Stop that service or choose another directory with --data-dir",
                )
            time.sleep(0.05)  # its children are just ending
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()} {psutil.Process().create_time()}".encode(), 0)

    def release(self) -> None:
        """Give the lock back."""
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def _try(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _owner(self) -> int | None:
        """The supervisor that holds the lock, if it is alive and not another process with the same number."""
        words = os.pread(self._descriptor, 100, 0).decode("ascii", "replace").split()
        if len(words) != 2 or not words[0].isdecimal():
            return None
        try:
            process = psutil.Process(int(words[0]))
            same = abs(process.create_time() - float(words[1])) < 1
            alive = process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, ValueError):
            return None
        return process.pid if same and alive else None
