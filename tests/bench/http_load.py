"""A client that takes little of the machine: requests over some connections, each as soon as the last is answered.

`python -m tests.bench.http_load PORT CONNECTIONS`; reads one line of JSON per round (`target`, `headers`, `requests`)
and prints one: seconds, the milliseconds of each answer, and how many answers had each status.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final, cast

import msgspec
import uvloop

_HEAD: Final = re.compile(rb"HTTP/1\.1 (\d{3}) .*?\r\n\r\n", re.DOTALL)
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_WITHIN_S: Final = 60.0


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask for."""

    target: str
    headers: dict[str, str]
    requests: int


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a round."""

    seconds: float
    ms: list[float]
    statuses: dict[int, int]

    @property
    def per_s(self) -> float:
        """Requests per second."""
        return len(self.ms) / self.seconds


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._data = bytearray()
        self._end = 0
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[None] | None = None
        self._request = b""
        self._left: list[int] = []
        self._sent_at = 0.0
        self.ms: list[float] = []
        self.statuses: Counter[int] = Counter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionResetError("the server closed a connection"))

    async def ask(self, request: bytes, left: list[int]) -> None:
        """Ask again and again while `left`, which the connections share, is not empty."""
        self._request, self._left, self.ms, self.statuses = request, left, [], Counter()
        self._done = asyncio.get_running_loop().create_future()
        self._next()
        await self._done

    def _next(self) -> None:
        assert self._done is not None
        assert self._transport is not None
        if not self._left:
            self._done.set_result(None)
            return
        self._left.pop()
        self._sent_at = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if not self._end:
            head = _HEAD.match(self._data)
            if head is None:
                return
            length = _LENGTH.search(head[0])
            self.statuses[int(head[1])] += 1
            self._end = head.end() + (int(length[1]) if length else 0)
        if len(self._data) >= self._end:
            self.ms.append(1000 * (time.perf_counter() - self._sent_at))
            self._data.clear()
            self._end = 0
            self._next()


async def _serve(port: int, count: int) -> None:
    loop = asyncio.get_running_loop()
    for line in sys.stdin:
        asked = msgspec.json.decode(line, type=Round)
        # opened anew: between rounds the service closes what is idle
        connections = [(await loop.create_connection(_Connection, "127.0.0.1", port))[1] for _ in range(count)]
        left = [0] * asked.requests
        headers = {"Host": f"127.0.0.1:{port}", **asked.headers}
        lines = [f"GET {asked.target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        request = ("\r\n".join(lines) + "\r\n\r\n").encode()
        begun = time.perf_counter()
        async with asyncio.timeout(_WITHIN_S):
            await asyncio.gather(*(one.ask(request, left) for one in connections))
        seconds = time.perf_counter() - begun
        ms = [each for one in connections for each in one.ms]
        print(_line(seconds, ms, sum((one.statuses for one in connections), Counter())), flush=True)
        for one in connections:
            assert one._transport is not None
            one._transport.abort()


def _line(seconds: float, ms: list[float], statuses: Mapping[int, int]) -> str:
    return msgspec.json.encode(Answers(seconds=seconds, ms=ms, statuses=dict(statuses))).decode()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
