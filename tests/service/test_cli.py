"""UI-1, API-2: the command line with a service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.client.client import ServiceError, TesseraClient
from app.supervisor.service import EmbeddedService
from compiler.profile import builtin_profile, profile_json
from tests.service.harness import conv_chain, light_model

pytestmark = pytest.mark.service
TESSERA = Path(sys.executable).with_name("tessera")


def test_a_service_and_this_process_give_the_same_plan(service: EmbeddedService, tmp_path: Path) -> None:
    words = ["compile", str(light_model("squeezenet")), "--profile", "edge4", "--set", "start_rule=B"]
    here = CliRunner().invoke(cli, [*words, "--out", str(tmp_path / "here")])
    there = CliRunner().invoke(cli, [*words, "--out", str(tmp_path / "there"), "--server", service.url])
    assert (here.exit_code, there.exit_code) == (0, 0), there.output
    for name in ("plan.json", "report.json"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


def test_a_failed_job_is_an_exit_code_and_one_block(service: EmbeddedService, tmp_path: Path) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("no network")
    words = ["compile", str(path), "--profile", "edge4", "--server", service.url]
    answer = CliRunner().invoke(cli, words)
    assert (answer.exit_code, answer.stdout) == (3, "")
    assert "ONNX" in answer.stderr
    words[3] = "nonesuch"
    answer = CliRunner().invoke(cli, [*words, "--json"])
    assert (answer.exit_code, json.loads(answer.stderr)["code"]) == (2, "unknown_profile")


def test_the_client_does_all_verbs(service: EmbeddedService, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(conv_chain(9))
    values = {**json.loads(profile_json(builtin_profile("edge4"))), "name": "of-the-client"}
    with TesseraClient(service.url) as client:
        profile = client.upload_profile(json.dumps(values).encode())
        assert profile.name in {found.name for found in client.profiles()}
        model = client.upload_model(path)
        assert client.upload_model(path) == model
        job = client.compile(model.id, profile.digest, {"fusion": "none"}, idempotency_key="client")
        assert client.compile(model.id, profile.digest, {"fusion": "none"}, idempotency_key="client").id == job.id
        states = [event.state for event in client.follow(job.id)]
        assert (states[0], states[-1]) == ("queued", "succeeded")
        assert client.finished(job.id).state == "succeeded"
        assert json.loads(client.plan(job.id))["model"]["sha256"] == model.id
        assert json.loads(client.report(job.id))
        assert client.cancel(job.id).state == "succeeded"
        assert {found.name for found in client.profiles()} >= {"edge4", "cluster4x4"}
        with pytest.raises(ServiceError, match="no job") as caught:
            client.job("nobody")
        assert (caught.value.code, caught.value.status) == ("unknown_job", 404)


def test_the_profiles_of_a_service_are_listed(service: EmbeddedService) -> None:
    answer = CliRunner().invoke(cli, ["profiles", "--server", service.url, "--json"])
    assert {"cluster4x4", "edge4"} <= {row["name"] for row in json.loads(answer.stdout)}


def test_the_demo_shows_a_plan_and_leaves_nothing(tmp_path: Path) -> None:
    answer = subprocess.run(
        [TESSERA, "demo"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"TMPDIR": str(tmp_path), "PATH": "", "COLUMNS": "100"},
    )
    assert answer.returncode == 0, answer.stderr
    for word in ("light_resnet50.onnx", "succeeded", "layer by layer", "floor", "stopped"):
        assert word in answer.stdout
    assert list(tmp_path.iterdir()) == []
    assert list(Path("/tmp").glob(f"tessera-{os.getuid()}-*")) == []
