"""API-8: one request followed through the logs of all processes; what the metrics say of the work that was done."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from app.redis_urls import connect
from app.supervisor.service import EmbeddedService
from compiler.version import COMPILER_VERSION
from tests.service.harness import Api, conv_chain, until

pytestmark = pytest.mark.service
Start = Callable[..., tuple[EmbeddedService, Api]]

HOSTILE = 'net\n{"event": "forged"}\x1b[31m"<script>.onnx'


def lines(service: EmbeddedService, process: str) -> list[dict[str, Any]]:
    """What a process logged, as JSON; the last line may be half written."""
    *whole, _ = (service.log_dir / f"{process}.log").read_text().split("\n")
    return [json.loads(line) for line in whole]


def figures(api: Api) -> dict[str, float]:
    """The figures by name and labels, without buckets."""
    text = api.http.get("/metrics").text
    return {name: float(value) for name, value in re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)}


def test_a_trace_leads_from_the_caller_through_the_api_to_the_worker(service: EmbeddedService, api: Api) -> None:
    trace, span, request_id = secrets.token_hex(16), secrets.token_hex(8), secrets.token_hex(8)
    model = api.upload(conv_chain(2, channels=7), HOSTILE)
    answer = api.http.post(
        "/v1/compilations",
        json={"model": model, "profile": "edge4"},
        headers={"traceparent": f"00-{trace}-{span}-01", "X-Request-ID": request_id},
    )
    job = answer.json()["id"]
    api.finished(job)
    ours = re.fullmatch(rf"00-{trace}-([0-9a-f]{{16}})-01", answer.headers["traceresponse"])
    assert ours is not None

    def logged(process: str) -> list[dict[str, Any]]:
        return [line for line in lines(service, process) if line.get("trace_id") == trace]

    of_worker = until(lambda: logged("worker"), "the worker's line")
    accepted, requested = logged("api")
    assert (accepted["event"], requested["event"]) == ("job_accepted", "request")
    for line in (accepted, requested):
        assert (line["job"], line["request_id"]) == (job, request_id)
        assert (line["span_id"], line["parent_span_id"]) == (ours[1], span)
    for line in of_worker:
        assert (line["jobs"], line["request_id"]) == ([job], request_id)
        assert (line["content"], line["parent_span_id"]) == (accepted["content"], ours[1])
        assert line["span_id"] not in (span, ours[1])


def test_every_line_of_a_request_and_of_a_computation_names_it(service: EmbeddedService, api: Api) -> None:
    """Also where a model's name is hostile, and fails (API-7)."""
    name = f"{secrets.token_hex(8)}{HOSTILE}"
    model = api.upload(b"no network, " + name.encode(), name)
    job = api.submit(model, "edge4")
    assert api.finished(job)["state"] == "failed"
    found = until(lambda: [line for line in lines(service, "worker") if job in line.get("jobs", ())], "its lines")
    assert {"refused", "computed"} >= {line["event"] for line in found}
    for process in ("api", "worker"):
        for line in lines(service, process):
            assert line["event"] != "forged"
            if line["logger"] in ("app.middleware", "app.jobs.accept_jobs"):
                assert {"request_id", "trace_id", "span_id"} <= line.keys()
            if line["logger"] == "worker.task":
                assert {"request_id", "trace_id", "span_id", "jobs", "content", "fence", "attempt"} <= line.keys()


def test_a_wrong_traceparent_is_replaced_and_reaches_no_log(service: EmbeddedService, api: Api) -> None:
    answer = api.http.get("/v1/models", headers={"traceparent": "00-forgedforged-1-01", "X-Request-ID": "wrong-parent"})
    assert answer.status_code == 200
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", answer.headers["traceresponse"])
    until(lambda: [line for line in lines(service, "api") if line.get("request_id") == "wrong-parent"], "its line")
    assert "forgedforged" not in (service.log_dir / "api.log").read_text()


@pytest.mark.slow
def test_metrics_tell_the_work_from_what_was_cached_and_how_long_each_phase_took(start: Start) -> None:
    _, api = start()
    data = conv_chain(2)
    model = api.upload(data)
    job = api.submit(model, "edge4")
    api.finished(job)
    until(lambda: figures(api).get('tessera_computation_seconds_count{kind="compilation",state="succeeded"}'), "it")
    api.submit(model, "edge4")
    run = api.http.post("/v1/simulations", json={"job": job}).json()["id"]
    api.finished(run)
    api.http.get("/v1/nothing")
    api.http.get("/v1/models", headers={"Host": "other.test"})
    found = until(
        lambda: now if 'tessera_phase_seconds_count{kind="simulation",phase="run"}' in (now := figures(api)) else None,
        "the simulation's phases",
    )
    assert found['tessera_jobs_accepted_total{kind="compilation",result="miss"}'] == 1
    assert found['tessera_jobs_accepted_total{kind="compilation",result="hit"}'] == 1
    assert found['tessera_jobs_accepted_total{kind="simulation",result="miss"}'] == 1
    assert found['tessera_jobs_finished_total{kind="compilation",state="succeeded"}'] == 2
    assert found['tessera_computation_seconds_count{kind="compilation",state="succeeded"}'] == 1
    phases = {name: value for name, value in found.items() if name.startswith('tessera_phase_seconds_sum{kind="comp')}
    whole = found['tessera_computation_seconds_sum{kind="compilation",state="succeeded"}']
    assert len(phases) > 10
    assert 0.5 * whole < sum(phases.values()) <= whole
    assert found['tessera_queue_wait_seconds_count{kind="compilation"}'] == 1
    assert found['tessera_http_request_seconds_count{method="POST",route="/v1/models",status="201"}'] == 1
    assert found['tessera_http_request_seconds_count{method="any",route="none",status="404"}'] == 1
    assert found['tessera_http_request_seconds_count{method="any",route="none",status="421"}'] == 1
    assert found['tessera_requests_refused_total{code="host_not_allowed"}'] == 1
    assert len(data) < found["tessera_http_received_bytes_total"] < len(data) + 2000
    assert found["tessera_http_sent_bytes_total"] > 1000
    assert found["tessera_disk_free_bytes"] > 0


def test_metrics_say_how_long_the_queue_of_each_owner_is(spare: tuple[EmbeddedService, Api]) -> None:
    service, api = spare
    worker = psutil.Process(service.pids["worker"])
    worker.suspend()
    waiting = api.submit(api.upload(conv_chain(3)), "edge4")
    client = connect(service.broker_url)
    api.in_state(waiting, "queued")
    content: Any = client.hget(f"tessera:job:{waiting}", "content")
    client.hset(f"tessera:computation:{content}", "owner", "somebody")
    name = f'tessera_queue_oldest_seconds{{owner="somebody",queue="short",store="same",version="{COMPILER_VERSION}"}}'
    first = until(lambda: figures(api).get(name), "an age")
    assert until(lambda: figures(api).get(name, 0) > first, "the age to grow")
    client.close()
    api.http.post(f"/v1/jobs/{waiting}/cancel")
    worker.resume()
