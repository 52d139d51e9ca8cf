"""A sweep on the real service: how much faster two worker processes are than one, and what a kill or a cancel leaves.

`python -m tests.bench sweep` and `python -m tests.bench sweep-recovery`; each takes minutes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from app.client.client import Client
from app.supervisor.service import EmbeddedService
from app.sweeps.report import SweepReport
from tests.service.harness import kill, light_model, settings, tree, until
from tests.service.test_sweeps import working

_PROFILE: Final = "edge4"
_GRID: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "nram": ("128KiB", "192KiB", "256KiB", "384KiB", "512KiB", "1MiB"),
        "dram_bandwidth": ("3.2GB/s", "6.4GB/s", "9.6GB/s", "12.8GB/s", "19.2GB/s", "25.6GB/s", "38.4GB/s", "51.2GB/s"),
    }
)
_MIDWAY: Final = 12
_PATIENCE_S: Final = 1800.0


def run() -> None:
    """The same sweep with one and with two worker processes, each on a service of its own that knows nothing yet.

    Seconds that the workers had of processors tell whether something else took them: two workers on two idle processors
    take about half of theirs.
    """
    print(f"\n### Sweep: ResNet-50 on `{_PROFILE}`, 48 points (NRAM × DRAM bandwidth), from the request to the table\n")
    print("| worker processes | points | s | of processors | times as fast |\n|---:|---:|---:|---:|---:|")
    first: tuple[float, SweepReport] | None = None
    for workers in (1, 2):
        with _service(workers) as (service, client):
            model = client.upload_model(light_model("resnet50")).id
            begun = time.perf_counter()
            report = _finished(client, client.sweep(model, [_PROFILE], _GRID).id)
            seconds = time.perf_counter() - begun
            busy = sum(sum(process.cpu_times()[:2]) for process in tree(service.pids["worker"]))
        assert all(point.state == "succeeded" for point in report.points)
        assert first is None or _figures(first[1]) == _figures(report)
        ratio = "" if first is None else f"{first[0] / seconds:.2f}"
        print(f"| {workers} | {report.done} | {seconds:.1f} | {busy:.1f} | {ratio} |", flush=True)
        first = first or (seconds, report)


def run_recovery() -> None:
    """The same sweep with a worker process killed midway, and cancelled midway."""
    print(
        f"\n### Sweep: ResNet-50 on `{_PROFILE}`, 48 points, two worker processes, disturbed after {_MIDWAY} points\n"
    )
    print("| what happened | state | succeeded | cancelled | lost attempts | s |\n|---|---|---:|---:|---:|---:|")
    for what in ("cancelled", "kill -9 of a worker process"):
        with _service(2) as (service, client):
            model = client.upload_model(light_model("resnet50")).id
            begun = time.perf_counter()
            sweep = client.sweep(model, [_PROFILE], _GRID).id
            until(lambda: (client.job(sweep).step or 0) >= _MIDWAY, "points", _PATIENCE_S)  # noqa: B023
            if what == "cancelled":
                client.cancel(sweep)
            else:
                kill(until(lambda: working(service), "a worker at work")[0])
            report = _finished(client, sweep)
            seconds = time.perf_counter() - begun
            attempts = sum(client.job(point.job).attempts - 1 for point in report.points if point.job and point.figures)
        states = [point.state for point in report.points]
        counts = f"{states.count('succeeded')} | {states.count('cancelled')} | {attempts}"
        print(f"| {what} | {report.state} | {counts} | {seconds:.1f} |", flush=True)


@contextmanager
def _service(workers: int) -> Iterator[tuple[EmbeddedService, Client]]:
    """An embedded service with an empty data folder, ready to work, its numeric libraries on one thread."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedService(settings(Path(folder), worker_concurrency=workers)) as service,
    ):
        service.wait_until()
        with Client(service.url) as client:
            yield service, client


def _finished(client: Client, sweep: str) -> SweepReport:
    for _ in client.follow(sweep):
        pass
    return msgspec.json.decode(client.sweep_table(sweep), type=SweepReport)


def _figures(report: SweepReport) -> list[object]:
    return [point.figures for point in report.points]
