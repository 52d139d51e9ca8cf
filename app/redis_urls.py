"""Connections to Redis from one URL form, for redis-py and for Celery."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Self, TypeVar

import redis
import redis.asyncio
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from compiler.errors import RequestError

T = TypeVar("T")

# Together less than two seconds: to connect to a server that is gone, and then for an answer.
API_PATIENCE_S: Final = 0.9
# A cache that does not answer is done without.
CACHE_PATIENCE_S: Final = 0.5
_KEPT_CONNECTIONS: Final = 16
_SOCKET_SCHEMES = ("redis+socket://", "unix://")


def client_url(url: str) -> str:
    """The URL as redis-py wants it; `redis+socket://path?virtual_host=N` becomes `unix://path?db=N`."""
    if url.startswith(_SOCKET_SCHEMES):
        rest = url.partition("://")[2]
        return "unix://" + rest.replace("virtual_host=", "db=")
    if url.startswith(("redis://", "rediss://")):
        return url
    raise RequestError(
        "a Redis URL begins with redis://, rediss://, unix:// or redis+socket://",
        code="invalid_setting",
        hint="Such as redis://localhost:6379/0",
    )


def celery_url(url: str) -> str:
    """The URL as Celery wants it; the reverse of `client_url`."""
    if url.startswith(_SOCKET_SCHEMES):
        rest = url.partition("://")[2]
        return "redis+socket://" + rest.replace("db=", "virtual_host=")
    return client_url(url)


class SkippedError(redis.TimeoutError):
    """A server was not asked, because it did not answer a moment ago."""


class Patience(Retry):
    """Tries a lost connection again, but asks a server that is not there or does not answer no more for a while.

    `call_with_retry` raises SkippedError at once during that while, so that many callers do not wait one after the
    other for a server that hangs. All connections of a client share one object.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(ExponentialBackoff(cap=0.1, base=0.01), 0, (redis.ConnectionError,))
        self._seconds = seconds
        self._silent_until = 0.0

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def call_with_retry(
        self,
        do: Callable[[], T],
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,
    ) -> T:
        """Returns what `do` returns; tries again while connections fail and time is left."""
        begun = time.monotonic()
        if begun < self._silent_until:
            raise SkippedError("the server did not answer a moment ago")
        failures = 0
        while True:
            try:
                return do()
            except redis.TimeoutError as error:
                self._silent_until = time.monotonic() + self._seconds
                fail(error, self._retries + 2) if with_failure_count else fail(error)
                raise
            except redis.ConnectionError as error:
                failures += 1
                fail(error, failures) if with_failure_count else fail(error)
                pause_s = self._backoff.compute(failures)
                if (is_retryable and not is_retryable(error)) or time.monotonic() + pause_s > begun + self._seconds:
                    self._silent_until = time.monotonic() + self._seconds
                    raise
                time.sleep(pause_s)


def connect(url: str, *, text: bool = True, patience_s: float | None = None) -> redis.Redis:
    """A blocking client, for text or bytes.

    It waits for an answer for `patience_s` and tries to connect for as long; without it, for 10 s and a few times.
    """
    if patience_s is not None:
        return redis.Redis.from_url(
            client_url(url),
            decode_responses=text,
            retry=Patience(patience_s),
            retry_on_error=[redis.ConnectionError],
            socket_timeout=patience_s,
            socket_connect_timeout=patience_s,
        )
    return redis.Redis.from_url(
        client_url(url),
        decode_responses=text,
        retry=Retry(ExponentialBackoff(cap=0.4, base=0.05), 4),
        retry_on_error=[redis.ConnectionError],
        health_check_interval=15,
        socket_timeout=10,
    )


class _Pool(redis.asyncio.ConnectionPool):
    """Closes connections that are not needed any more, beyond a few; redis-py keeps them all."""

    async def release(self, connection: AbstractConnection) -> None:
        await super().release(connection)
        while len(self._available_connections) > _KEPT_CONNECTIONS:
            await self._available_connections.pop(0).disconnect()


def connect_async(url: str, answer_s: float) -> redis.asyncio.Redis:
    """A client for coroutines, which waits for an answer for `answer_s`, blocking reads included."""
    pool = _Pool.from_url(
        client_url(url),
        decode_responses=True,
        retry=AsyncRetry(ExponentialBackoff(cap=0.2, base=0.05), 2, (redis.ConnectionError,)),
        retry_on_error=[redis.ConnectionError],
        socket_timeout=answer_s,
        max_connections=5000,  # every event stream and every waiting request holds one
    )
    return redis.asyncio.Redis.from_pool(pool)
