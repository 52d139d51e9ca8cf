"""SIM-5: sweeps on a real service: whatever is killed or cancelled, each point ends once and the table is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.jobs.records import LEASES_KEY
from app.supervisor.service import EmbeddedService
from tests.service.harness import BY_RULES, FINAL, Api, conv_chain, kill, settings, until
from tests.service.test_recovery import counts, records

pytestmark = pytest.mark.service
Start = Callable[..., tuple[EmbeddedService, Api]]

LONG = 30
NRAM = ["64KiB", "96KiB", "128KiB", "192KiB", "256KiB", "384KiB", "512KiB", "1MiB"]


def submitted(api: Api, model: str, grid: Mapping[str, Any], **more: Any) -> str:
    """Ask for a sweep over `edge4` by rules and return its id."""
    body = {"model": model, "profiles": ["edge4"], "grid": grid, "options": BY_RULES, **more}
    answer = api.http.post("/v1/sweeps", json=body)
    assert answer.status_code in (200, 202), answer.text
    assert answer.headers["location"] == f"/v1/sweeps/{answer.json()['id']}"
    return str(answer.json()["id"])


def table(api: Api, sweep: str) -> dict[str, Any]:
    answer = api.http.get(f"/v1/sweeps/{sweep}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def finished(api: Api, sweep: str) -> dict[str, Any]:
    assert api.finished(sweep)["state"] in FINAL
    return table(api, sweep)


def states(report: Mapping[str, Any]) -> list[str]:
    return [point["state"] for point in report["points"]]


def working(service: EmbeddedService) -> list[int]:
    """The pids of the children that work on a point just now."""
    client = records(service)
    found = []
    for key in client.scan_iter("tessera:computation:*"):
        if key.count(":") == 2:
            fields: Any = client.hgetall(key)
            if fields.get("state") == "running":
                found.append(int(fields["worker"].split("/")[1]))
    client.close()
    return found


def test_a_sweep_is_a_job_whose_points_are_compilations_like_any(api: Api) -> None:
    model = api.upload(conv_chain(3, channels=5), "chain.onnx")
    grid = {"nram": ["64KiB", "256KiB"], "dram_bandwidth": ["6.4GB/s", 12.8e9]}
    sweep = submitted(api, model, grid)
    report = finished(api, sweep)
    assert states(report) == ["succeeded"] * 4
    assert report["grid"] == [
        {"field": "nram.capacity_bytes", "values": [65536, 262144]},
        {"field": "dram.bandwidth_bytes_per_s", "values": [6_400_000_000, 12_800_000_000]},
    ]
    assert [tuple(point["values"].values()) for point in report["points"]] == [
        (65536, 6.4e9),
        (65536, 12.8e9),
        (262144, 6.4e9),
        (262144, 12.8e9),
    ]
    assert (report["state"], report["done"], report["total"], report["values_checked"]) == ("succeeded", 4, 4, False)
    # The point that is the base itself is the compilation of that profile, to the byte, and known already.
    alone = api.finished(api.submit(model, "edge4", verify="none"))
    assert alone["cached"]
    base = report["points"][3]
    assert api.http.get(f"/v1/jobs/{base['job']}/plan").content == api.http.get(f"/v1/jobs/{alone['id']}/plan").content
    plan = api.http.get(f"/v1/jobs/{base['job']}/plan").json()
    programs = api.http.get(f"/v1/jobs/{base['job']}/report").json()["programs"]
    figures = base["figures"]
    assert (figures["dram_bytes"], figures["energy_j"]) == (plan["totals"]["dram_bytes"], plan["totals"]["energy_j"])
    assert figures["simulated_latency_s"] == sum(program["simulated_cycles"] for program in programs) / 0.8e9
    assert figures["on_chip_bytes"] == 4 * 262144
    job = api.job(sweep)
    assert (job["kind"], job["step"], job["total"]) == ("sweep", 4, 4)
    assert job["links"]["sweep"] == api.job(base["job"])["links"]["sweep"] == f"/v1/sweeps/{sweep}"


def test_a_point_that_is_no_profile_is_a_row_with_its_problem(api: Api) -> None:
    model = api.upload(conv_chain(3, channels=5), "chain.onnx")
    report = finished(api, submitted(api, model, {"nram": [262144, 0]}, profiles=["edge4", "cluster4x4"]))
    assert states(report) == ["succeeded", "failed", "succeeded", "failed"]
    problem = report["points"][1]["problem"]
    assert (problem["code"], problem["actual"]) == ("invalid_profile", "0")
    assert "nram.capacity_bytes" in problem["detail"]
    assert api.job(report["points"][1]["job"])["problem"] == problem
    assert (report["state"], set(report["front"]) <= {0, 2}) == ("succeeded", True)


def test_a_sweep_without_a_point_that_succeeds_fails_and_says_why(api: Api) -> None:
    model = api.upload(conv_chain(3, channels=5), "chain.onnx")
    report = finished(api, sweep := submitted(api, model, {"sram": ["256KiB", "1MiB"]}))
    assert (report["state"], report["front"], report["latency"]) == ("failed", [], None)
    assert {point["problem"]["code"] for point in report["points"]} == {"no_such_part"}
    problem = api.job(sweep)["problem"]
    assert (problem["code"], problem["limit"]) == ("no_point_succeeded", 2)


@pytest.mark.slow
def test_the_same_sweep_again_is_answered_at_once_and_overlapping_ones_share_work(start: Start) -> None:
    service, api = start()
    client = records(service)
    model = api.upload(conv_chain(4))
    first, second = (submitted(api, model, {"nram": values}) for values in (NRAM[:3], NRAM[1:4]))
    assert [finished(api, sweep)["state"] for sweep in (first, second)] == ["succeeded"] * 2
    assert counts(client)["attempts_started"] == 4
    body = {"model": model, "profiles": ["edge4"], "grid": {"nram": NRAM[:3]}, "options": BY_RULES}
    again = api.http.post("/v1/sweeps", json=body)
    assert (again.status_code, again.json()["state"]) == (200, "succeeded")
    before, after = (table(api, sweep)["points"] for sweep in (first, again.json()["id"]))
    assert [point["figures"] for point in before] == [point["figures"] for point in after]
    assert counts(client)["attempts_started"] == 4
    client.close()


def test_a_repeated_request_makes_one_sweep_and_a_final_table_is_immutable(api: Api) -> None:
    model = api.upload(conv_chain(3, channels=5), "chain.onnx")
    body = {"model": model, "profiles": ["edge4"], "grid": {"nram": NRAM[:2]}}
    headers = {"Idempotency-Key": "sweep-once", "Prefer": "wait=20"}
    first, second = (api.http.post("/v1/sweeps", json=body, headers=headers) for _ in range(2))
    assert (first.status_code, first.json()["state"]) == (200, "succeeded")
    assert first.json()["id"] == second.json()["id"]
    other = api.http.post("/v1/sweeps", json={**body, "grid": {}}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    answer = api.http.get(first.headers["location"])
    cached = api.http.get(first.headers["location"], headers={"If-None-Match": answer.headers["etag"]})
    assert (answer.status_code, cached.status_code) == (200, 304)


@pytest.mark.parametrize(
    ("change", "code", "names"),
    [
        ({"grid": {"nrm": [1]}}, "unknown_field", "nram"),
        ({"grid": {"nram": []}}, "invalid_grid", "nram.capacity_bytes"),
        ({"grid": {"nram": [1, 2], "nram.capacity_bytes": [3]}}, "invalid_grid", "twice"),
        ({"grid": {"nram": ["64KiB", 65536]}}, "invalid_grid", "twice"),
        ({"grid": {"nram": ["64 parsecs"]}}, "invalid_quantity", "parsecs"),
        ({"grid": {"nram": list(range(1, 40)), "dram": list(range(1, 40))}}, "too_many_points", "1521"),
        ({"profiles": []}, "invalid_request", "profiles"),
        ({"profiles": ["nonesuch"]}, "unknown_profile", "nonesuch"),
        ({"model": "0" * 64}, "unknown_model", "POST /v1/models"),
        ({"options": {"fuson": "none"}}, "unknown_option", "fusion"),
        ({"more": 1}, "invalid_request", "more"),
    ],
)
def test_a_request_that_is_no_sweep_is_refused_before_anything_is_recorded(
    api: Api, change: dict[str, Any], code: str, names: str
) -> None:
    model = api.upload(conv_chain(3, channels=5), "chain.onnx")
    answer = api.http.post("/v1/sweeps", json={"model": model, "profiles": ["edge4"], **change})
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert names in answer.text


def test_the_table_of_what_is_no_sweep_is_not_found(api: Api) -> None:
    model = api.upload(conv_chain(3, channels=5), "chain.onnx")
    job = api.submit(model, "edge4", verify="none")
    assert api.http.get(f"/v1/sweeps/{job}").json()["code"] == "unknown_sweep"
    assert api.http.get("/v1/sweeps/nonesuch").json()["code"] == "unknown_job"
    text = api.http.post("/v1/sweeps", content="nram=1", headers={"Content-Type": "text/plain"})
    assert (text.status_code, text.json()["code"]) == (415, "unsupported_media_type")


@pytest.mark.slow
def test_each_point_of_a_sweep_whose_workers_are_killed_is_computed_once(start: Start) -> None:
    """Kill -9 of a child, of the whole worker, of the API right after it accepted, and of Redis."""
    service, api = start(worker_concurrency=2)
    model = api.upload(conv_chain(LONG))
    sweep = submitted(api, model, {"nram": NRAM, "dram_bandwidth": ["6.4GB/s", "12.8GB/s"]})
    kill(service.pids["api"])
    kill(until(lambda: working(service), "a worker to begin")[0])
    for done, part in ((3, "worker"), (6, "redis")):
        until(lambda done=done: reached(api, sweep, done), f"{done} points")  # type: ignore[misc]
        kill(service.pids[part])
    report = until(lambda: found if (found := seen(api, sweep)) and found["state"] in FINAL else None, "the sweep", 120)
    assert states(report) == ["succeeded"] * 16
    client = records(service)
    assert counts(client)["publishes"] == 16
    assert counts(client)["attempts_lost"] >= 1
    client.close()


def seen(api: Api, sweep: str) -> dict[str, Any] | None:
    """The table, or None while the service is just starting again."""
    try:
        answer = api.http.get(f"/v1/sweeps/{sweep}")
    except httpx.TransportError:
        return None
    return dict(answer.json()) if answer.status_code == 200 else None


def reached(api: Api, sweep: str, done: int) -> bool:
    report = seen(api, sweep)
    return report is not None and report["done"] >= done


@pytest.mark.slow
def test_a_sweep_cancelled_midway_keeps_the_points_that_are_finished(start: Start) -> None:
    service, api = start(worker_concurrency=2)
    model = api.upload(conv_chain(LONG))
    sweep = submitted(api, model, {"nram": NRAM})
    until(lambda: table(api, sweep)["done"] >= 2, "two points")
    partial = table(api, sweep)
    assert (partial["state"], len(partial["front"]) > 0) == ("running", True)
    assert api.http.post(f"/v1/jobs/{sweep}/cancel").json()["state"] in ("cancelling", "cancelled")
    report = finished(api, sweep)
    assert (report["state"], report["done"], report["total"]) == ("cancelled", 8, 8)
    assert set(states(report)) == {"succeeded", "cancelled"}
    kept = [point for point in report["points"] if point["state"] == "succeeded"]
    assert len(kept) >= 2
    assert all(point["figures"]["dram_bytes"] > 0 for point in kept)
    client = records(service)
    until(lambda: client.zcard(LEASES_KEY) == 0, "the workers to stop")
    assert client.keys("tessera:computation:*") == []
    events = api.http.get(f"/v1/jobs/{sweep}/events").text
    assert '"phase":"points"' in events
    assert events.count('"state":"cancelled"') == 1
    # what was cancelled is real work the next time, what was finished is known
    again = finished(api, submitted(api, model, {"nram": NRAM}))
    assert states(again) == ["succeeded"] * 8
    assert counts(client)["publishes"] == 8
    client.close()


@pytest.mark.slow
def test_a_sweep_goes_on_after_the_service_was_stopped_midway(start: Start, tmp_path: Path) -> None:
    with EmbeddedService(settings(tmp_path / "twice")) as service:
        service.wait_until()
        api = Api(service.url)
        sweep = submitted(api, api.upload(conv_chain(LONG)), {"nram": NRAM[:5]})
        until(lambda: table(api, sweep)["done"] >= 1, "a point")
        api.http.close()
    _, api = start("twice")
    assert states(finished(api, sweep)) == ["succeeded"] * 5


@pytest.mark.slow
def test_a_single_request_does_not_wait_for_the_end_of_a_sweep(start: Start) -> None:
    _, api = start()
    model = api.upload(conv_chain(LONG))
    sweep = submitted(api, model, {"nram": NRAM, "dram_bandwidth": ["6.4GB/s", "12.8GB/s"]})
    api.in_state(sweep, "running")
    assert api.finished(api.submit(model, "cluster4x4", verify="none"))["state"] == "succeeded"
    assert table(api, sweep)["state"] == "running"
    api.http.post(f"/v1/jobs/{sweep}/cancel")
