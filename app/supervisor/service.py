"""The embedded service (API-2): starts two Redis, the worker and the API, and restarts those that die or hang."""

from __future__ import annotations

import errno
import logging
import shutil
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import redis

from app.errors import SetupError
from app.jobs.identity import Identity
from app.jobs.queue import UNACKED_KEYS
from app.jobs.records import LEASES_KEY, Records
from app.private_files import check_writable, close_to_others, private_folder, unusable
from app.redis_urls import connect
from app.settings import Settings
from app.stopping import API_STOP_S
from app.stores import open_stores
from app.supervisor import hung
from app.supervisor.child import Child, own_environment
from app.supervisor.lock import DirectoryLock
from app.supervisor.redis_server import RedisServer, Role

_WATCH_S = 0.05
_FIRST_BACKOFF_S = 0.1
_LAST_BACKOFF_S = 5.0
_STEADY_S = 10.0
_DEATHS_AT_START = 3
# Each look whether there is space writes to a disk that is full.
_DISK_FULL_S = 1.0
_WORKER_STOP_S = 3.0
_ASK_S = 1.0
# A hung child is told to end, and killed after this time.
_END_S = 5.0

log = logging.getLogger(__name__)


class EmbeddedService:
    """Two Redis servers, a worker and the API under this process; use as a context manager.

    Invariants: the children never outlive this process, however it ends; no two services share a data directory;
    accepted jobs are in the broker's append-only file and resume at the next start.
    """

    def __init__(self, settings: Settings) -> None:
        self._data_dir = settings.data_dir.absolute()
        self._settings = settings.model_copy(update={"data_dir": self._data_dir})
        self._lock = DirectoryLock(self._data_dir)
        self._listener: socket.socket | None = None
        self._children: list[Child] = []
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None
        self._asker: threading.Thread | None = None
        self._idle = threading.Event()
        self._released = threading.Event()
        self._stop_once = threading.Lock()
        self._deaths: dict[str, int] = {}
        self._servers: dict[Role, RedisServer] = {}

    @property
    def url(self) -> str:
        """URL of the API; known once started."""
        assert self._listener is not None
        host, port = self._listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of the children by name."""
        return {child.name: child.pid for child in self._children}

    @property
    def settings(self) -> Settings:
        """The settings of this service."""
        return self._settings

    @property
    def broker_url(self) -> str:
        """The Redis of the records; known once started."""
        return self._servers[Role.BROKER].url

    @property
    def cache_url(self) -> str:
        """The Redis of what may be lost; known once started."""
        return self._servers[Role.CACHE].url

    @property
    def data_dir(self) -> Path:
        """The data directory."""
        return self._data_dir

    @property
    def log_dir(self) -> Path:
        """The folder of the children's logs."""
        return self._data_dir / "logs"

    def start(self) -> None:
        """Starts everything; if it raises SetupError, everything is stopped again."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def wait_until(self, path: str = "/readyz", timeout_s: float = 60.0) -> None:
        """Returns when `/livez` (it answers) or `/readyz` (it can work) succeeds.

        Raises SetupError if that takes too long or a part of the service keeps dying.
        """
        deadline = time.monotonic() + timeout_s
        with httpx.Client(base_url=self.url, timeout=0.5, trust_env=False) as client:
            while time.monotonic() < deadline and not self._stopping.is_set():
                with suppress(httpx.HTTPError):
                    if client.get(path).status_code == 200:
                        return
                dying = [name for name, deaths in self._deaths.items() if deaths >= _DEATHS_AT_START]
                if dying:
                    raise SetupError(
                        f"the embedded service cannot start: {dying[0]} ends as soon as it begins",
                        code="start_failed",
                        stage="setup",
                        actual=dying[0],
                        hint=f"See {self.log_dir / dying[0]}.log",
                    )
                time.sleep(0.02)
        raise SetupError(
            "the embedded service did not become ready",
            code="not_ready",
            stage="setup",
            actual=f"{timeout_s:.0f} s",
            hint=f"See the logs in {self.log_dir}",
        )

    def stop(self) -> None:
        """Stops everything, workers first, Redis last. Unfinished jobs resume at the next start."""
        with self._stop_once:
            self._stopping.set()
            if self._watcher is not None:
                # It lives until its children have stopped: its forked children die with it (PR_SET_PDEATHSIG).
                self._idle.wait()
            if self._asker is not None:
                self._asker.join()
                self._asker = None
            for child in self._children:
                if child.name in ("api", "worker"):
                    child.signal(signal.SIGTERM)
            for child in self._children:
                if child.name == "api":
                    child.wait(API_STOP_S)
                elif child.name == "worker":
                    # Celery stops slowly even when idle. Without leases there is nothing to wait for, and an
                    # interrupted lease is taken up at the next start.
                    deadline = time.monotonic() + _WORKER_STOP_S
                    while child.running() and time.monotonic() < deadline and self._leases_held():
                        time.sleep(0.02)
                    child.wait(0)
            for child in self._children:
                child.signal(signal.SIGTERM)
                child.wait(5.0)
            if self._watcher is not None:
                self._released.set()
                self._watcher.join()
                self._watcher = None
            for server in self._servers.values():
                server.remove_socket()
            self._children.clear()
            if self._listener is not None:
                self._listener.close()
            self._lock.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        try:
            close_to_others(self._data_dir)
            for folder in (self._data_dir, self.log_dir, self._data_dir / "tmp"):
                private_folder(folder)
        except OSError as error:
            raise unusable(self._data_dir, error) from None
        self._lock.acquire()
        self._identity = Identity.present(self._settings)
        stores = open_stores(self._settings)
        for store in (stores.models, stores.documents):
            store.remove_temporary()
        for leftover in (self._data_dir / "tmp").iterdir():
            shutil.rmtree(leftover, ignore_errors=True)
        self._listener = self._listen()
        for role in Role:
            server = RedisServer(role, self._data_dir / role.value, self.log_dir, self._lock.descriptor)
            self._servers[role] = server
            self._children.append(server.child)
            server.start()
        # It loads while the servers do. The worker must not see the old messages, so it starts after the purge.
        api = self._api()
        self._children.append(api)
        api.start()
        for server in self._servers.values():
            server.wait_until_ready()
        self._recover()
        worker = self._worker()
        self._children.append(worker)
        worker.start()
        self._watcher = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self._watcher.start()
        self._asker = threading.Thread(target=self._ask, name="supervisor-hung", daemon=True)
        self._asker.start()

    def _may_start(self, child: Child) -> bool:
        """Whether it makes sense to start a child: a Redis that cannot write ends at once."""
        if child.name not in (role.value for role in Role):
            return True
        try:
            check_writable(self._data_dir / child.name)
        except OSError:
            return False
        return True

    def _listen(self) -> socket.socket:
        """The API's listening socket, held here: while the API restarts, callers wait and are not refused."""
        host, port = self._settings.host, self._settings.port
        listener: socket.socket | None = None
        try:
            family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(family, kind)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
        except OSError as error:
            if listener is not None:
                listener.close()
            is_of_host = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
            raise SetupError(
                f"cannot listen on {host} port {port}: {error.strerror}",
                code="host_unknown" if is_of_host else "port_taken",
                stage="setup",
                actual=host if is_of_host else port,
                hint="Choose an address of this machine with --host, such as 127.0.0.1"
                if is_of_host
                else "Choose another with --port, or --port 0 for any that is free",
            ) from None
        return listener

    def _recover(self) -> None:
        """Remakes Celery's messages from the queues; every lease belonged to a process that is gone."""
        client = connect(self.broker_url.removesuffix("0") + "1")
        client.flushdb()  # where versions before 0.12 kept the cache, which would never be evicted now
        client.close()
        client = connect(self.broker_url)
        client.delete(*UNACKED_KEYS)
        Records(client, self._settings, self._identity).restart()
        client.close()

    def _leases_held(self) -> bool:
        client = connect(self.broker_url, patience_s=hung.ANSWER_S)
        try:
            return int(str(client.zcard(LEASES_KEY))) > 0
        except redis.RedisError:
            return False  # nothing can be published either
        finally:
            client.close()

    def _api(self) -> Child:
        assert self._listener is not None
        descriptor = self._listener.fileno()
        return Child(
            name="api",
            program=[sys.executable, "-m", "app.server", "--listen-fd", str(descriptor)],
            log_path=self.log_dir / "api.log",
            environment=self._environment(),
            inherited=(self._lock.descriptor, descriptor),
        )

    def _worker(self) -> Child:
        return Child(
            name="worker",
            program=[sys.executable, "-m", "worker"],
            log_path=self.log_dir / "worker.log",
            environment=self._environment(),
            inherited=(self._lock.descriptor,),
        )

    def _environment(self) -> dict[str, str]:
        """The settings as environment variables for the children; they override the present environment."""
        settings = self._settings.model_copy(update={"broker_url": self.broker_url, "cache_url": self.cache_url})
        values = settings.model_dump(mode="json", exclude_none=True)
        ours = {f"TESSERA_{name.upper()}": str(value) for name, value in values.items()}
        own = {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1", "TMPDIR": str(self._data_dir / "tmp")}
        return {**own_environment(), **ours, **own}

    def _watch(self) -> None:
        """Restarts dead children: at once the first time, then with growing delays while they keep dying."""
        backoff = {child.name: _FIRST_BACKOFF_S for child in self._children}
        started = {child.name: time.monotonic() for child in self._children}
        due: dict[str, float] = {}
        while not self._stopping.wait(_WATCH_S):
            now = time.monotonic()
            for child in self._children:
                if child.running():
                    if now - started[child.name] > _STEADY_S:
                        backoff[child.name] = _FIRST_BACKOFF_S
                        self._deaths.pop(child.name, None)
                elif child.name not in due:
                    self._deaths[child.name] = self._deaths.get(child.name, 0) + 1
                    due[child.name] = now + backoff[child.name]
                    backoff[child.name] = min(2 * backoff[child.name], _LAST_BACKOFF_S)
                elif now >= due[child.name] and not self._may_start(child):
                    due[child.name] = now + _DISK_FULL_S
                elif now >= due[child.name]:
                    del due[child.name]
                    started[child.name] = now
                    # no memory, process or thread available: the child counts as dead again
                    with suppress(OSError, RuntimeError):
                        child.start()
        self._idle.set()
        self._released.wait()

    def _ask(self) -> None:
        """Ends children that give no sign of life for `hung_after_s`; `_watch` then restarts them."""
        assert self._listener is not None
        host, port = self._listener.getsockname()[:2]
        address = ({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)
        clients = {role: connect(server.url, patience_s=hung.ANSWER_S) for role, server in self._servers.items()}
        silence = hung.Silence(self._settings.hung_after_s)
        while not self._stopping.wait(_ASK_S):
            children = {child.pid: child for child in self._children if child.running()}
            answers: dict[int, bool | None] = {}
            for pid, child in children.items():
                if child.name == "api":
                    answers[pid] = hung.api_answers(address)
                elif child.name == "worker":
                    answers[pid] = hung.worker_answers(clients[Role.BROKER], pid)
                else:
                    answers[pid] = hung.redis_answers(clients[Role(child.name)])
            found = silence.look(answers)
            if found is not None and not self._stopping.is_set():
                self._end(children[found], found, clients[Role.BROKER])
        for client in clients.values():
            client.close()

    def _end(self, child: Child, pid: int, broker: redis.Redis) -> None:
        """Ends a hung child, by force if it does not end by itself; what its worker was doing counts as no attempt."""
        log.warning("%s (process %d) gives no sign of life and is restarted", child.name, pid)
        if child.name == "worker":
            hung.note_stop(broker, self._settings, self._identity, pid)
        child.end(pid, _END_S)
