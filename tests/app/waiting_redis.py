"""A real Redis behind a door that knows WAITAOF, which the Redis of the tests does not have yet."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path


@dataclass
class Door:
    """What came through, and what WAITAOF answers."""

    url: str
    synced: int = 1
    commands: list[tuple[int, str]] = field(default_factory=list)
    """Connection and name of each command, in order."""


def _line(file: BufferedReader) -> bytes:
    line = file.readline()
    if not line:
        raise EOFError
    return line


def _value(file: BufferedReader) -> bytes:
    """One value of the protocol, as it came."""
    line = _line(file)
    kind = line[:1]
    count = int(line[1:]) if kind in b"$=*~>%" else -1
    if kind in b"$=":
        return line + (file.read(count + 2) if count >= 0 else b"")
    return line + b"".join(_value(file) for _ in range(2 * count if kind == b"%" else count))


@contextmanager
def door(real: Path, path: Path) -> Iterator[Door]:
    """Opens a door at `path` to the Redis whose socket is `real`."""
    state = Door(f"unix://{path}?db=0")

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as inner:
                inner.connect(str(real))
                answers = inner.makefile("rb")
                while True:
                    try:
                        command = _value(self.rfile)  # type: ignore[arg-type]
                    except (EOFError, ConnectionError):
                        return
                    name = command.split(b"\r\n")[2].decode().upper()
                    state.commands.append((id(self), name))
                    if name == "WAITAOF":
                        self.wfile.write(b"*2\r\n:%d\r\n:0\r\n" % state.synced)
                        continue
                    inner.sendall(command)
                    self.wfile.write(_value(answers))

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    with Server(str(path), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield state
        server.shutdown()
