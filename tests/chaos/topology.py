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

from app.supervisor.redis_server import RedisServer, Role, socket_url
from compiler.version import COMPILER_VERSION
from tests.chaos.blobs import Blobs, BucketBlobs, FileBlobs
from tests.s3 import S3Server
from tests.service.harness import children_of, kill_all, program_of

OTHER_VERSION: Final = "99.0.0"
_HOUR_S: Final = 3600
# S3 refuses requests that are signed a quarter of an hour from its own time.
_S3_CLOCK_S: Final = 600
VERSIONS: Final = (COMPILER_VERSION, OTHER_VERSION)
# Short times, so that many failures and recoveries fit into a run; more attempts than faults can take from one job.
_SETTINGS: Final = {
    "TESSERA_LEASE_S": "5",
    "TESSERA_FIRST_RESEND_S": "0.5",
    "TESSERA_LAST_RESEND_S": "5",
    "TESSERA_STOP_GRACE_S": "1",
    "TESSERA_HUNG_AFTER_S": "30",
    "TESSERA_MAX_ATTEMPTS": "100",
    "TESSERA_WORKER_CONCURRENCY": "2",
    "TESSERA_REKEY_AFTER_S": "4",
    "TESSERA_COLLECT_INTERVAL_S": "10",
    "TESSERA_KEEP_UNUSED_S": "30",
}


class Topology(Protocol):
    """What faults and checks need to know of a running service."""

    @property
    def url(self) -> str: ...
    @property
    def version(self) -> str:
        """The compiler version that the service has at the moment."""

    @property
    def blobs(self) -> Blobs: ...
    @property
    def most_clock_shift_s(self) -> int: ...
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


def environment(folder: Path, version: str, more: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process of the service, which `versioned/sitecustomize.py` gives the version."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}
    here = Path(__file__).parent
    own = {
        "TESSERA_DATA_DIR": str(folder / "data"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join((str(here / "versioned"), str(here.parents[1]))),
        "CHAOS_VERSION": version,
    }
    return {**kept, **_SETTINGS, **own, **more}


def other(version: str) -> str:
    """The other one of the two versions."""
    return VERSIONS[1 - VERSIONS.index(version)]


def _works_in(process: psutil.Process, folder: Path) -> bool:
    with suppress(psutil.Error):
        return Path(process.cwd()) == folder
    return False


class Started:
    """A program of the service with its log; started again under the same name when it has ended."""

    def __init__(self, folder: Path, name: str, words: list[str], variables: dict[str, str], file: int = -1) -> None:
        self.log = folder / f"{name}.log"
        self.variables, self._words, self._file = variables, words, file
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Starts it (again)."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self._words,
                env=self.variables,
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
        kill_all([found for main in self.alive() for found in (*children_of(main), main)])
        self.process.wait(20)


@dataclass
class Embedded:
    """`tessera serve`, which looks after its parts; somebody else starts it again when it was killed itself."""

    folder: Path
    version: str = COMPILER_VERSION
    preload: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.blobs: Blobs = FileBlobs(self.folder / "data" / "blobs")
        self.most_clock_shift_s = _HOUR_S
        words = [sys.executable, "-m", "app.cli", "serve", "--port", str(port)]
        self._serve = Started(self.folder, "serve", words, environment(self.folder, self.version, self.preload))

    @property
    def broker_url(self) -> str:
        return socket_url(self.folder / "data" / Role.BROKER.value)

    def parts(self) -> tuple[str, ...]:
        return ("supervisor", "broker", "cache", "api", "worker", "child")

    def processes(self, part: str) -> list[psutil.Process]:
        mains = self._serve.alive()
        if part == "supervisor" or not mains:
            return mains
        below = [(found, program_of(found)) for found in children_of(mains[0])]
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
        return {"stop and start": lambda: self._serve.end(20), "stop, and start another version": self._upgrade}

    def _upgrade(self) -> None:
        self.version = other(self.version)
        self._serve.variables["CHAOS_VERSION"] = self.version
        self._serve.end(20)

    def look_after(self) -> None:
        if self._serve.process.poll() is not None:
            self._serve.start()

    def logs(self) -> list[Path]:
        return sorted((self.folder / "data" / "logs").glob("worker*.log"))

    def stop(self) -> None:
        self._serve.end(30)


class Separate:
    """API and two workers as processes of their own over two Redis, and perhaps S3; replaced one after the other."""

    def __init__(
        self, folder: Path, version: str, preload: Mapping[str, str] | None = None, s3: S3Server | None = None
    ) -> None:
        self.folder, self.version, self._preload, self._s3 = folder, version, preload or {}, s3
        folder.mkdir(parents=True, exist_ok=True)
        self.most_clock_shift_s = _HOUR_S if s3 is None else _S3_CLOCK_S
        copies = folder / "data" / "copies"
        self.blobs: Blobs = FileBlobs(folder / "data" / "blobs") if s3 is None else BucketBlobs(s3, folder.name, copies)
        self._redis_urls, self._redis = dict[Role, str](), dict[Role, Started]()
        for role in Role:
            server = RedisServer(role, folder / role.value, folder, -1)
            words = list(server.child.program)
            self._redis_urls[role] = server.url
            self._redis[role] = Started(folder, role.value, words, {**server.child.environment, **self._preload})
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._started = 0
        self._api = self._new_api()
        self._workers = [self._new_worker() for _ in range(2)]

    @property
    def broker_url(self) -> str:
        return self._redis_urls[Role.BROKER]

    def parts(self) -> tuple[str, ...]:
        return ("broker", "cache", "api", "worker", "child", *(() if self._s3 is None else ("s3",)))

    def processes(self, part: str) -> list[psutil.Process]:
        if part in ("broker", "cache"):
            return self._redis[{"broker": Role.BROKER, "cache": Role.CACHE}[part]].alive()
        if part == "s3":
            return [] if self._s3 is None else [psutil.Process(self._s3.child.pid)]
        if part == "api":
            return self._api.alive()
        mains = [found for worker in self._workers for found in worker.alive()]
        return mains if part == "worker" else [child for main in mains for child in children_of(main)]

    def everything(self) -> list[psutil.Process]:
        mains = [found for started in self._all() for found in started.alive()]
        return [found for main in mains for found in (main, *children_of(main))]

    def restarts(self) -> Mapping[str, Callable[[], object]]:
        return {"rolling restart": self._roll, "rolling restart with another version": self._upgrade}

    def look_after(self) -> None:
        for started in self._all():
            if started.process.poll() is not None:
                started.start()

    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("worker*.log"))

    def stop(self) -> None:
        for started in reversed(self._all()):
            started.kill()
        self._listener.close()

    def _all(self) -> list[Started]:
        return [*self._redis.values(), self._api, *self._workers]

    def _new(self, name: str, words: list[str], file: int = -1) -> Started:
        self._started += 1
        more = {
            "TESSERA_BROKER_URL": self._redis_urls[Role.BROKER],
            "TESSERA_CACHE_URL": self._redis_urls[Role.CACHE],
            "TESSERA_PORT": "0",
            **self._preload,
        }
        if self._s3 is not None:
            settings = self._s3.settings(self.folder.name)
            more |= self._s3.environment | {f"TESSERA_{key.upper()}": value for key, value in settings.items()}
        variables = environment(self.folder, self.version, more)
        return Started(self.folder, f"{name}{self._started}", [sys.executable, "-m", *words], variables, file)

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
        self.version = other(self.version)
        self._roll()
