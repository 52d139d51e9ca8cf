"""Connections to Redis from one URL form, for redis-py and for Celery."""

from __future__ import annotations

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from compiler.errors import RequestError

_SOCKET_SCHEMES = ("redis+socket://", "unix://")


def client_url(url: str) -> str:
    """The URL as redis-py wants it; `redis+socket://path?virtual_host=N` becomes `unix://path?db=N`."""
    if url.startswith(_SOCKET_SCHEMES):
        rest = url.partition("://")[2]
        return "unix://" + rest.replace("virtual_host=", "db=")
    if url.startswith(("redis://", "rediss://")):
        return url
    raise RequestError(
        "a Redis URL begins with redis://, rediss://, unix:// or redis+socket://", code="invalid_setting"
    )


def celery_url(url: str) -> str:
    """The URL as Celery wants it; the reverse of `client_url`."""
    if url.startswith(_SOCKET_SCHEMES):
        rest = url.partition("://")[2]
        return "redis+socket://" + rest.replace("db=", "virtual_host=")
    return client_url(url)


def connect(url: str, *, text: bool = True, hurried: bool = False) -> redis.Redis:
    """A blocking client, for text or bytes; retries a lost connection for about a second.

    A hurried client is for optional work: it tries once and waits half a second at most.
    """
    return redis.Redis.from_url(
        client_url(url),
        decode_responses=text,
        retry=Retry(ExponentialBackoff(cap=0.4, base=0.05), 0 if hurried else 4),
        retry_on_error=[redis.ConnectionError],
        health_check_interval=15,
        socket_timeout=0.5 if hurried else 10,
    )


def connect_async(url: str) -> redis.asyncio.Redis:
    """A client for coroutines, with the same retries."""
    return redis.asyncio.Redis.from_url(
        client_url(url),
        decode_responses=True,
        retry=AsyncRetry(ExponentialBackoff(cap=0.4, base=0.05), 4),
        retry_on_error=[redis.ConnectionError],
        socket_timeout=None,  # it is used for blocking reads
        max_connections=5000,  # every event stream and every waiting request holds one
    )
