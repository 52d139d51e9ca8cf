"""One service for the tests that disturb theirs, as starting one takes seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis

from app.redis_urls import connect
from app.supervisor.service import EmbeddedService
from tests.service.harness import FINAL, Api, settings, status_of, tree

_SETTLING_S = 5.0
_CONFIGURED = ("appendfsync", "maxmemory", "maxmemory-policy", "save")


class Spare:
    """Lends a service, and lends it again if it came back as it was; otherwise the next test gets a new one."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._running: tuple[EmbeddedService, Api] | None = None
        self._before: Any = None

    @contextmanager
    def lent(self) -> Iterator[tuple[EmbeddedService, Api]]:
        """A service that is ready, has no unfinished job and caches nothing."""
        if self._running is None:
            service = self._stack.enter_context(EmbeddedService(settings(self._folder())))
            service.wait_until()
            api = Api(service.url)
            self._stack.callback(api.http.close)
            self._running, self._before = (service, api), _state(service, api)
        service, api = self._running
        try:
            yield service, api
        finally:
            if self._settles(service, api):
                with connect(service.cache_url) as cache:
                    cache.flushall()
            else:
                self.stop()

    def _settles(self, service: EmbeddedService, api: Api) -> bool:
        """Whether it is soon as it was; jobs may take a moment to end."""
        deadline = time.monotonic() + _SETTLING_S
        while time.monotonic() < deadline:
            with suppress(redis.RedisError, httpx.HTTPError, psutil.Error):
                if _state(service, api) == self._before:
                    return True
            time.sleep(0.02)
        return False

    def stop(self) -> None:
        """Stop the service, if one runs."""
        self._running = None
        self._stack.close()


def _state(service: EmbeddedService, api: Api) -> Any:
    """What a test has to leave as it was."""
    if any(status_of(process) == psutil.STATUS_STOPPED for child in service.pids.values() for process in tree(child)):
        return None
    configured = []
    for url in (service.broker_url, service.cache_url):
        with connect(url) as client:
            configured.append([client.config_get(name) for name in _CONFIGURED])
    ready = api.http.get("/readyz")
    unfinished = [job["id"] for job in api.jobs() if job["state"] not in FINAL]
    return service.pids, configured, ready.status_code, ready.json(), unfinished
