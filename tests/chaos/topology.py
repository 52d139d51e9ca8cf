"""The service of a run, as users start it: `tessera serve`, or its parts as processes of their own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import psutil

from app.supervisor.redis_server import RedisServer, Role

OTHER_VERSION: Final = "99.0.0"
# Short times, so that many failures and recoveries fit into a run; more attempts than faults can take from one job.
_SETTINGS: Final = {
    "TESSERA_LEASE_S": "2",
    "TESSERA_FIRST_RESEND_S": "0.5",
    "TESSERA_LAST_RESEND_S": "5",
    "TESSERA_STOP_GRACE_S": "1",
    "TESSERA_HUNG_AFTER_S": "12",
    "TESSERA_MAX_ATTEMPTS": "100",
    "TESSERA_WORKER_CONCURRENCY": "2",
}


class Topology(Protocol):
    """What faults and checks need to know of a running service."""

    @property
    def url(self) -> str: ...
    @property
    def store(self) -> Path: ...
    @property
    def broker_url(self) -> str: ...
    def parts(self) -> tuple[str, ...]:
        """Kinds of processes."""

    def processes(self, part: str) -> list[psutil.Process]:
        """Those of a kind which live."""

    def everything(self) -> list[psutil.Process]:
        """All processes, parents first."""

    def restarts(self) -> Mapping[str, Callable[[], object]]:
        """Restarts as an operator does them, by name."""

    def look_after(self) -> None:
        """Starts again what nobody else would: called every now and then."""

    def logs(self) -> list[Path]:
        """The logs of workers."""

    def stop(self) -> None:
        """Ends everything."""


def free_port() -> int:
    """A port that nobody has at the moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The variables of a process of the service."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}
    return {**kept, **_SETTINGS, "TESSERA_DATA_DIR": str(folder / "data"), "PYTHONUNBUFFERED": "1", **more}


def children_of(process: psutil.Process) -> list[psutil.Process]:
    """All descendants which live."""
    with suppress(psutil.Error):
        return [child for child in process.children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]
    return []


def _program(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _works_in(process: psutil.Process, folder: Path) -> bool:
    with suppress(psutil.Error):
        return Path(process.cwd()) == folder
    return False


class Started:
    """A program of the service with its log; started again under the same name when it has ended."""

    def __init__(self, folder: Path, name: str, words: list[str], variables: dict[str, str], file: int = -1) -> None:
        self.log = folder / f"{name}.log"
        self._words, self._variables, self._file = words, variables, file
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Starts it (again)."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *self._words],
                env=self._variables,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=() if self._file < 0 else (self._file,),
            )
        return self.process

    def alive(self) -> list[psutil.Process]:
        """The main process, if it lives."""
        return [psutil.Process(self.process.pid)] if self.process.poll() is None else []

    def end(self, patience_s: float) -> None:
        """Tells it to end; kills it and its children if it takes too long."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kills it and its children."""
        for process in [found for main in self.alive() for found in (*children_of(main), main)]:
            with suppress(psutil.Error):
                process.kill()
        self.process.wait(20)


@dataclass
class Embedded:
    """`tessera serve`, which looks after its parts; somebody else starts it again when it was killed itself."""

    folder: Path
    preload: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.store = self.folder / "data" / "blobs"
        words = ["-m", "app.cli", "serve", "--port", str(port)]
        self._serve = Started(self.folder, "serve", words, environment(self.folder, **self.preload))

    @property
    def broker_url(self) -> str:
        return f"unix://{self.folder / 'data' / 'redis' / 'redis.sock'}?db=0"

    def parts(self) -> tuple[str, ...]:
        return ("supervisor", "broker", "cache", "api", "worker", "child")

    def processes(self, part: str) -> list[psutil.Process]:
        mains = self._serve.alive()
        if part == "supervisor" or not mains:
            return mains
        below = [(found, _program(found)) for found in children_of(mains[0])]
        if part in ("broker", "cache"):
            folder = self.folder / "data" / {"broker": Role.BROKER, "cache": Role.CACHE}[part].value
            return [found for found, words in below if "redis-server" in words and _works_in(found, folder)]
        if part == "api":
            return [found for found, words in below if "app.server" in words]
        workers = [found for found, words in below if "-m worker" in words]
        pids = {found.pid for found in workers}
        if part == "worker":
            return [found for found in workers if found.ppid() not in pids]
        return [found for found in workers if found.ppid() in pids]

    def everything(self) -> list[psutil.Process]:
        return [found for main in self._serve.alive() for found in (main, *children_of(main))]

    def restarts(self) -> Mapping[str, Callable[[], object]]:
        return {"stop and start": lambda: self._serve.end(20)}

    def look_after(self) -> None:
        if self._serve.process.poll() is not None:
            self._serve.start()

    def logs(self) -> list[Path]:
        return sorted((self.folder / "data" / "logs").glob("worker*.log"))

    def stop(self) -> None:
        self._serve.end(30)


class Separate:
    """API and two workers as processes of their own over two Redis; they are replaced one after the other."""

    def __init__(self, folder: Path, version: str) -> None:
        self.folder, self.version = folder, version
        self.store = folder / "data" / "blobs"
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / "lock").open("w")
        self._servers = {role: self._server(role) for role in Role}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._started = 0
        self._api = self._new_api()
        self._workers = [self._new_worker() for _ in range(2)]
        self._ended: list[Path] = []

    @property
    def broker_url(self) -> str:
        return self._servers[Role.BROKER].url

    def parts(self) -> tuple[str, ...]:
        return ("api", "worker", "child")

    def processes(self, part: str) -> list[psutil.Process]:
        if part == "api":
            return self._api.alive()
        mains = [found for worker in self._workers for found in worker.alive()]
        return mains if part == "worker" else [child for main in mains for child in children_of(main)]

    def everything(self) -> list[psutil.Process]:
        mains = [found for started in (self._api, *self._workers) for found in started.alive()]
        return [found for main in mains for found in (main, *children_of(main))]

    def restarts(self) -> Mapping[str, Callable[[], object]]:
        return {"rolling restart": self._roll, "rolling restart with another version": self._upgrade}

    def look_after(self) -> None:
        for started in (self._api, *self._workers):
            if started.process.poll() is not None:
                started.start()

    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("worker*.log"))

    def stop(self) -> None:
        for started in (*self._workers, self._api):
            started.kill()
        for server in self._servers.values():
            server.child.wait(0)
        self._listener.close()
        self._lock.close()

    def _server(self, role: Role) -> RedisServer:
        server = RedisServer(role, self.folder / role.value, self.folder, self._lock.fileno())
        server.start()
        server.wait_until_ready()
        return server

    def _variables(self) -> dict[str, str]:
        urls = {role: server.url for role, server in self._servers.items()}
        return environment(
            self.folder, TESSERA_BROKER_URL=urls[Role.BROKER], TESSERA_CACHE_URL=urls[Role.CACHE], TESSERA_PORT="0"
        )

    def _new(self, name: str, words: list[str], file: int = -1) -> Started:
        self._started += 1
        words = ["-m", "tests.chaos.versioned", self.version, *words]
        return Started(self.folder, f"{name}{self._started}", words, self._variables(), file)

    def _new_api(self) -> Started:
        descriptor = self._listener.fileno()
        return self._new("api", ["app.server", "--listen-fd", str(descriptor)], descriptor)

    def _new_worker(self) -> Started:
        return self._new("worker", ["worker"])

    def _roll(self) -> None:
        """Starts the new one of each before the old one is told to end, as orchestrators do; patience is short."""
        for index, old in enumerate(self._workers):
            self._workers[index] = self._new_worker()
            time.sleep(1)
            old.end(3)
        api, self._api = self._api, self._new_api()
        time.sleep(1)
        api.end(6)

    def _upgrade(self) -> None:
        from compiler.version import COMPILER_VERSION

        self.version = OTHER_VERSION if self.version == COMPILER_VERSION else COMPILER_VERSION
        self._roll()
