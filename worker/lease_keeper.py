"""Holds a lease while the compiler works: renews it, watches memory, ends a child that does not stop."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import redis
import structlog

from app.errors import StoreUnavailableError
from app.jobs.records import Lease, Records
from app.settings import Settings
from compiler.errors import CompilationCancelledError

log = structlog.get_logger(__name__)

_SAMPLE_S = 0.05
_CANCEL_POLL_S = 0.1
# Address space beside the counted memory: the mapped model (2 GiB at most), thread stacks, arenas.
_ADDRESS_SPACE_SLACK = (2048 + 256) * 1024 * 1024


def anonymous_bytes() -> int:
    """Memory of this process alone: resident or swapped, without mapped files."""
    total = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(("RssAnon:", "VmSwap:")):
            total += int(line.split()[1]) * 1024
    return total


def return_free_memory() -> None:
    """Returns freed memory to the system, which the allocator would keep for later and which counts as used."""
    # glibc only; other allocators return memory by themselves
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Keeper:
    """Holds one lease for the time of a `with`, and is the compiler's observer meanwhile.

    Memory is counted from the start of the computation. The records decide which job exceeds its limit (a limit belongs
    to a job). A computation that no job waits for is stopped; if it does not end within the grace period, the child
    ends itself, since its result is void.
    """

    def __init__(self, records: Records, lease: Lease, settings: Settings) -> None:
        self._records = records
        self._lease = lease
        self._settings = settings
        self._ended = threading.Event()
        self._told_to_stop_at: float | None = None
        self._polled_at = 0.0
        self._baseline_bytes = anonymous_bytes()
        self._tightest_limit_bytes = 0
        self._begun = time.monotonic()
        self._limit_at: float | None = None
        self._peak_bytes = 0
        self._phase: tuple[str, float] | None = None
        self._phases: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    @property
    def peak_bytes(self) -> int:
        """The highest memory use seen."""
        return self._peak_bytes

    @property
    def phases(self) -> Mapping[str, float]:
        """How long each phase took that has ended, in seconds."""
        return self._phases

    def used_bytes(self) -> int:
        """Memory used now beyond the use at the start."""
        return max(0, anonymous_bytes() - self._baseline_bytes)

    def __enter__(self) -> Self:
        self._limit_address_space(self._settings.memory_limit_bytes)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._end_phase()
        self._thread.join(timeout=5)
        self._limit_address_space(None)

    def phase(self, name: str, step: int, total: int) -> None:
        """The compiler begins a pass."""
        self._end_phase()
        self._phase = name, time.monotonic()
        return_free_memory()
        try:
            answer = self._records.progress(self._lease, name, step, total)
        except (redis.RedisError, OSError):
            return  # reporting is optional; the fence decides
        if answer != "keep":
            self._stop()
            raise CompilationCancelledError

    def announce(self, store: Callable[[], str]) -> None:
        """Announces the plan; `store` writes its blob and gives the digest."""
        with suppress(redis.RedisError, OSError, StoreUnavailableError):  # it is optional
            self._records.announce(self._lease, store())

    def cancelled(self) -> bool:
        """Whether no job waits any more; asks the records, at bounded intervals."""
        if self._told_to_stop_at is None and time.monotonic() - self._polled_at > _CANCEL_POLL_S:
            self._polled_at = time.monotonic()
            self._renew()
        return self._told_to_stop_at is not None

    def _end_phase(self) -> None:
        if self._phase is not None:
            name, begun = self._phase
            self._phases[name] = self._phases.get(name, 0.0) + time.monotonic() - begun
            self._phase = None

    def _run(self) -> None:
        renewed_at = time.monotonic()
        interval_s = self._settings.lease_s / 4
        while not self._ended.wait(_SAMPLE_S):
            used = self.used_bytes()
            self._peak_bytes = max(self._peak_bytes, used)
            over = 0 < self._tightest_limit_bytes < used
            late = self._limit_at is not None and time.monotonic() > self._limit_at
            unknown = self._tightest_limit_bytes == 0
            if over or late or unknown or time.monotonic() - renewed_at >= interval_s:
                self._renew()
                renewed_at = time.monotonic()
            stopping = self._told_to_stop_at
            if stopping is not None and (over or time.monotonic() - stopping > self._settings.stop_grace_s):
                self._end_child()

    def _renew(self) -> None:
        try:
            now = time.monotonic()
            renewal = self._records.renew(self._lease, self._peak_bytes, now - self._begun)
        except (redis.RedisError, OSError) as error:
            # The lease may outlive the failure; if not, the fence reports it at the next try.
            log.warning("renewal_failed", error=type(error).__name__)
            return
        self._tightest_limit_bytes = renewal.memory_limit_bytes
        self._limit_at = now + renewal.time_left_s if renewal.time_left_s else None
        if renewal.answer != "keep":
            self._stop()

    def _stop(self) -> None:
        if self._told_to_stop_at is None:
            self._told_to_stop_at = time.monotonic()

    def _end_child(self) -> None:
        """Ends this process: its computation is void and it does not end by itself."""
        with suppress(redis.RedisError, OSError):
            self._records.stopped(self._lease)
        log.warning("child_ends_itself", content=self._lease.content, fence=self._lease.fence, pid=os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)

    def _limit_address_space(self, limit_bytes: int | None) -> None:
        """A backstop for one huge allocation between two samples: it becomes a MemoryError."""
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = hard
        if limit_bytes is not None:
            mapped_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            soft = mapped_bytes + limit_bytes + _ADDRESS_SPACE_SLACK
            if hard != resource.RLIM_INFINITY:
                soft = min(soft, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
