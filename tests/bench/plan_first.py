"""When the plan of a job can be read, and when the job ends, on a warm service: `python -m tests.bench plan-first`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

from app.client.client import Client
from app.supervisor.service import EmbeddedService
from tests.service.harness import conv_chain, light_model, settings, tree

_CASES: Final = (("resnet50", "edge4"), ("resnet50", "cluster4x4"), ("densenet121", "cluster4x4"))


def run() -> None:
    """Seconds from the request to the provisional plan and to the end, and processor seconds of the worker by then.

    The service has one worker process, which has worked on a small model before.
    """
    print("| model | profile | to the plan, s | of processors | to the end, s | of processors | plan after |")
    print("|---|---|---:|---:|---:|---:|---:|")
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedService(settings(Path(folder) / "data", worker_concurrency=1, lease_s=120)) as service,
    ):
        service.wait_until(timeout_s=300)
        with Client(service.url) as client:
            client.compile(conv_chain(2), "edge4")
            for model, profile in _CASES:
                marks = _measured(service, client, light_model(model), profile)
                (plan_s, plan_busy), (end_s, end_busy) = marks
                row = f"| {model} | {profile} | {plan_s:.1f} | {plan_busy:.1f} | {end_s:.1f} | {end_busy:.1f} |"
                print(f"{row} {plan_busy / end_busy:.0%} |", flush=True)


def _measured(
    service: EmbeddedService, client: Client, model: Path, profile: str
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Seconds, and seconds of processors, until the plan and until the end."""
    uploaded = client.upload_model(model)
    begun, used = time.perf_counter(), _busy(service)

    def mark() -> tuple[float, float]:
        return time.perf_counter() - begun, _busy(service) - used

    job = client.submit(uploaded, profile)
    planned: tuple[float, float] | None = None
    for event in client.follow(job):
        if event.planned and planned is None:
            planned = mark()
    assert client.job(job).state == "succeeded"
    assert planned is not None
    return planned, mark()


def _busy(service: EmbeddedService) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in tree(service.pids["worker"]))
