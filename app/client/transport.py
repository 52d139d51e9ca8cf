"""How requests go out: awaited, or blocking behind the same awaitable interface.

asyncio is imported where it is used: the command line does without it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ParamSpec, Protocol, TypeVar

import httpx

P = ParamSpec("P")
T = TypeVar("T")


class Transport(Protocol):
    """A connection to one service. `arguments` are those of `httpx.Client.request`."""

    async def request(
        self, method: str, path: str, *, content: bytes | Iterable[bytes] | None, **arguments: Any
    ) -> httpx.Response:
        """Send a request, `content` piece by piece, and read the whole answer."""

    def stream(self, path: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[httpx.Response]:
        """A GET whose answer is read as it comes."""

    def lines(self, answer: httpx.Response) -> AsyncIterator[str]:
        """The lines of an answer."""

    def pieces(self, answer: httpx.Response, size_bytes: int) -> AsyncIterator[bytes]:
        """The bytes of an answer."""

    async def read(self, answer: httpx.Response) -> None:
        """Read the whole answer."""

    async def sleep(self, duration_s: float) -> None:
        """Wait."""

    async def apart(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do what takes a while without the network."""

    def interruptions(self) -> tuple[type[BaseException], ...]:
        """What ends a wait from outside."""

    async def close(self) -> None:
        """Close the connections."""


class AwaitedTransport:
    """Requests on the event loop of the caller."""

    def __init__(self, url: str, timeout_s: float) -> None:
        # The user's own service: no proxy of the environment stands between.
        self._http = httpx.AsyncClient(base_url=url, timeout=timeout_s, trust_env=False)

    async def request(
        self, method: str, path: str, *, content: bytes | Iterable[bytes] | None, **arguments: Any
    ) -> httpx.Response:
        """Send a request, `content` piece by piece, and read the whole answer."""

        async def sent(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        body = content if content is None or isinstance(content, bytes) else sent(content)
        return await self._http.request(method, path, content=body, **arguments)

    @asynccontextmanager
    async def stream(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        """A GET whose answer is read as it comes."""
        async with self._http.stream("GET", path, headers=headers) as answer:
            yield answer

    def lines(self, answer: httpx.Response) -> AsyncIterator[str]:
        """The lines of an answer."""
        return answer.aiter_lines()

    def pieces(self, answer: httpx.Response, size_bytes: int) -> AsyncIterator[bytes]:
        """The bytes of an answer."""
        return answer.aiter_bytes(size_bytes)

    async def read(self, answer: httpx.Response) -> None:
        """Read the whole answer."""
        await answer.aread()

    async def sleep(self, duration_s: float) -> None:
        """Wait; others go on."""
        import asyncio

        await asyncio.sleep(duration_s)

    async def apart(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do what takes a while without the network, in a thread."""
        import asyncio

        return await asyncio.to_thread(work, *args, **kwargs)

    def interruptions(self) -> tuple[type[BaseException], ...]:
        """Ctrl-C, and that a task is cancelled."""
        import asyncio

        return KeyboardInterrupt, asyncio.CancelledError

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


class BlockingTransport:
    """Requests that block; nothing here is ever suspended, so `send(None)` runs a caller's coroutine to its end."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._http = httpx.Client(base_url=url, timeout=timeout_s, trust_env=False)

    async def request(
        self, method: str, path: str, *, content: bytes | Iterable[bytes] | None, **arguments: Any
    ) -> httpx.Response:
        """Send a request, `content` piece by piece, and read the whole answer."""
        return self._http.request(method, path, content=content, **arguments)

    @asynccontextmanager
    async def stream(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        """A GET whose answer is read as it comes."""
        with self._http.stream("GET", path, headers=headers) as answer:
            yield answer

    async def lines(self, answer: httpx.Response) -> AsyncIterator[str]:
        """The lines of an answer."""
        for line in answer.iter_lines():
            yield line

    async def pieces(self, answer: httpx.Response, size_bytes: int) -> AsyncIterator[bytes]:
        """The bytes of an answer."""
        for piece in answer.iter_bytes(size_bytes):
            yield piece

    async def read(self, answer: httpx.Response) -> None:
        """Read the whole answer."""
        answer.read()

    async def sleep(self, duration_s: float) -> None:
        """Wait."""
        time.sleep(duration_s)

    async def apart(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do what takes a while without the network."""
        return work(*args, **kwargs)

    def interruptions(self) -> tuple[type[BaseException], ...]:
        """Ctrl-C."""
        return (KeyboardInterrupt,)

    async def close(self) -> None:
        """Close the connections."""
        self._http.close()
