"""Opens packages before somebody asks for their tables, so that not the first request of a process waits (SHAPE-7)."""

from __future__ import annotations

import threading

import redis
import structlog

from app.store import is_digest
from app.tables import making
from app.tables.opened import OpenPackages
from compiler.errors import TesseraError

log = structlog.get_logger(__name__)

# Those that workers made last, by when; remember_package of common.lua adds to them.
NEWEST_KEY = "tessera:packages:newest"


class PackageOpener:
    """A thread beside the API: opens each of the newest packages once; others are opened as they are asked for."""

    def __init__(self, client: redis.Redis, packages: OpenPackages, interval_s: float) -> None:
        self._redis = client
        self._packages = packages
        self._interval_s = interval_s
        self._seen: frozenset[str] = frozenset()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="opener", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the package that is being opened, or without its end: it only reads."""
        self._stop.set()
        self._thread.join(timeout=1)

    def open_newest(self) -> None:
        """Open what was made since the last time; raises redis.RedisError."""
        found = self._redis.zrevrange(NEWEST_KEY, 0, self._packages.limit - 1)
        newest = [digest for digest in map(str, found) if is_digest(digest)]
        for digest in reversed([digest for digest in newest if digest not in self._seen]):
            if self._stop.is_set():
                return
            try:
                self._open(digest)
            except (TesseraError, OSError) as error:  # whoever asks for it is told
                log.info("package_not_opened", package=digest, error=type(error).__name__)
            except Exception:  # not tried again, and in the way of no other
                log.exception("package_not_opened", package=digest)
        self._seen = frozenset(newest)

    def _open(self, digest: str) -> None:
        """Open a package, and make its tables at the largest extents for nobody: what a first table takes is made."""
        opened = self._packages.get(digest)
        for asked in opened.asked({name: one.high for name, one in opened.model.ranges.items()}):
            making.simple(opened, asked)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.open_newest()
            except (redis.RedisError, OSError) as error:
                log.warning("opener_cannot_reach_redis", error=type(error).__name__)
            except Exception:
                log.exception("opener_round_failed")
            self._stop.wait(self._interval_s)
