"""Celery carries ids from the relay to the workers (API-6); its own job states are not used."""

from __future__ import annotations

from collections.abc import Sequence

from celery import Celery
from kombu.entity import Queue

from app.redis_urls import celery_url
from app.settings import Settings

COMPUTE_TASK = "tessera.compute"
# The key under which kombu's Redis transport keeps delivered messages that were not acknowledged yet.
UNACKED_KEYS = ("unacked", "unacked_index", "unacked_mutex")


def celery_queue(name: str) -> Queue:
    """A queue of a name by `queue_name`."""
    return Queue(name)  # type: ignore[no-untyped-call]


def create_celery(settings: Settings, queues: Sequence[str]) -> Celery:
    """Creates a Celery application with the settings of API-6 and no tasks, whose worker serves these queues."""
    if settings.broker_url is None:
        raise ValueError("Celery needs a broker URL")
    visibility = {"visibility_timeout": settings.visibility_timeout_s}
    celery = Celery("tessera", set_as_current=False)
    celery.conf.update(
        broker_url=celery_url(settings.broker_url),
        # Set in all three places: the shortest timeout would deliver a running task again.
        # A connection that was lost without notice must not stop the main loop.
        broker_transport_options={
            **visibility,
            "socket_keepalive": True,
            "socket_timeout": 10,
            "health_check_interval": 15,
        },
        result_backend_transport_options=visibility,
        visibility_timeout=settings.visibility_timeout_s,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        task_queues=[celery_queue(name) for name in queues],
        task_default_queue=queues[0],
        task_create_missing_queues=False,
        task_serializer="json",
        result_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_acks_late=True,
        task_acks_on_failure_or_timeout=True,
        task_reject_on_worker_lost=False,
        task_time_limit=settings.hard_time_limit_s,
        task_soft_time_limit=settings.hard_time_limit_s - settings.stop_grace_s,
        worker_prefetch_multiplier=1,
        worker_concurrency=settings.worker_concurrency,
        worker_max_tasks_per_child=settings.worker_max_tasks_per_child,
        worker_max_memory_per_child=settings.worker_max_memory_per_child_bytes // 1024,
        worker_soft_shutdown_timeout=10.0,
        worker_enable_soft_shutdown_on_idle=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        task_send_sent_event=False,
        worker_enable_remote_control=False,
        enable_utc=True,
    )
    return celery
