"""Hands queued work to Celery and ends expired work in one loop (API-5): relay and reaper."""

from __future__ import annotations

import threading
from contextlib import suppress

import redis
import structlog

from app.jobs.records import Records
from app.jobs.rekey import Rekeyer
from app.settings import Settings
from app.tables.answer_counts import AnswerCounts
from app.tables.optimising_delay import Pace
from app.tables.request_queue import OPTIMISE_TASK, WantedTables

log = structlog.get_logger(__name__)

# While messages are handed out, the next round begins after this part of the interval: Celery's lists are short.
_SHARE_WHILE_HANDING_OUT = 0.1


class Relay:
    """A thread beside the API. Several may run: the fence rejects messages sent twice."""

    def __init__(
        self,
        records: Records,
        wanted: WantedTables,
        rekeyer: Rekeyer,
        answer_counts: AnswerCounts,
        pace: Pace,
        settings: Settings,
    ) -> None:
        self._records = records
        self._wanted = wanted
        self._rekeyer = rekeyer
        self._answer_counts = answer_counts
        self._pace = pace
        self._settings = settings
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Starts the next round at once, because something was queued."""
        self._wake.set()

    def stop(self) -> None:
        """Begins no further round."""
        self._stop.set()
        self._wake.set()

    def wait(self, timeout_s: float) -> None:
        """Waits for the present round, or abandons it: what it did not send is due again."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        # Imported here so that the API answers before Celery is loaded.
        from kombu.exceptions import OperationalError

        from app.jobs.queue import COMPUTE_TASK, celery_queue, create_celery

        celery = create_celery(self._settings, self._records.identity.queues())
        pause_s = self._settings.relay_interval_s
        concerns: tuple[str, ...] = ()
        while not self._stop.is_set():
            self._wake.clear()
            try:
                durability = self._records.durability.present()
                if durability.concerns != concerns:
                    concerns = durability.concerns
                    log.warning("broker_may_lose_records", why=concerns)
                for what, to in self._records.reap():
                    log.warning("reaped", outcome=what, of=to)
                deliveries = self._records.claim()
                for delivery in deliveries:
                    celery.send_task(
                        COMPUTE_TASK,
                        args=(delivery.content, delivery.fence),
                        queue=celery_queue(delivery.queue),
                        retry=False,
                    )
                self._rekeyer.round()
                self._answer_counts.send()
                tables = self._wanted.claim() if self._pace.due() else []
                if tables:
                    message = [(table.key, table.package, table.routine, table.problem) for table in tables]
                    celery.send_task(OPTIMISE_TASK, args=(message,), queue=self._wanted.queue, retry=False)
                # a worker may finish a message before the interval ends
                share = _SHARE_WHILE_HANDING_OUT if deliveries or tables else 1.0
                pause_s = self._settings.relay_interval_s * share
            except (redis.RedisError, OperationalError, OSError) as error:
                log.warning("relay_cannot_reach_redis", error=type(error).__name__)
                pause_s = min(2 * pause_s, 2.0)
            except Exception:
                log.exception("relay_round_failed")
            self._wake.wait(pause_s)
        with suppress(redis.RedisError):
            self._answer_counts.send()
        celery.close()
