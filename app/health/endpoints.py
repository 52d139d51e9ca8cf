"""/livez, /readyz and /metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

import redis
from anyio import CapacityLimiter, move_on_after, to_thread
from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import BaseModel, Field

from app.context import Context, ContextDependency
from app.jobs.records import COUNTS_KEY, QUEUES
from app.problems import Problem, problem_response, request_id_of
from app.tables.counts import REQUESTS

router = APIRouter(tags=["health"])

# A disk or a server may hang; the answer may not.
_CHECK_S = 1.5


class Alive(BaseModel):
    """The process answers."""

    status: str = "alive"


class Ready(BaseModel):
    """Everything a job needs is there."""

    status: str = "ready"
    workers: int
    degraded: str | None = Field(default=None, description="What is missing and can be done without: `cache`")


@router.get("/livez", operation_id="live")
async def live() -> Alive:
    """Whether the API process answers."""
    return Alive()


@router.get("/readyz", operation_id="ready", response_model=Ready, responses={503: {"model": Problem}})
async def ready(request: Request, context: ContextDependency) -> Response:
    """Whether the records, the store and at least one worker are there, within two seconds; without its cache the
    service is slower, and `degraded`."""
    checks: dict[str, Callable[[], Any]] = {
        "cache": context.cache.ping,
        "broker": context.broker.ping,
        "store": context.store.check,
        "models": context.models.check,
        "worker": context.records.workers,
    }
    found = await asyncio.gather(*(_result(check, context.probes) for check in checks.values()))
    results = dict(zip(checks, found, strict=True))
    degraded = None if results.pop("cache") else "cache"
    failing = [name for name, result in results.items() if not result]
    if failing:
        parts = {
            "code": "not_ready",
            "stage": "service",
            "message": f"not ready: {', '.join(failing)}",
            "actual": ", ".join(failing),
            "hint": "A worker gives a sign of life every second" if failing == ["worker"] else None,
        }
        return problem_response(parts, 503, request_id_of(request), {"Retry-After": "1"})
    answer = Ready(workers=results["worker"], degraded=degraded)
    return Response(answer.model_dump_json(exclude_none=True), media_type="application/json")


@router.get("/metrics", operation_id="metrics", response_class=Response)
def metrics(request: Request, context: ContextDependency) -> Response:
    """Figures for Prometheus, read from Redis at each call, so each API process gives the same.

    Refused requests are counted by the process that refused them.
    """
    registry = CollectorRegistry()
    registry.register(_Figures(context, request.app.state.refusals))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


async def _result(check: Callable[[], Any], threads: CapacityLimiter) -> Any:
    """What a check returns, True for nothing; None if it fails or takes too long. A thread that hangs is left alone."""
    with move_on_after(_CHECK_S), suppress(redis.RedisError, OSError):
        result = await to_thread.run_sync(check, abandon_on_cancel=True, limiter=threads)
        return True if result is None else result
    return None


class _Figures(Collector):
    def __init__(self, context: Context, refusals: Mapping[str, int]) -> None:
        self._context = context
        self._refusals = refusals

    def collect(self) -> Iterable[Metric]:
        client = self._context.broker
        depth = GaugeMetricFamily("tessera_queue_depth", "Queued computations", labels=["queue"])
        oldest = GaugeMetricFamily("tessera_queue_oldest_seconds", "Age of the first in the queue", labels=["queue"])
        seconds, microseconds = client.time()
        for queue in QUEUES:
            depth.add_metric([queue], client.zcard(f"tessera:queue:{queue}"))
            first = cast(list[str], client.zrange(f"tessera:queue:{queue}", 0, 0))
            queued_ms = client.hget(f"tessera:computation:{first[0]}", "queued_ms") if first else None
            now_ms = seconds * 1000 + microseconds / 1000
            oldest.add_metric([queue], 0 if queued_ms is None else max(0, now_ms - int(str(queued_ms))) / 1000)
        yield depth
        yield oldest
        yield GaugeMetricFamily(
            "tessera_computations_running", "Computations under a lease", value=client.zcard("tessera:leases")
        )
        yield GaugeMetricFamily(
            "tessera_workers", "Workers with a recent sign of life", value=self._context.records.workers()
        )
        refused = CounterMetricFamily("tessera_requests_refused", "Requests refused by who sent them", labels=["code"])
        for code, count in sorted(self._refusals.items()):
            refused.add_metric([code], count)
        yield refused
        yield from self._tables()
        counts = cast(dict[str, str], client.hgetall(COUNTS_KEY))
        for name in sorted(counts):
            yield CounterMetricFamily(f"tessera_{name}", name.replace("_", " "), value=int(counts[name]))

    def _tables(self) -> Iterable[Metric]:
        """Tables by how they were answered, and by how many were made (SHAPE-7)."""
        tables = self._context.tables
        answers = CounterMetricFamily("tessera_tables_answered", "Tables answered", labels=["cache", "kind"])
        computed = CounterMetricFamily("tessera_tables_made", "Tables computed", labels=["kind"])
        families = {"answered": answers, "made": computed}
        self._context.known_tables.send_counts()
        totals = tables.counts.totals()
        for name, count in sorted(totals.items()):
            what, *labels = name.split(":")
            if what in families:
                families[what].add_metric(labels, count)
        yield CounterMetricFamily("tessera_tables_requests", "Requests for tables", value=totals.get(REQUESTS, 0))
        yield answers
        yield computed
        yield GaugeMetricFamily(
            "tessera_tables_wanted", "Optimised tables not yet handed out", value=tables.wanted.waiting()
        )
