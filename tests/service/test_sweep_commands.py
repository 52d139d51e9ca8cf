"""UI-1, API-3: sweeps, sizes and comparisons through the command line and the client, on a service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.client.client import Client
from app.client.errors import ServiceError
from app.supervisor.service import EmbeddedService
from compiler.profile import builtin_profile, profile_json
from compiler.profile.fields import with_fields
from tests.service.harness import Api, conv_chain, until
from tests.service.test_recovery import records

pytestmark = pytest.mark.service
TESSERA = Path(sys.executable).with_name("tessera")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "chain.onnx"
    path.write_bytes(conv_chain(3, channels=7))
    return path


def both(service: EmbeddedService, *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The document of a command in this process and on the service, without the ids of jobs."""
    here = CliRunner().invoke(cli, [*words, "--json"])
    there = CliRunner().invoke(cli, [*words, "--json", "--server", service.url])
    assert (here.exit_code, there.exit_code) == (0, 0), here.output + there.output
    return json.loads(here.stdout), json.loads(there.stdout)


@pytest.mark.slow
def test_a_sweep_of_a_service_is_that_of_this_process(service: EmbeddedService, model: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    mine.write_bytes(profile_json(with_fields(builtin_profile("edge4"), {"cores_per_cluster": 2})))
    profiles = ["--profile", "edge4", "--profile", str(mine)]
    here, there = both(service, "sweep", str(model), *profiles, "--grid", "nram=64KiB,128KiB,0")
    for point in there["points"]:
        assert point.pop("job")
        if point["problem"] is not None:
            assert point.pop("problem")["code"] == "invalid_profile"
    for point in here["points"]:
        assert point.pop("job") is None
        if point["problem"] is not None:
            assert point.pop("problem")["code"] == "invalid_profile"
    assert here == there
    assert [point["state"] for point in there["points"]] == ["succeeded", "succeeded", "failed"] * 2


@pytest.mark.slow
def test_a_size_of_a_service_is_that_of_this_process(service: EmbeddedService, model: Path) -> None:
    words = ["size", str(model), "-p", "edge4", "--field", "dram_bandwidth", "--target", "latency=60us"]
    here, there = both(service, *words, "--granularity", "400MB/s")
    for point in (*here["curve"], *there["curve"]):
        del point["row"]["job"]
    assert here == there
    assert here["smallest"] is not None
    assert here["options"]["objective"] == "latency"


@pytest.mark.slow
def test_two_jobs_are_compared_as_their_files_are(service: EmbeddedService, model: Path, tmp_path: Path) -> None:
    with Client(service.url) as client:
        uploaded = client.upload_model(model)
        jobs = [client.finished(client.submit(uploaded, name, {"verify": "none"})) for name in ("edge4", "cluster4x4")]
        for job, name in zip(jobs, ("a", "b"), strict=True):
            (tmp_path / name).mkdir()
            (tmp_path / name / "plan.json").write_bytes(client.document(job, "plan"))
            (tmp_path / name / "report.json").write_bytes(client.document(job, "report"))
    here = CliRunner().invoke(cli, ["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"])
    words = ["compare", jobs[0].id, jobs[1].id, "--server", service.url]
    there = CliRunner().invoke(cli, [*words, "--json"])
    assert (here.exit_code, here.stdout) == (there.exit_code, there.stdout) == (0, here.stdout)
    assert json.loads(here.stdout)["b"]["profile"]["name"] == "cluster4x4"
    assert "latency, simulated" in CliRunner().invoke(cli, words).stdout


def test_what_cannot_be_compared_says_why(api: Api) -> None:
    model = api.upload(conv_chain(3, channels=7), "chain.onnx")
    job = api.submit(model, "edge4", verify="none")
    api.finished(job)
    failed = api.finished(api.submit(model, "edge4", partition=["nonesuch"]))["id"]
    for other, status, code in (("nonesuch", 404, "unknown_job"), (failed, 409, "no_result")):
        answer = api.http.post("/v1/comparisons", json={"a": job, "b": other})
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert api.http.post("/v1/comparisons", json={"a": job}).json()["code"] == "invalid_request"
    assert api.http.post("/v1/comparisons", json={"a": job, "b": job}).json()["same_model"]


@pytest.mark.slow
def test_the_client_follows_a_sweep_and_reads_its_table_while_it_runs(service: EmbeddedService, model: Path) -> None:
    with Client(service.url) as client:
        uploaded = client.upload_model(model).id
        job = client.sweep(uploaded, ["edge4"], {"nram": ["80KiB", "96KiB", "112KiB"]}, idempotency_key="client-sweep")
        steps = [(event.phase, event.step, event.total) for event in client.follow(job.id)]
        assert steps[-1] == ("points", 3, 3)
        assert [step for _, step, _ in steps] == sorted(step for _, step, _ in steps)
        assert json.loads(client.sweep_table(job.id))["state"] == "succeeded"
        assert client.profile("edge4") == builtin_profile("edge4")
        with pytest.raises(ServiceError) as refused:
            client.sweep(uploaded, ["edge4"], {"nrm": [1]})
        assert refused.value.code == "unknown_field"


@pytest.mark.slow
def test_ctrl_c_cancels_the_sweep_of_a_service_and_shows_what_is_finished(
    service: EmbeddedService, api: Api, tmp_path: Path
) -> None:
    path = tmp_path / "long.onnx"
    path.write_bytes(conv_chain(40, channels=6))
    grid = "nram=" + ",".join(f"{capacity}KiB" for capacity in range(64, 1024, 8))
    words = [str(TESSERA), "sweep", str(path), "-p", "edge4", "--grid", grid, "--server", service.url, "--json"]
    with interruptible(words) as process:
        sweep = until(lambda: running_sweep(service), "the sweep")
        until(lambda: api.job(sweep)["step"] >= 1, "a point")
        os.killpg(process.pid, signal.SIGINT)
        text = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    report = json.loads(text)
    assert report["state"] == api.job(sweep)["state"] == "cancelled"
    assert {"succeeded", "cancelled"} == {point["state"] for point in report["points"]}


def interruptible(words: list[str]) -> subprocess.Popen[bytes]:
    """A command in a session of its own that hears Ctrl-C, though these tests may run where that is ignored."""
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True, preexec_fn=hears)


def running_sweep(service: EmbeddedService) -> str | None:
    client = records(service)
    try:
        for key in client.scan_iter("tessera:job:*", count=1000):
            if key.count(":") == 2 and client.hmget(key, ["kind", "state"]) == ["sweep", "running"]:
                return str(key).split(":")[2]
        return None
    finally:
        client.close()
