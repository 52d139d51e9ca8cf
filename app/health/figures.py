"""The figures of `app/metrics.py` as Prometheus reads them: those of the service from Redis, those of this process."""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, TypeAlias, cast

import redis
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import Scope

from app.context import Context
from app.jobs.records import COUNTS_KEY, LEASES_KEY
from app.metrics import FIGURES, REQUEST_BUCKETS, Figure, Series, recorded
from app.tables.counts import REQUESTS

_Value: TypeAlias = tuple[str, tuple[str, ...], float]
# The age of the queue by owner is read from as many of its first computations.
_FIRST: Final = 1000
_OF_TABLES: Final[Mapping[str, str]] = {
    REQUESTS: "tables_requests",
    "answered": "tables_answered",
    "made": "tables_made",
}


class RequestFigures:
    """What an API process counts about its requests, in memory and on the event loop alone."""

    def __init__(self) -> None:
        self.refusals: Counter[str] = Counter()
        self._received_bytes = 0
        self._sent_bytes = 0
        self._durations: dict[tuple[str, str, int], _Durations] = {}

    def count(self, scope: Scope, status: int, seconds: float, received_bytes: int, sent_bytes: int) -> None:
        """Counts one answered request; those that no route fits are counted together."""
        route = scope.get("route")
        key = ("any", "none", status) if route is None else (scope["method"], route.path, status)
        durations = self._durations.get(key)
        if durations is None:
            durations = self._durations[key] = _Durations()
        durations.counts[bisect_left(REQUEST_BUCKETS, seconds)] += 1
        durations.sum_s += seconds
        self._received_bytes += received_bytes
        self._sent_bytes += sent_bytes

    def values(self) -> Iterator[_Value]:
        """The counters."""
        yield "http_received_bytes", (), self._received_bytes
        yield "http_sent_bytes", (), self._sent_bytes
        yield from (("requests_refused", (code,), count) for code, count in self.refusals.copy().items())

    def series(self) -> Iterator[Series]:
        """The durations."""
        for (method, route, status), durations in sorted(self._durations.copy().items()):
            labels = (method, route, str(status))
            yield Series("http_request_seconds", labels, tuple(accumulate(durations.counts)), durations.sum_s)


@dataclass(slots=True)
class _Durations:
    counts: list[int] = field(default_factory=lambda: [0] * (len(REQUEST_BUCKETS) + 1))
    sum_s: float = 0.0


def exposition(context: Context, requests: RequestFigures) -> bytes:
    """All figures in Prometheus' text format; raises redis.RedisError if the broker does not answer."""
    registry = CollectorRegistry()
    registry.register(_Figures(context, requests))
    return generate_latest(registry)


class _Figures(Collector):
    def __init__(self, context: Context, requests: RequestFigures) -> None:
        self._context = context
        self._requests = requests

    def collect(self) -> Iterable[Metric]:
        values = list(self._values())
        series = [*self._requests.series(), *recorded(self._context.broker)]
        for one in FIGURES:
            if one.kind == "histogram":
                yield _histogram(one, [each for each in series if each.name == one.name])
                continue
            kind = CounterMetricFamily if one.kind == "counter" else GaugeMetricFamily
            family = kind(f"tessera_{one.name}", one.about, labels=one.labels)
            found = {
                labels: value
                for name, labels, value in values
                if name == one.name and len(labels) == len(one.labels)  # others are of an earlier version
            }
            for labels, value in sorted(found.items() if found or one.labels else {(): 0.0}.items()):
                family.add_metric(labels, value)
            yield family

    def _values(self) -> Iterator[_Value]:
        context, client = self._context, self._context.broker
        yield from self._requests.values()
        for counted, count in cast(dict[str, str], client.hgetall(COUNTS_KEY)).items():
            name, *labels = counted.split(":")
            yield name, tuple(labels), float(count)
        context.answer_counts.send()
        for counted, tables in context.table_counts.totals().items():
            what, *labels = counted.split(":")
            if what in _OF_TABLES:
                yield _OF_TABLES[what], tuple(labels), tables
        yield "tables_wanted", (), context.tables.wanted.waiting()
        yield "computations_running", (), client.zcard(LEASES_KEY)
        own = context.records.identity
        workers = Counter({own.labels_beside(own): 0})
        workers.update(sign.identity.labels_beside(own) for sign in context.records.workers())
        yield from (("workers", labels, count) for labels, count in workers.items())
        yield from ((f"store_{name}", (), float(value)) for name, value in context.records.stored().items())
        yield "disk_free_bytes", (), shutil.disk_usage(context.settings.data_dir).free
        for queue in context.records.queues():
            of_queue = (queue.kind, *queue.identity.labels_beside(own))
            yield "queue_depth", of_queue, queue.waiting
            for owner, age_s in _oldest_s(client, queue.name).items():
                yield "queue_oldest_seconds", (*of_queue, owner), age_s


def _oldest_s(client: redis.Redis, queue: str) -> dict[str, float]:
    """How long the first computation of each owner has waited; 0 for nobody if there is none."""
    seconds, microseconds = client.time()
    first = cast(list[str], client.zrange(f"tessera:queue:{queue}", 0, _FIRST - 1))
    pipeline = client.pipeline(transaction=False)
    for content in first:
        pipeline.hmget(f"tessera:computation:{content}", "owner", "queued_ms")
    oldest: dict[str, float] = {}
    for owner, queued_ms in pipeline.execute():
        if queued_ms is not None:
            age_s = max(0.0, seconds + microseconds / 1e6 - int(queued_ms) / 1000)
            oldest[owner or ""] = max(age_s, oldest.get(owner or "", 0.0))
    return oldest or {"": 0.0}


def _histogram(one: Figure, series: Iterable[Series]) -> HistogramMetricFamily:
    bounds = (*map(str, one.buckets), "+Inf")
    family = HistogramMetricFamily(f"tessera_{one.name}", one.about, labels=one.labels)
    for each in series:
        family.add_metric(each.labels, list(zip(bounds, each.counts, strict=True)), each.sum_s)
    return family
