"""API-3: executables and listings of jobs, and simulations, over HTTP against real processes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.client.client import Client
from app.client.errors import ServiceError
from app.supervisor.service import EmbeddedService
from compiler.program.executable import read
from compiler.program.timing.trace import trace_of
from tests.service.executables import embedding, executable, file_of, unsafe
from tests.service.harness import Api, conv_chain
from tests.service.models import lstm, network

pytestmark = pytest.mark.service


def assert_problem(answer: httpx.Response, status: int, code: str, names: str = "") -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = dict(answer.json())
    assert problem["code"] == code
    assert names in json.dumps(problem)
    return problem


@pytest.fixture(scope="module")
def job(api: Api) -> str:
    """A compilation that succeeded."""
    found = api.submit(api.upload(network().data()), "edge4")
    assert api.finished(found)["state"] == "succeeded"
    return found


@pytest.fixture(scope="module")
def other_job(api: Api) -> str:
    """A compilation with an integer input."""
    found = api.submit(api.upload(embedding().data(), "ids.onnx"), "edge4")
    assert api.finished(found)["state"] == "succeeded"
    return found


@pytest.fixture(scope="module")
def upload() -> bytes:
    """An executable that no job of the service made."""
    return file_of(executable(network(), "cluster4x4"))


def simulated(api: Api, answer: httpx.Response) -> dict[str, Any]:
    """The job that came of a request, once it is final."""
    assert answer.status_code in (200, 202), answer.text
    assert answer.json()["kind"] == "simulation"
    return api.finished(answer.json()["id"])


def report_of(api: Api, found: dict[str, Any]) -> dict[str, Any]:
    assert found["state"] == "succeeded", found
    return dict(api.http.get(found["links"]["report"]).json())


def outputs_of(api: Api, found: dict[str, Any]) -> dict[str, Any]:
    with np.load(io.BytesIO(api.http.get(found["links"]["outputs"]).content)) as file:
        return dict(file)


def test_a_job_gives_its_executable_once_and_304_afterwards(api: Api, job: str) -> None:
    links = api.job(job)["links"]
    answer = api.http.get(links["executable"])
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert read(answer.content).model_name == "net.onnx"
    again = api.http.get(links["executable"], headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert_problem(api.http.get(f"/v1/jobs/{job}/executables/1"), 404, "no_such_result", "one file")
    assert_problem(api.http.get(f"/v1/jobs/{job}/executables/-1"), 422, "invalid_request")
    assert_problem(api.http.get("/v1/jobs/nonesuch/executables/0"), 404, "unknown_job")


def test_a_job_gives_its_listing_whole_or_in_part(api: Api, job: str) -> None:
    answer = api.http.get(f"/v1/jobs/{job}/listing")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text.startswith("segment s0 on chip 0\n")
    etag = answer.headers["etag"]
    assert api.http.get(f"/v1/jobs/{job}/listing", headers={"If-None-Match": etag}).status_code == 304
    short = api.http.get(f"/v1/jobs/{job}/listing", params={"group": "s0.g0", "head": 1, "tail": 0})
    assert "  ..." in short.text
    assert short.headers["etag"] != etag
    assert "commands by opcode" in api.http.get(f"/v1/jobs/{job}/listing?summary=true").text
    assert_problem(api.http.get(f"/v1/jobs/{job}/listing?group=s7"), 422, "unknown_group", "s0.g0")
    assert_problem(api.http.get(f"/v1/jobs/{job}/listing?head=1000000"), 422, "invalid_request")


def test_a_job_gives_the_trace_of_its_executable(api: Api, job: str) -> None:
    """API-3, SIM-4: the same as that of the executable it gives."""
    links = api.job(job)["links"]
    answer = api.http.get(links["trace"])
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/vnd.perfetto.trace"
    executable = read(api.http.get(links["executable"]).content)
    assert answer.content == b"".join(trace_of(executable))
    etag = answer.headers["etag"]
    assert api.http.get(links["trace"], headers={"If-None-Match": etag}).status_code == 304
    short = api.http.get(links["trace"], params={"commands": 3})
    assert short.headers["etag"] != etag
    assert short.content == b"".join(trace_of(executable, limit=3))
    assert_problem(api.http.get(f"/v1/jobs/{job}/trace?commands=-1"), 422, "invalid_request")
    assert_problem(api.http.get("/v1/jobs/nonesuch/trace"), 404, "unknown_job")


def test_the_executable_of_a_job_runs_on_given_inputs_and_is_compared_with_its_model(api: Api, job: str) -> None:
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
    file = io.BytesIO()
    np.savez(file, x=x)
    answer = api.http.post("/v1/simulations", files={"inputs": ("in.npz", file.getvalue())}, data={"job": job})
    assert answer.headers["location"] == f"/v1/jobs/{answer.json()['id']}"
    found = simulated(api, answer)
    report = report_of(api, found)
    assert report["seed"] is None
    assert report["comparison"]["holds"] is True
    (expected,) = network().run({"x": x})
    np.testing.assert_allclose(outputs_of(api, found)["v3"], expected, rtol=1e-4, atol=1e-4)
    assert found["model"]["name"] == "net.onnx"
    assert_problem(api.http.get(f"/v1/jobs/{found['id']}/plan"), 404, "no_such_result", "report, outputs")


def test_an_uploaded_executable_runs_without_its_model(api: Api, upload: bytes) -> None:
    answer = api.http.post("/v1/simulations", files={"executable": ("e.tsx", upload)}, data={"seed": "7"})
    found = simulated(api, answer)
    report = report_of(api, found)
    assert (report["seed"], report["comparison"], report["profile"]["name"]) == (7, None, "cluster4x4")
    assert "model" not in found
    assert outputs_of(api, found)["v3"].shape == (1, 4, 16, 16)


def test_the_same_simulation_is_answered_at_once(api: Api, job: str) -> None:
    simulated(api, api.http.post("/v1/simulations", json={"job": job, "seed": 11}))
    again = api.http.post("/v1/simulations", json={"job": job, "seed": 11})
    assert (again.status_code, again.json()["cached"]) == (200, True)
    other = api.http.post("/v1/simulations", json={"job": job, "seed": 12}, headers={"Prefer": "wait=20"})
    assert (other.status_code, other.json()["cached"]) == (200, False)


def test_an_idempotency_key_repeats_a_simulation_and_refuses_another(api: Api, job: str) -> None:
    headers = {"Idempotency-Key": "simulate-once"}
    first, second = (
        api.http.post("/v1/simulations", json={"job": job, "seed": 21}, headers=headers).json() for _ in range(2)
    )
    assert first["id"] == second["id"]
    other = api.http.post("/v1/simulations", json={"job": job, "seed": 22}, headers=headers)
    assert_problem(other, 422, "idempotency_key_reused")


def test_an_unsafe_mutant_fails_with_command_and_violation(api: Api) -> None:
    """PROG-4."""
    mutant, command = unsafe(executable(network()))
    answer = api.http.post("/v1/simulations", files={"executable": ("mutant.tsx", file_of(mutant))})
    found = simulated(api, answer)
    problem = found["problem"]
    assert found["state"] == "failed"
    assert (problem["code"], problem["command"], problem["violation"]) == ("invalid_program", command, "address")
    assert f"command {command}" in problem["detail"]
    assert problem["status"] == 422


@pytest.mark.parametrize("cut", [10, 200, -1])
def test_a_damaged_executable_fails_with_section_and_byte(api: Api, upload: bytes, cut: int) -> None:
    found = simulated(api, api.http.post("/v1/simulations", files={"executable": ("e.tsx", upload[:cut])}))
    assert (found["state"], found["problem"]["code"]) == ("failed", "invalid_executable")
    assert "byte" in found["problem"]["detail"]


def npz(**values: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **values)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "code", "names"),
    [
        (npz(z=np.zeros(1)), "unknown_input", "'z'"),
        (npz(ids=np.zeros((2, 6), np.int64)), "missing_input", "gain"),
        (npz(ids=np.zeros((2, 6), np.float32), gain=np.zeros(8, np.float32)), "wrong_input", "int64[2, 6]"),
        (npz(ids=np.array([{}], dtype=object)), "invalid_inputs", "'ids'"),
        (b"no archive", "invalid_inputs", ".npz"),
    ],
)
def test_inputs_that_do_not_fit_fail_by_name(api: Api, other_job: str, data: bytes, code: str, names: str) -> None:
    answer = api.http.post("/v1/simulations", files={"inputs": ("in.npz", data)}, data={"job": other_job})
    found = simulated(api, answer)
    assert (found["state"], found["problem"]["code"]) == ("failed", code)
    assert names in json.dumps(found["problem"])


def test_a_wrong_request_is_refused_before_anything_runs(api: Api, job: str, upload: bytes) -> None:
    post = api.http.post
    file = {"executable": ("e.tsx", upload)}
    assert_problem(post("/v1/simulations", json={}), 422, "invalid_request", "job")
    assert_problem(post("/v1/simulations", json={"job": "nonesuch"}), 404, "unknown_job")
    assert_problem(post("/v1/simulations", json={"job": job, "seed": -1}), 422, "invalid_request", "seed")
    assert_problem(post("/v1/simulations", json={"job": job, "options": {"batch": 1}}), 422, "unknown_option", "batch")
    assert_problem(post("/v1/simulations", json={"job": job, "options": {"time_limit_s": 1e9}}), 422, "invalid_option")
    for content, kind, status, code in (
        (b"{", "application/json", 400, "malformed_request"),
        (b"x", "text/plain", 415, "unsupported_media_type"),
    ):
        answer = post("/v1/simulations", content=content, headers={"Content-Type": kind})
        assert_problem(answer, status, code)
    assert_problem(post("/v1/simulations", files=file, data={"job": job}), 422, "invalid_request", "both")
    assert_problem(post("/v1/simulations", files={"seed": (None, "3")}), 422, "invalid_request", "neither")
    assert_problem(post("/v1/simulations", files={"executable": ("e.tsx", b"")}), 422, "invalid_request", "empty")
    assert_problem(post("/v1/simulations", files=file, data={"seed": "x"}), 422, "invalid_request", "seed")
    assert_problem(post("/v1/simulations", files=file, data={"colour": "red"}), 422, "invalid_request", "colour")
    assert_problem(post("/v1/simulations", files={"executable": ("e", bytes(4_000_001))}), 413, "too_large")


def test_a_job_without_an_executable_says_why(api: Api, job: str) -> None:
    simulation = simulated(api, api.http.post("/v1/simulations", json={"job": job}))
    again = api.http.post("/v1/simulations", json={"job": simulation["id"]})
    assert_problem(again, 404, "no_such_result", "simulation")
    failed = api.submit(api.upload(b"no model"))
    assert api.finished(failed)["state"] == "failed"
    assert_problem(api.http.post("/v1/simulations", json={"job": failed}), 409, "no_result", "failed")


def test_an_executable_without_values_is_not_run(api: Api) -> None:
    job = api.submit(api.upload(network().data()), "edge4", precision="int8")
    assert api.finished(job)["state"] == "succeeded"
    found = simulated(api, api.http.post("/v1/simulations", json={"job": job}))
    assert (found["state"], found["problem"]["code"]) == ("failed", "no_values")


def test_a_simulation_runs_without_a_judge_once_the_model_is_deleted(api: Api) -> None:
    model = api.upload(conv_chain(1, channels=5), "gone.onnx")
    job = api.submit(model, "cluster4x4", verify="none")
    assert api.finished(job)["state"] == "succeeded"
    found = simulated(api, api.http.post("/v1/simulations", json={"job": job, "seed": 31}))
    assert report_of(api, found)["comparison"]["holds"] is True
    assert api.http.delete(f"/v1/models/{model}").status_code == 204
    found = simulated(api, api.http.post("/v1/simulations", json={"job": job, "seed": 31}))
    assert report_of(api, found)["comparison"] is None


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize(
    ("options", "code"), [({"time_limit_s": 0.01}, "time_limit"), ({"memory_limit_bytes": 1}, "memory_limit")]
)
def test_a_simulation_is_bounded_like_a_compilation(api: Api, options: dict[str, Any], code: str) -> None:
    """API-5."""
    job = api.submit(api.upload(conv_chain(10, channels=32, extent=64)), "edge4", verify="none")
    assert api.finished(job)["state"] == "succeeded"
    found = simulated(api, api.http.post("/v1/simulations", json={"job": job, "options": options}))
    assert (found["state"], found["problem"]["code"]) == ("failed", code)
    fine = simulated(api, api.http.post("/v1/simulations", json={"job": job, "seed": 99}))
    assert fine["state"] == "succeeded"


@pytest.mark.slow
def test_the_client_has_the_verbs(service: EmbeddedService, job: str, tmp_path: Path) -> None:
    """UI-2."""
    with Client(service.url) as client:
        client.save_executable(job, tmp_path / "e.tsx")
        assert "group s0.g0" in client.listing(job, group="s0.g0", head=1)
        client.save_trace(job, tmp_path / "t.perfetto-trace", commands=5)
        assert (tmp_path / "t.perfetto-trace").read_bytes() == b"".join(
            trace_of(read((tmp_path / "e.tsx").read_bytes()), limit=5)
        )
        first = client.finished(client.simulate(job=job, seed=41).id)
        second = client.finished(client.simulate(executable=tmp_path / "e.tsx", seed=41).id)
        assert first.kind == second.kind == "simulation"
        assert client.outputs(first.id) == client.outputs(second.id)
        (tmp_path / "in.npz").write_bytes(npz(z=np.zeros(1)))
        with pytest.raises(ServiceError) as caught:
            client.finished(client.simulate(job=job, inputs=tmp_path / "in.npz").id)
        assert caught.value.code == "unknown_input"
        with pytest.raises(ServiceError) as caught:
            client.save_executable(first.id, tmp_path / "none.tsx")
        assert (caught.value.code, (tmp_path / "none.tsx").exists()) == ("no_such_result", False)


def run_twice(service: EmbeddedService, *words: str) -> str:
    """What a command prints, which is the same here and on the service."""
    here = CliRunner().invoke(cli, [*words])
    there = CliRunner().invoke(cli, [*words, "--server", service.url])
    assert (here.exit_code, there.exit_code) == (0, 0), here.output + there.output
    assert here.stdout == there.stdout
    return here.stdout


@pytest.mark.slow
def test_the_command_line_runs_and_lists_on_a_service_as_it_does_here(service: EmbeddedService, tmp_path: Path) -> None:
    """UI-1: the same words, the same outputs to the byte."""
    # a model of its own: a service that knows one by its content calls it what it was called first
    path = lstm(tmp_path / "lstm.onnx", hidden=8)
    text = run_twice(service, "run", path, "--profile", "edge4", "--check", "--json")
    assert json.loads(text)["comparison"]["holds"] is True
    for more in (["--head", "5"], ["--tail", "1", "--group", "s1.g0"], []):
        assert "group s1.g0" in run_twice(service, "listing", path, "--profile", "edge4", *more)
    out = {name: tmp_path / name for name in ("here", "there")}
    for name, more in (("here", []), ("there", ["--server", service.url])):
        answer = CliRunner().invoke(
            cli, ["compile", path, "--profile", "edge4", "--out", str(out[name]), "--trace", *more]
        )
        assert answer.exit_code == 0, answer.output
    for name in ("plan.json", "report.json", "executable.tsx", "listing.txt", "trace.perfetto-trace"):
        assert (out["here"] / name).read_bytes() == (out["there"] / name).read_bytes(), name
    file = str(out["here"] / "executable.tsx")
    assert "Every program is proved safe" in run_twice(service, "simulate", file, "--seed", "2")
    mutant, command = unsafe(executable(network()))
    (tmp_path / "mutant.tsx").write_bytes(file_of(mutant))
    answer = CliRunner().invoke(cli, ["run", str(tmp_path / "mutant.tsx"), "--server", service.url])
    assert answer.exit_code == 3
    assert f"command {command}" in answer.stderr
