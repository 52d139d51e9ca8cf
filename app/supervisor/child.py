"""One supervised process and its log file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BufferedWriter
from pathlib import Path
from typing import IO

from app.private_files import private_file

_LOG_BYTES = 4 * 1024 * 1024


def own_environment() -> dict[str, str]:
    """The variables of this process without our settings, which each child is given as they are meant for it."""
    return {name: value for name, value in os.environ.items() if not name.upper().startswith("TESSERA_")}


@dataclass(slots=True)
class Child:
    """A program that runs as long as the supervisor does.

    It has a session of its own, so that Ctrl-C reaches only the supervisor. Linux kills it if the supervisor dies.
    """

    name: str
    program: Sequence[str]
    log_path: Path
    environment: Mapping[str, str]
    inherited: Sequence[int] = ()
    _process: subprocess.Popen[bytes] | None = None
    _pump: threading.Thread | None = field(default=None)

    @property
    def pid(self) -> int:
        """The process id; raises RuntimeError before the first start."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process.pid

    def start(self) -> None:
        """Start the program, or start it again; raises OSError or RuntimeError if no process or thread is available."""
        launcher = Path(__file__).with_name("launch.py")
        death = [sys.executable, "-I", "-S", str(launcher), str(int(signal.SIGKILL)), str(os.getpid())]
        self._process = subprocess.Popen(
            [*death, *self.program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=tuple(self.inherited),
            env=dict(self.environment),
        )
        assert self._process.stdout is not None
        pump = threading.Thread(
            target=_pump, args=(self._process.stdout, self.log_path), name=f"log-{self.name}", daemon=True
        )
        try:
            pump.start()
        except RuntimeError:  # nobody would read what it says, and it would stand still
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            raise
        self._pump = pump

    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    def signal(self, sig: signal.Signals) -> None:
        """Send a signal, if it is alive."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(sig)

    def end(self, pid: int, timeout_s: float) -> None:
        """Tells a process of this child to end, and kills it if it takes too long; its successor is left alone."""
        process = self._process
        if process is None or process.pid != pid:
            return
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()

    def wait(self, timeout_s: float) -> None:
        """Waits for the end, and kills the program if it takes too long."""
        if self._process is None:
            return
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._pump is not None:
            self._pump.join(timeout=1)


def _pump(pipe: IO[bytes], path: Path) -> None:
    """Copies a child's output to its log file, which is bounded in size and keeps one predecessor.

    A disk that is full does not stop the child: what finds no room is dropped, and the file goes on when there is some.
    """
    descriptor, file = pipe.fileno(), None
    while chunk := os.read(descriptor, 65536):
        try:
            if file is not None and file.tell() + len(chunk) > _LOG_BYTES:
                file.close()
                path.replace(path.with_suffix(".1.log"))
                file = None
            if file is None:
                file = BufferedWriter(private_file(path, "a"))
            file.write(chunk)
            file.flush()
        except OSError:
            if file is not None:
                with suppress(OSError):
                    file.close()
            file = None
    if file is not None:
        file.close()
    pipe.close()
