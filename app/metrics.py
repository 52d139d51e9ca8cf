"""The figures of the service (API-8): their names, labels and meanings, and the durations that workers record.

What any process of the service knows lies in the broker's Redis, so each API process gives the same; what an API
process counts about its own requests stays in its memory. No FastAPI here: the worker uses this module too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal, cast

import redis

HISTOGRAMS_KEY: Final = "tessera:histograms"
WORK_BUCKETS: Final = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)
REQUEST_BUCKETS: Final = (0.002, 0.01, 0.05, 0.2, 1.0, 5.0, 30.0)
_SUM: Final = "sum_us"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A family of time series; a counter of the service is a field of `tessera:counts`, name and labels with colons."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    about: str
    labels: tuple[str, ...] = ()
    of: Literal["service", "process"] = "service"
    buckets: tuple[float, ...] = WORK_BUCKETS
    """Upper bounds of a histogram's buckets in seconds; a last one holds everything above."""


FIGURES: Final[tuple[Figure, ...]] = (
    Figure(
        name="http_request_seconds",
        kind="histogram",
        about="Time from the head of a request to the end of its answer; its count is the number of requests",
        labels=("method", "route", "status"),
        of="process",
        buckets=REQUEST_BUCKETS,
    ),
    Figure(
        name="http_received_bytes", kind="counter", about="Bytes of bodies received, uploads above all", of="process"
    ),
    Figure(name="http_sent_bytes", kind="counter", about="Bytes of bodies sent", of="process"),
    Figure(
        name="requests_refused",
        kind="counter",
        about="Requests refused before anything was done for them: wrong host or site, a head or body too late,"
        " a head too large, no connection free, no key, a limit of the key; by the code of the problem",
        labels=("code",),
        of="process",
    ),
    Figure(
        name="jobs_accepted",
        kind="counter",
        about="Jobs accepted, points of sweeps included: `hit` if the result was cached, `shared` if the same work was"
        " under way, else `miss`; a sweep itself is `none`",
        labels=("kind", "result"),
    ),
    Figure(name="requests_repeated", kind="counter", about="Requests for jobs that were recorded before"),
    Figure(name="jobs_finished", kind="counter", about="Jobs that became final", labels=("kind", "state")),
    Figure(
        name="queue_depth",
        kind="gauge",
        about="Computations that wait for a worker",
        labels=("queue", "version", "store"),
    ),
    Figure(
        name="queue_oldest_seconds",
        kind="gauge",
        about="How long the first computation of an owner has waited, among the first thousand of the queue",
        labels=("queue", "version", "store", "owner"),
    ),
    Figure(
        name="queue_wait_seconds",
        kind="histogram",
        about="Time from the queue to the worker that published the outcome",
        labels=("kind",),
    ),
    Figure(
        name="workers",
        kind="gauge",
        about="Workers with a recent sign of life, by version and by whether their store is the `same` as this API's",
        labels=("version", "store"),
    ),
    Figure(
        name="jobs_rekeyed",
        kind="counter",
        about="Jobs that went to another version or store than that of their request",
    ),
    Figure(name="computations_running", kind="gauge", about="Computations that a worker holds"),
    Figure(
        name="computation_seconds",
        kind="histogram",
        about="Time from a worker's start to the published outcome; its count is the number of computations",
        labels=("kind", "state"),
    ),
    Figure(
        name="phase_seconds",
        kind="histogram",
        about="Time that one phase of a computation took",
        labels=("kind", "phase"),
    ),
    Figure(name="attempts_started", kind="counter", about="Times that a worker took up a computation"),
    Figure(name="attempts_lost", kind="counter", about="Attempts whose worker died, hung or went silent"),
    Figure(name="attempts_given_back", kind="counter", about="Attempts ended by a requested stop of their worker"),
    Figure(name="publishes", kind="counter", about="Outcomes published"),
    Figure(name="publishes_refused", kind="counter", about="Outcomes of attempts that no longer counted"),
    Figure(
        name="groups_degraded",
        kind="counter",
        about="Steps of ours that failed and were done in a simpler way; each is a defect to report",
    ),
    Figure(name="tables_requests", kind="counter", about="Requests for parameter tables"),
    Figure(
        name="tables_answered",
        kind="counter",
        about="Parameter tables answered, by where they were found and how good they are",
        labels=("cache", "kind"),
    ),
    Figure(name="tables_made", kind="counter", about="Parameter tables computed", labels=("kind",)),
    Figure(name="tables_wanted", kind="gauge", about="Optimised tables that wait to be made"),
    Figure(
        name="units",
        kind="counter",
        about="Shape units that compilations used: found in the cache, or built",
        labels=("source",),
    ),
    Figure(name="units_damaged", kind="counter", about="Stored shape units and libraries that were not as written"),
    Figure(name="unit_waits", kind="counter", about="Times that a compilation waited for another to build units"),
    Figure(name="cache_failures", kind="counter", about="Times that the cache's Redis was asked and did not answer"),
    Figure(name="blobs_damaged", kind="counter", about="Stored files whose bytes were not those of their digest"),
    Figure(name="blobs_removed", kind="counter", about="Stored files removed because nothing referred to them"),
    Figure(name="blob_bytes_removed", kind="counter", about="Their bytes"),
    Figure(name="results_removed", kind="counter", about="Results ended because those kept took too many bytes"),
    Figure(name="store_blobs", kind="gauge", about="Stored files, as the latest collection found them"),
    Figure(name="store_bytes", kind="gauge", about="Their bytes"),
    Figure(
        name="store_counted_timestamp_seconds",
        kind="gauge",
        about="When the latest collection counted them, in seconds since 1970; 0 before the first",
    ),
    Figure(name="disk_free_bytes", kind="gauge", about="Free space where the service keeps its data"),
)


def exposed_name(one: Figure) -> str:
    """The name that Prometheus shows."""
    return f"tessera_{one.name}{'_total' if one.kind == 'counter' else ''}"


def table() -> str:
    """The figures as a table of docs/service.md."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for one in FIGURES:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        where = "" if one.of == "service" else " (of this API process)"
        rows.append(f"| `{exposed_name(one)}` | {one.kind} | {labels} | {one.about}{where} |")
    return "\n".join(rows)


@dataclass(frozen=True, slots=True)
class Observation:
    """How long something took, for one of the histograms of the service."""

    name: str
    labels: tuple[str, ...]
    seconds: float


def record(client: redis.Redis, observations: Iterable[Observation]) -> None:
    """Adds observations; without a Redis that takes them they are lost."""
    pipeline = client.pipeline(transaction=False)
    for one in observations:
        series = "\t".join((one.name, *one.labels))
        pipeline.hincrby(HISTOGRAMS_KEY, f"{series}\t{bisect_left(WORK_BUCKETS, one.seconds)}", 1)
        pipeline.hincrby(HISTOGRAMS_KEY, f"{series}\t{_SUM}", round(one.seconds * 1e6))
    with suppress(redis.RedisError, OSError):
        pipeline.execute()


@dataclass(frozen=True, slots=True)
class Series:
    """One histogram: how many observations are at most as long as each bucket's bound, and their sum in seconds."""

    name: str
    labels: tuple[str, ...]
    counts: tuple[int, ...]
    sum_s: float


def recorded(client: redis.Redis) -> Iterator[Series]:
    """The histograms of the service that have observations, in a fixed order."""
    fields = cast(Mapping[str, str], client.hgetall(HISTOGRAMS_KEY))
    found: dict[tuple[str, ...], dict[str, int]] = {}
    for field, count in fields.items():
        *series, bucket = field.split("\t")
        found.setdefault(tuple(series), {})[bucket] = int(count)
    for series_name, buckets in sorted(found.items()):
        name, *labels = series_name
        each = (buckets.get(str(index), 0) for index in range(len(WORK_BUCKETS) + 1))
        yield Series(name, tuple(labels), tuple(accumulate(each)), buckets.get(_SUM, 0) / 1e6)
