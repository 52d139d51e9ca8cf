"""IMPORT-4, API-5, API-6: hostile and odd model files come in over the API, and the worker outlives them all."""

from __future__ import annotations

import json
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.redis_urls import connect
from app.settings import Settings
from app.supervisor.service import EmbeddedService
from tests.corpus import scale
from tests.corpus.case import Case, Either
from tests.corpus.cases import CASES
from tests.corpus.sandbox import Outcome, objections
from tests.service.harness import Api, conv_chain, until

pytestmark = pytest.mark.service
Start = Callable[..., tuple[EmbeddedService, Api]]

SEED = 2026
SAMPLE = 60
CHILDREN = 2
MEMORY_LIMIT_BYTES = 2**30
# What a child takes between jobs, with room: the interpreter, the compiler and the schemas of onnx, and some 110 MB for
# numba and what it loads with the first program that is simulated in time.
CHILD_BYTES = 2**28 + 2**27
PATIENCE_S = 1200.0


def sampled() -> list[Case]:
    """Cases chosen by chance, the same each time; not the large networks, which only take the compiler's time."""
    large = {case.name for case in scale.CASES}
    return random.Random(SEED).sample([case for case in CASES if case.name not in large], SAMPLE)


def started_as_users_do(start: Start, **changes: Any) -> tuple[EmbeddedService, Api]:
    """A service with the times of the product, not those that make other tests quick."""
    times = {name: Settings.model_fields[name].default for name in ("lease_s", "first_resend_s", "stop_grace_s")}
    return start(worker_concurrency=CHILDREN, memory_limit_bytes=MEMORY_LIMIT_BYTES, **times, **changes)


def submitted(api: Api, case: Case) -> str | Outcome:
    """The job of a case, or its outcome if the upload or the request is refused at once."""
    octets = {"Content-Type": "application/octet-stream"}
    answer = api.http.post("/v1/models", params={"name": f"{case.name}.onnx"}, content=case.build(), headers=octets)
    if answer.status_code in (200, 201):
        body = {"model": answer.json()["id"], "profile": "cluster4x4", "options": dict(case.options)}
        answer = api.http.post("/v1/compilations", json=body)
        if answer.status_code in (200, 202):
            return str(answer.json()["id"])
    assert answer.status_code == 422, (case.name, answer.text)
    return refused(answer.json())


def refused(problem: dict[str, Any]) -> Outcome:
    """A problem as the corpus judges it: everything it says is its message."""
    parts = ("detail", "node", "op_type", "actual", "limit", "hint")
    said = [f"{name} {problem[name]}" for name in parts if name in problem]
    ended = "raised" if problem["status"] >= 500 else "rejected"
    return Outcome(ended=ended, code=problem["code"], message="; ".join(said))  # type: ignore[arg-type]


def outcome_of(api: Api, job: dict[str, Any]) -> Outcome:
    """A final job as the corpus judges it."""
    if job["state"] == "failed":
        return refused(job["problem"])
    plan = api.http.get(job["links"]["plan"]).json()
    report = api.http.get(job["links"]["report"])
    assert report.status_code == 200
    host = [node for segment in plan["segments"] if segment["kind"] == "host" for node in segment["nodes"]]
    return Outcome(ended="accepted", host=tuple(host))


class Watch:
    """What becomes of a worker's children: their process ids and the most memory each held, looked at all the time."""

    def __init__(self, worker: int) -> None:
        self.peak_bytes: dict[int, int] = {}
        self.memory_limits = 0  # jobs that ended so, which may take the child along
        self._worker = psutil.Process(worker)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")

    def now(self) -> list[int]:
        """The children that live."""
        return sorted(child.pid for child in self._worker.children())

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            for child in self.now():
                try:
                    status = Path(f"/proc/{child}/status").read_text()
                except OSError:
                    continue
                for line in status.splitlines():
                    if line.startswith("VmHWM:"):
                        peak = int(line.split()[1]) * 1024
                        self.peak_bytes[child] = max(peak, self.peak_bytes.get(child, 0))


def went_through(api: Api, cases: Sequence[Case], watch: Watch) -> dict[str, dict[str, Any]]:
    """All cases submitted at once and waited for; each had its verdict at the first attempt. The jobs by case."""
    jobs = {case.name: submitted(api, case) for case in cases}
    found: dict[str, dict[str, Any]] = {}
    wrong = []
    for case in cases:
        job = jobs[case.name]
        if isinstance(job, str):
            found[case.name] = api.finished(job, PATIENCE_S)
            wrong += [f"{case.name}: {found[case.name]['attempts']} attempts"] * (found[case.name]["attempts"] > 1)
            job = outcome_of(api, found[case.name])
            watch.memory_limits += job.code == "memory_limit"
        wrong += [f"{case.name}: {objection}" for objection in objections(in_a_service(case), job)]
    assert wrong == []
    return found


def in_a_service(case: Case) -> Case:
    """The case; what may be refused may also end by the service's memory limit, as when the value check runs it."""
    if not isinstance(case.expected, Either):
        return case
    return replace(case, expected=Either(codes=case.expected.codes | {"memory_limit"}))


def counts(service: EmbeddedService) -> dict[str, int]:
    client = connect(service.broker_url)
    fields: Any = client.hgetall("tessera:counts")
    client.close()
    return {name: int(value) for name, value in fields.items()}


def forget_results(service: EmbeddedService) -> None:
    """Empty the result cache, which may be lost at any time: the same requests are work again."""
    client = connect(service.cache_url)
    client.flushdb()
    client.close()


def logged(service: EmbeddedService) -> list[dict[str, Any]]:
    """What API and worker logged: one JSON object a line, whatever the names in a model hold (API-7)."""
    paths = [path for path in service.log_dir.iterdir() if path.name.startswith(("api", "worker"))]
    lines = [line for path in sorted(paths) for line in path.read_bytes().split(b"\n")[:-1]]  # whole ones
    # Celery says so of a child that ended itself at its memory limit; `outlived` counts those
    assert not [line for line in lines if b"Traceback" in line and b"signal 9 (SIGKILL)" not in line]
    return [json.loads(line) for line in lines]


def left(service: EmbeddedService) -> set[int]:
    """The children that the worker started and did not replace, for their number of tasks or for their memory."""
    lines = logged(service)
    started = {line["pid"] for line in lines if line["event"] == "child_started"}
    recycled = {line["pid"] for line in lines if line["event"] == "child_ended" and line["recycled"]}
    return started - recycled - {line["pid"] for line in lines if line["event"] == "child_ends_itself"}


@contextmanager
def outlived(service: EmbeddedService, api: Api) -> Iterator[Watch]:
    """Watch a worker, and see at the end that it did not suffer."""
    pids = service.pids
    model = api.upload(conv_chain(10))
    before = api.finished(api.submit(model))
    plan = api.http.get(before["links"]["plan"]).content
    with Watch(pids["worker"]) as watch:
        yield watch
        forget_results(service)
        after = api.finished(api.submit(model))
        assert (after["state"], after["cached"], after["attempts"]) == ("succeeded", False, 1)
        assert api.http.get(after["links"]["plan"]).content == plan
        until(
            lambda: len(now := watch.now()) == CHILDREN and set(now) == left(service),
            "every child to live, or to have ended as configured and to be replaced",
        )
        assert max(psutil.Process(child).memory_info().rss for child in watch.now()) < CHILD_BYTES
    assert service.pids == pids
    totals = counts(service)
    assert (totals.get("attempts_lost", 0), totals.get("publishes_refused", 0)) == (0, 0)
    assert max(watch.peak_bytes.values()) < CHILD_BYTES + MEMORY_LIMIT_BYTES
    lines = logged(service)
    bad = [line for line in lines if line["level"] in ("error", "critical") and "signal 9" not in line["event"]]
    limited = "lower: the program is too large to be proved safe"  # no defect: an op of 2^30 elements goes to the host
    assert [line for line in bad if not all(entry.startswith(limited) for entry in line.get("entries", [""]))] == []
    ends, told = (
        sum(line["event"].startswith(words) for line in lines)
        for words in ("child_ends_itself", "Task handler raised error: WorkerLostError")
    )
    assert ends == told
    assert ends <= watch.memory_limits
    assert totals["attempts_started"] == totals["publishes"] + ends


@pytest.mark.slow
def test_the_worker_survives_a_sample_of_the_corpus_twice(start: Start) -> None:
    service, api = started_as_users_do(start, worker_max_tasks_per_child=10_000)
    with outlived(service, api) as watch:
        children = watch.now()
        for _ in range(2):
            forget_results(service)
            went_through(api, sampled(), watch)
        assert watch.now() == children
    assert sorted(watch.peak_bytes) == children


@pytest.mark.full
def test_the_worker_survives_the_whole_corpus_twice(start: Start) -> None:
    service, api = started_as_users_do(start)
    begun = time.monotonic()
    jobs: list[tuple[float, str]] = []
    with outlived(service, api) as watch:
        for _ in range(2):
            forget_results(service)
            jobs += [(duration_s(job), case) for case, job in went_through(api, CASES, watch).items()]
    longest, name = max(jobs)
    median = statistics.median(duration_s for duration_s, _ in jobs)
    print(
        f"{len(jobs)} jobs in {time.monotonic() - begun:.0f} s, median {median:.3f} s, longest {longest:.1f} s ({name})"
        f"\n{len(watch.peak_bytes) - CHILDREN} of {len(watch.peak_bytes)} children recycled,"
        f" {max(watch.peak_bytes.values()) >> 20} MiB at most"
    )


def duration_s(job: dict[str, Any]) -> float:
    """From the first attempt's start to the end."""
    if "started_at" not in job:  # it shares the outcome of a case with the same bytes
        return 0.0
    begun, ended = (datetime.fromisoformat(job[name]) for name in ("started_at", "finished_at"))
    return (ended - begun).total_seconds()
