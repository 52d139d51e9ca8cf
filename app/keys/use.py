"""How much a key is used at this moment: its requests in the cache's Redis, its uploads in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import resources
from math import ceil
from typing import Final, ParamSpec, TypeVar

import redis
from anyio import CapacityLimiter, to_thread

from app.cache_losses import CacheLosses
from app.errors import QuotaError
from app.keys.owners import Owner
from app.redis_urls import SkippedError
from app.shared_exchanges import SharedExchanges

P = ParamSpec("P")
T = TypeVar("T")

# Threads for uploads alone: as many parts of files are on their way to a bucket, four each.
_PUT_AT_ONCE: Final = 16
_UPLOAD_RETRY_S: Final = 2
# Room comes by deleting, so callers need not hurry.
_ROOM_RETRY_S: Final = 300


class RequestRates:
    """Counts requests by key; without the cache none is refused, as the service goes on without it."""

    def __init__(self, cache: SharedExchanges, losses: CacheLosses) -> None:
        self._cache = cache
        self._take = (resources.files("app.keys") / "scripts" / "take.lua").read_text()
        self._losses = losses

    async def take(self, owner: Owner) -> None:
        """Counts a request; raises QuotaError if the key has sent too many."""
        most = owner.limits.requests_per_minute
        try:
            wait_ms = int(await self._cache.ask("EVAL", self._take, "0", owner.key, str(most)))
        except SkippedError:
            return
        except redis.RedisError as error:
            await to_thread.run_sync(self._losses.note, error)
            return
        if wait_ms:
            raise QuotaError(
                "too many requests were sent with this key",
                code="too_many_requests",
                actual=f"more than {most} per minute",
                limit=most,
                hint="Wait as long as Retry-After says; `Prefer: wait=30` takes fewer requests than asking again",
                retry_after_s=ceil(wait_ms / 1000),
            )


def too_many_bytes(owner: Owner, bytes_then: int) -> QuotaError:
    """The error for an upload after which an owner would have more bytes than allowed."""
    limit = owner.limits.stored_bytes
    return _too_much(
        "bytes", bytes_then, limit, "models (DELETE /v1/models/{id}) and simulations (DELETE /v1/jobs/{id})"
    )


def too_many_items(owner: Owner, items_then: int) -> QuotaError:
    """The error for an upload after which an owner would have more models and profiles than allowed."""
    limit = owner.limits.stored_items
    return _too_much(
        "items", items_then, limit, "models (DELETE /v1/models/{id}) and profiles (DELETE /v1/profiles/{digest})"
    )


def _too_much(what: str, then: int, limit: int, removable: str) -> QuotaError:
    return QuotaError(
        f"what you have stored would be too many {what}",
        code=f"too_many_{what}",
        actual=then,
        limit=limit,
        hint=f"Delete {removable} that you do not need",
        retry_after_s=_ROOM_RETRY_S,
    )


class UploadPlaces:
    """The uploads that arrive at this process, by owner; used on the event loop alone. A crash leaves none behind."""

    def __init__(self) -> None:
        self._now = Counter[str]()
        self._putters = CapacityLimiter(_PUT_AT_ONCE)

    async def put(self, call: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Calls what puts an upload into its place, in a thread. That may take as long as a bucket likes, so few of
        the threads that answer requests do it at once."""
        return await to_thread.run_sync(partial(call, *arguments, **named), limiter=self._putters)

    @contextmanager
    def place(self, owner: Owner) -> Iterator[None]:
        """Holds a place until an upload is stored; raises QuotaError if the owner has too many."""
        if self._now[owner.name] >= owner.limits.uploads:
            raise QuotaError(
                "too many uploads arrive at once",
                code="too_many_uploads",
                actual=self._now[owner.name],
                limit=owner.limits.uploads,
                hint="Send one when another has ended",
                retry_after_s=_UPLOAD_RETRY_S,
            )
        self._now[owner.name] += 1
        try:
            yield
        finally:
            self._now[owner.name] -= 1
            if not self._now[owner.name]:
                del self._now[owner.name]
