"""Reconnects consumers that stopped reading messages, after any failure of Redis (API-5, API-6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis
import structlog
from celery.worker import state

log = structlog.get_logger(__name__)

# One message may be acknowledged just now; a needless reconnection does no harm.
_SIGHTINGS = 2


@dataclass(slots=True)
class HeldMessages:
    """Detects that the transport counts more messages in work than there are.

    If Redis is away when a message is acknowledged, the message stays counted as held and takes the place of one that
    could be worked on. Once the count reaches the limit, Celery stops listening. It then does not notice the lost
    connection either: it would wait for ever, alive and well.
    """

    _seen: int = 0

    def check(self, consumer: Any) -> None:
        """Called by a timer of Celery's main loop, with its consumer.

        Raises redis.ConnectionError, on which Celery reconnects and holds no message. The messages that it held are
        delivered once more, now or after the visibility timeout, and rejected by their fence.
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
            raise redis.ConnectionError("messages count as held although their tasks are gone: connecting anew")
