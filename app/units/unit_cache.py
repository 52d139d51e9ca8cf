"""Shape units in the cache Redis, for the compilations of this service (SHAPE-1; docs/redis.md lists the keys).

Everything here may be lost at any time; compilations then make the units again, and go on without a Redis that does
not answer. No FastAPI: the worker uses this.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from typing import Any, Final, TypeVar

import redis
import structlog

from app.cache_losses import CacheLosses
from app.jobs.records import COUNTS_KEY, owned
from app.settings import Settings
from compiler.errors import CompilationCancelledError

T = TypeVar("T")
log = structlog.get_logger(__name__)

# What an owner's list has, the latest; and the bytes of one library with its units that are stored.
MAX_LISTED: Final = 10_000
_MAX_BYTES: Final = 16 * 1024 * 1024
_POLL_S: Final = 0.02


class UnitCache:
    """Stored units over a Redis client of bytes: the port `StoredUnits` of one compilation.

    `owners` are those whose lists show what the compilation uses; `cancelled` says whether it is to stop. A cache that
    does not answer counts as empty, with nobody else there; that and the totals are counted over `counts`, a client of
    the broker.
    """

    def __init__(
        self,
        client: redis.Redis,
        counts: redis.Redis,
        settings: Settings,
        owners: Sequence[str] = (),
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._redis = client
        self._counts = counts
        self._losses = CacheLosses(counts)
        self._settings = settings
        self._owners = tuple(owners)
        self._cancelled = cancelled
        self._keep_ms = round(settings.keep_unit_s * 1000)
        self._lock_s = settings.unit_lock_s
        self._listed: set[str] = set()
        script = resources.files("app.units") / "scripts" / "release.lua"
        self._release = client.register_script(script.read_text())

    def for_owners(self, owners: Sequence[str], cancelled: Callable[[], bool] = lambda: False) -> UnitCache:
        """The same cache for a compilation of these owners."""
        return UnitCache(self._redis, self._counts, self._settings, owners, cancelled)

    def get_many(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """The values that are there, kept for longer from now on."""
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.getex(value_key(key), px=self._keep_ms)
        found: list[Any] = self._or([], lambda: pipeline.execute(raise_on_error=False))
        return {key: value for key, value in zip(keys, found, strict=False) if isinstance(value, bytes)}

    def put_many(self, library: str, values: Mapping[str, bytes], labels: Mapping[str, str]) -> None:
        """Store a library and its units, and begin its record: when it was made, how many units and bytes it has."""
        size_bytes = sum(map(len, values.values()))
        self._count({"units:built": len(values) - 1})
        if size_bytes > _MAX_BYTES:
            log.info("library_too_large_to_store", library=library, size_bytes=size_bytes)
            return
        pipeline = self._redis.pipeline(transaction=False)
        for key, value in values.items():
            pipeline.set(value_key(key), value, px=self._keep_ms)
        self._begin_record(pipeline, library, labels, len(values) - 1, size_bytes)
        self._list(pipeline, [library])
        self._or(None, pipeline.execute)

    def restore_record(self, library: str, labels: Mapping[str, str], units: int, size_bytes: int) -> dict[str, str]:
        """Begin the record of a library that lost its own, as if it were made now; returns it."""
        pipeline = self._redis.pipeline(transaction=False)
        fields = self._begin_record(pipeline, library, labels, units, size_bytes)
        self._or(None, pipeline.execute)
        return fields

    def _begin_record(
        self, pipeline: Any, library: str, labels: Mapping[str, str], units: int, size_bytes: int
    ) -> dict[str, str]:
        fields = {**labels, "made_ms": str(_now_ms()), "units": str(units), "bytes": str(size_bytes)}
        pipeline.hset(use_key(library), mapping=fields)
        pipeline.pexpire(use_key(library), self._keep_ms)
        return fields

    def drop_damaged(self, keys: Sequence[str]) -> None:
        """Forget values, and count them."""
        log.warning("damaged_units", keys=list(keys)[:10], count=len(keys))
        self._or(0, lambda: int(str(self._redis.delete(*map(value_key, keys)))))
        self._count({"units_damaged": len(keys)})

    def used(self, libraries: Mapping[str, int]) -> None:
        """Count libraries that were found, each with its units, for each owner: nobody sees what others compile."""
        if not libraries:
            return
        pipeline = self._redis.pipeline(transaction=False)
        for library in libraries:
            for owner in self._owners:
                pipeline.hincrby(use_key(library), hits_field(owner), 1)
            pipeline.pexpire(use_key(library), self._keep_ms)
        self._list(pipeline, list(libraries))
        self._or(None, pipeline.execute)
        self._count({"units:found": sum(libraries.values())})

    def note(self, libraries: Sequence[str]) -> None:
        """Put libraries into the lists of the owners, where no compilation of theirs found them."""
        if libraries and self._owners:
            pipeline = self._redis.pipeline(transaction=False)
            self._list(pipeline, libraries)
            self._or(None, pipeline.execute)

    def remember(self, package: str, late_owners: Sequence[str] = ()) -> None:
        """Keep which libraries this compilation used for its package, for those who get the same one from a cache.

        `late_owners` came while the compilation ran.
        """
        if self._listed:
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.sadd(package_key(package), *sorted(self._listed))
            pipeline.pexpire(package_key(package), self._keep_ms)
            self._or(None, pipeline.execute)
        self.for_owners(late_owners).note(sorted(self._listed))

    def recall(self, package: str) -> None:
        """Put the libraries of a package that was made before into the lists of the owners."""
        found: list[Any] = self._or([], lambda: list(self._redis.smembers(package_key(package))))
        self.note(sorted(one.decode() for one in found))

    @contextmanager
    def building(self, library: str) -> Iterator[bool]:
        """Hold the lock of a library, after whoever holds it now; False if he holds it for too long.

        A lock whose holder was killed runs out by itself. Raises CompilationCancelledError if the compilation is to
        stop, at the beginning or while it waits.
        """
        self._stop_if_cancelled()
        token, lock = secrets.token_hex(8), lock_key(library)
        give_up_at = time.monotonic() + self._lock_s
        is_ours = self._take(lock, token)
        if not is_ours:
            self._count({"unit_waits": 1})
        while not is_ours and time.monotonic() < give_up_at:
            time.sleep(_POLL_S)
            self._stop_if_cancelled()
            is_ours = self._take(lock, token)
        try:
            yield is_ours
        finally:
            if is_ours:
                self._or(None, lambda: self._release(keys=(lock,), args=(token,)))

    def _stop_if_cancelled(self) -> None:
        if self._cancelled():
            raise CompilationCancelledError("shape-units")

    def _take(self, lock: str, token: str) -> bool:
        # without a cache nobody else is there, and what is stored goes nowhere
        lock_ms = round(self._lock_s * 1000)
        return self._or(True, lambda: bool(self._redis.set(lock, token, nx=True, px=lock_ms)))

    def _list(self, pipeline: Any, libraries: Sequence[str]) -> None:
        """Put libraries into the lists of the owners, the latest used first."""
        now = _now_ms()
        self._listed.update(libraries)
        for owner in self._owners:
            pipeline.zadd(list_key(owner), dict.fromkeys(libraries, now))
            pipeline.zremrangebyrank(list_key(owner), 0, -MAX_LISTED - 1)
            pipeline.pexpire(list_key(owner), self._keep_ms)

    def _count(self, counts: Mapping[str, int]) -> None:
        pipeline = self._counts.pipeline(transaction=False)
        for name, count in counts.items():
            pipeline.hincrby(COUNTS_KEY, name, count)
        with suppress(redis.RedisError):  # figures only
            pipeline.execute()

    def _or(self, otherwise: T, call: Callable[[], T]) -> T:
        """What a call returns, or the other value if the cache does not answer, which is counted."""
        try:
            return call()
        except redis.RedisError as error:
            self._losses.note(error)
            return otherwise


def value_key(key: str) -> str:
    """The key of the value of a library or unit."""
    return f"tessera:{key}"


def use_key(library: str) -> str:
    """The key of a library's record: its labels, and `made_ms`, `units`, `bytes`, and hits by owner."""
    return f"tessera:{library}:use"


def package_key(package: str) -> str:
    """The key of the libraries that a package was made with."""
    return f"tessera:library:of:{package}"


def hits_field(owner: str) -> str:
    """The field of a library's record that counts an owner's compilations that found it."""
    return f"hits:{owner}"


def lock_key(library: str) -> str:
    """The key of the lock of a library's builder."""
    return f"tessera:{library}:building"


def list_key(owner: str) -> str:
    """The key of the libraries that an owner's compilations used, by the time of the last use."""
    return owned(owner, "libraries")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
