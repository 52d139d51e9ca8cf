"""Opens packages before their tables are requested, so that the first request does not wait (SHAPE-7)."""

from __future__ import annotations

import threading

import redis
import structlog

from app.store import is_digest
from app.tables import simple_tables
from app.tables.open_packages import OpenPackages
from compiler.errors import TesseraError

log = structlog.get_logger(__name__)

# The latest packages that workers made, by time; remember_package of common.lua adds to them.
NEWEST_KEY = "tessera:packages:newest"


class PackageOpener:
    """A thread beside the API that opens each of the newest packages once; others are opened on request."""

    def __init__(self, client: redis.Redis, packages: OpenPackages, interval_s: float) -> None:
        self._redis = client
        self._packages = packages
        self._interval_s = interval_s
        self._seen: frozenset[str] = frozenset()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="opener", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Opens no further package."""
        self._stop.set()

    def wait(self, timeout_s: float) -> None:
        """Waits for the package that is being opened, or abandons it: it only reads."""
        self._thread.join(timeout_s)

    def open_newest(self) -> None:
        """Opens the packages made since the last call; raises redis.RedisError."""
        found = self._redis.zrevrange(NEWEST_KEY, 0, self._packages.limit - 1)
        newest = [digest for digest in map(str, found) if is_digest(digest)]
        for digest in reversed([digest for digest in newest if digest not in self._seen]):
            if self._stop.is_set():
                return
            try:
                self._open(digest)
            except (TesseraError, OSError) as error:  # a request for the package will report the error
                log.info("package_not_opened", package=digest, error=type(error).__name__)
            except Exception:  # not tried again, so that it delays no other package
                log.exception("package_not_opened", package=digest)
        self._seen = frozenset(newest)

    def _open(self, digest: str) -> None:
        """Opens a package and makes its tables at the largest extents, so that requests find all loaded."""
        opened = self._packages.get(digest)
        for asked in opened.asked({name: one.high for name, one in opened.model.ranges.items()}):
            simple_tables.simple(opened, asked)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.open_newest()
            except (redis.RedisError, OSError) as error:
                log.warning("opener_cannot_reach_redis", error=type(error).__name__)
            except Exception:
                log.exception("opener_round_failed")
            self._stop.wait(self._interval_s)
