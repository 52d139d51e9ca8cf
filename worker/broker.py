"""Sees to it that a worker goes on taking up messages whatever Redis does (API-5, API-6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis
import structlog
from celery.worker import state

log = structlog.get_logger(__name__)

# One may be an acknowledgement on its way; a needless connection does no harm.
_SIGHTINGS = 2


@dataclass(slots=True)
class HeldMessages:
    """Whether the transport believes that more messages are being worked on than are.

    A message whose acknowledgement found no Redis stays counted as held. Each takes the place of one that could be
    worked on. Once as many are held as may be, Celery does not listen for more, so neither does it see that the
    connection is gone: it would wait for ever, alive and well.
    """

    _seen: int = 0

    def check(self, consumer: Any) -> None:
        """Called by a timer of Celery's main loop, with its consumer.

        Raises redis.ConnectionError, on which Celery connects anew and holds nothing. What it held comes once more, now
        or after the visibility timeout, and is turned away by its fence.
        """
        qos = consumer.task_consumer.channel.qos
        busy = len(state.reserved_requests)
        if qos.can_consume_max_estimate() + busy >= qos.prefetch_count:
            self._seen = 0
            return
        self._seen += 1
        if self._seen >= _SIGHTINGS:
            self._seen = 0
            log.warning("held_messages_forgotten", busy=busy, most=qos.prefetch_count)
            raise redis.ConnectionError("messages are held of which no task is left: connecting anew")
