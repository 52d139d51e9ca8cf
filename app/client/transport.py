"""Sends requests: awaited, or blocking behind the same awaitable interface.

asyncio is imported where it is used, because the command line does not need it.
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
        """Sends a GET and reads its answer as it arrives."""

    def lines(self, answer: httpx.Response) -> AsyncIterator[str]:
        """The lines of an answer."""

    def pieces(self, answer: httpx.Response, size_bytes: int) -> AsyncIterator[bytes]:
        """The bytes of an answer."""

    async def read(self, answer: httpx.Response) -> None:
        """Read the whole answer."""

    async def sleep(self, duration_s: float) -> None:
        """Waits."""

    async def apart(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs slow work that does not use the network."""

    def interruptions(self) -> tuple[type[BaseException], ...]:
        """The exceptions that interrupt a wait."""

    async def close(self) -> None:
        """Close the connections."""


class AwaitedTransport:
    """Requests on the event loop of the caller."""

    def __init__(self, url: str, timeout_s: float, headers: Mapping[str, str]) -> None:
        # The user's own service: no proxy from the environment is used.
        self._http = httpx.AsyncClient(base_url=url, timeout=timeout_s, trust_env=False, headers=headers)

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
        """Sends a GET and reads its answer as it arrives."""
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
        """Waits; other tasks continue."""
        import asyncio

        await asyncio.sleep(duration_s)

    async def apart(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs slow work that does not use the network in a thread."""
        import asyncio

        return await asyncio.to_thread(work, *args, **kwargs)

    def interruptions(self) -> tuple[type[BaseException], ...]:
        """The exceptions that interrupt a wait: Ctrl-C, and the cancellation of a task."""
        import asyncio

        return KeyboardInterrupt, asyncio.CancelledError

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


class BlockingTransport:
    """Requests that block; nothing here ever suspends, so `send(None)` runs a caller's coroutine to its end."""

    def __init__(self, url: str, timeout_s: float, headers: Mapping[str, str]) -> None:
        self._http = httpx.Client(base_url=url, timeout=timeout_s, trust_env=False, headers=headers)

    async def request(
        self, method: str, path: str, *, content: bytes | Iterable[bytes] | None, **arguments: Any
    ) -> httpx.Response:
        """Send a request, `content` piece by piece, and read the whole answer."""
        return self._http.request(method, path, content=content, **arguments)

    @asynccontextmanager
    async def stream(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        """Sends a GET and reads its answer as it arrives."""
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
        """Waits."""
        time.sleep(duration_s)

    async def apart(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs slow work that does not use the network."""
        return work(*args, **kwargs)

    def interruptions(self) -> tuple[type[BaseException], ...]:
        """The exceptions that interrupt a wait: Ctrl-C."""
        return (KeyboardInterrupt,)

    async def close(self) -> None:
        """Close the connections."""
        self._http.close()
