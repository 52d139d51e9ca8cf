"""The Celery worker (API-6): one thin task, and the signals of its main process and children."""

from __future__ import annotations

import gc
import os
import secrets
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import redis
import structlog
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from billiard.pool import EX_RECYCLE
from billiard.util import get_logger as pool_logger
from celery import Celery, signals
from celery.worker import state

from app.blob_pins import BlobPins
from app.cache_losses import CacheLosses
from app.jobs.identity import Identity, QueueKind, queue_name
from app.jobs.queue import COMPUTE_TASK, create_celery
from app.jobs.records import Records
from app.jobs.results import ResultCache
from app.redis_urls import API_PATIENCE_S, CACHE_PATIENCE_S, connect
from app.settings import Settings
from app.store import StoreHooks
from app.stores import open_stores
from app.tables.address_tables import AddressTableCache
from app.tables.buckets import BucketChoice
from app.tables.cache import TableCache
from app.tables.counts import TableCounts
from app.tables.open_packages import OpenPackages
from app.tables.request_queue import OPTIMISE_TASK, Wanted, WantedTables
from app.units.unit_cache import UnitCache
from worker.broker import HeldMessages

log = structlog.get_logger(__name__)

_HEARTBEAT_S = 1.0
_LOOK_AFTER_CHILDREN_S = 0.25


@dataclass(slots=True)
class Worker:
    """The state of one worker process tree; each pool child makes its own connections after the fork."""

    settings: Settings
    identity: Identity
    kinds: Sequence[QueueKind]
    name: str = field(default_factory=lambda: f"{os.uname().nodename}-{os.getpid()}-{secrets.token_hex(4)}")
    _computer: Any = None
    _optimiser: Any = None
    _records: Records | None = None
    _void_since: dict[str, float] = field(default_factory=dict)

    @property
    def _queues(self) -> list[str]:
        return [queue_name(kind, self.identity) for kind in self.kinds]

    def celery(self) -> Celery:
        """The Celery application with the task and the signals connected."""
        celery = create_celery(self.settings, self._queues)

        @celery.task(name=COMPUTE_TASK)  # type: ignore[untyped-decorator]
        def compute(content: str, fence: int) -> None:
            token = f"{self.name}/{os.getpid()}/{secrets.token_hex(4)}"
            self._computer.run(content, fence, token)

        @celery.task(name=OPTIMISE_TASK)  # type: ignore[untyped-decorator]
        def optimise(tables: list[tuple[str, str, int, list[int]]]) -> None:
            token = f"{self.name}/{os.getpid()}/{secrets.token_hex(4)}"
            wanted = [
                Wanted(key=key, package=package, routine=routine, problem=tuple(problem))
                for key, package, routine, problem in tables
            ]
            self._optimiser.take_turn(wanted, token)

        signals.worker_process_init.connect(self._child_starts, weak=False)
        signals.worker_process_shutdown.connect(self._child_ends, weak=False)
        signals.worker_ready.connect(self._ready, weak=False)
        signals.worker_shutting_down.connect(self._goodbye, weak=False)
        signals.worker_shutdown.connect(self._goodbye, weak=False)
        signals.task_failure.connect(self._task_failed, weak=False)
        signals.setup_logging.connect(_keep_our_logging, weak=False)
        return celery

    def _child_starts(self, **_: Any) -> None:
        # Celery has asked Linux to kill this child with its main process, so a kill -9 there leaves no orphan.
        # The compiler was imported before the fork (worker/__main__.py), so this costs next to nothing.
        from worker.optimise import Optimiser
        from worker.task import Computer

        assert self.settings.broker_url is not None
        assert self.settings.cache_url is not None
        records = Records(connect(self.settings.broker_url), self.settings, self.identity)
        stores = open_stores(
            self.settings,
            models=StoreHooks(damaged=records.count_damaged),
            documents=StoreHooks(damaged=records.count_damaged, pin=BlobPins(records, self.settings.pin_s).pin),
        )
        store = stores.documents
        self._computer = Computer(
            records=records,
            results=ResultCache(connect(self.settings.cache_url, patience_s=CACHE_PATIENCE_S), self.settings, store),
            models=stores.models,
            store=store,
            units=UnitCache(
                connect(self.settings.cache_url, text=False, patience_s=CACHE_PATIENCE_S),
                records.client,
                self.settings,
            ),
            addresses=AddressTableCache(
                connect(self.settings.cache_url, text=False, patience_s=CACHE_PATIENCE_S),
                self.settings,
                CacheLosses(records.client),
            ),
            settings=self.settings,
        )
        broker = connect(self.settings.broker_url)
        counts = TableCounts(broker, self.settings)
        self._optimiser = Optimiser(
            cache=TableCache(connect(self.settings.cache_url, text=False), self.settings),
            wanted=WantedTables(broker, self.identity),
            counts=counts,
            buckets=BucketChoice(client=broker, counts=counts, settings=self.settings),
            packages=OpenPackages(store, self.settings.open_packages),
        )
        # The compiler stays: each task ends with a search for garbage, and the next one waits for it.
        gc.freeze()
        log.info("child_started", pid=os.getpid())

    def _child_ends(self, pid: int, exitcode: int, **_: Any) -> None:
        """In the child, when it ends by itself: after its number of tasks, above its memory limit, or at the stop."""
        log.info("child_ended", pid=pid, recycled=exitcode == EX_RECYCLE)

    def _main_records(self) -> Records:
        """For the main loop, which waits for no broker that hangs: what it says is said again, or not needed."""
        if self._records is None:
            assert self.settings.broker_url is not None
            client = connect(self.settings.broker_url, patience_s=API_PATIENCE_S)
            self._records = Records(client, self.settings, self.identity)
        return self._records

    def _ready(self, sender: Any, **_: Any) -> None:
        # The main loop's own timer shows that the loop runs, and children fork from no thread.
        self._beat()
        sender.timer.call_repeatedly(_HEARTBEAT_S, self._beat)
        # Celery checks its children every 5 s. The closed pipe should make it check at once, but is often seen before
        # waitpid reports the death.
        sender.timer.call_repeatedly(_LOOK_AFTER_CHILDREN_S, sender.pool.maintain_pool)
        sender.timer.call_repeatedly(_HEARTBEAT_S, self._end_hung)
        sender.timer.call_repeatedly(_HEARTBEAT_S, HeldMessages().check, (sender,))

    def _beat(self) -> None:
        with suppress(redis.RedisError, OSError):
            slots = self.settings.worker_concurrency
            self._main_records().heartbeat(self.name, self._queues, slots)

    def _end_hung(self) -> None:
        """Ends children that hang on a computation given to others: they would hold their slot for ever.

        A child that is merely finishing ends by itself within the grace period.
        """
        now, still_active = time.monotonic(), set()
        for request in list(state.active_requests):
            if request.worker_pid is None or request.name != COMPUTE_TASK:
                continue
            content, fence = request.args[0], int(request.args[1])
            with suppress(redis.RedisError, OSError):
                if self._main_records().holds(content, fence):
                    continue
                still_active.add(request.id)
                since = self._void_since.setdefault(request.id, now)
                if now - since > self.settings.stop_grace_s + _HEARTBEAT_S:
                    log.warning("hung_child_ended", content=content, fence=fence, pid=request.worker_pid)
                    os.kill(request.worker_pid, signal.SIGKILL)
        self._void_since = {key: since for key, since in self._void_since.items() if key in still_active}

    def _goodbye(self, **_: Any) -> None:
        """At the signal to stop, before anything is waited for, as a kill may follow; and at the end."""
        assert self.settings.broker_url is not None
        client = connect(self.settings.broker_url, patience_s=API_PATIENCE_S)  # the signal may interrupt another call
        with suppress(redis.RedisError, OSError):
            Records(client, self.settings, self.identity).goodbye(self.name)
        client.close()

    def _task_failed(self, sender: Any, exception: BaseException, args: Any = None, **_: Any) -> None:
        """In the main process: a child died, so its lease ends now instead of running out before the work starts again.

        The lock of the table that it was making runs out by itself; its other tables may be requested again at once.
        """
        if not isinstance(exception, WorkerLostError | TimeLimitExceeded) or not args:
            return
        if sender.name != COMPUTE_TASK:
            assert self.settings.cache_url is not None
            with suppress(redis.RedisError, OSError):
                cache = TableCache(connect(self.settings.cache_url, text=False), self.settings)
                cache.unask([key for key, *_ in args[0]])
                log.warning("child_lost_with_tables", tables=len(args[0]))
            return
        content, fence = args[0], int(args[1])
        with suppress(redis.RedisError, OSError):
            outcome = self._main_records().lost(content, fence)
            log.warning("child_lost", content=content, fence=fence, outcome=outcome)


def _keep_our_logging(**_: Any) -> None:
    """Celery leaves logging alone if a handler is connected to this signal; the pool logs with everything else."""
    pool_logger().propagate = True
