"""TILE-9, UI-1: a pinned schedule travels to a service as an object and gives the plan that it gives here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.supervisor.service import EmbeddedService
from tests.service.models import written

pytestmark = pytest.mark.service


def test_a_service_and_this_process_price_a_schedule_alike(service: EmbeddedService, tmp_path: Path) -> None:
    file = tmp_path / "schedule.json"
    file.write_text(json.dumps({"fuse": [["relu", "first"]], "apart": [["second", "relu"]]}))
    words = ["plan", str(written(tmp_path)), "--profile", "edge4", "--set", f"schedule={file}", "--json"]
    here = CliRunner().invoke(cli, words)
    there = CliRunner().invoke(cli, [*words, "--server", service.url])
    assert (here.exit_code, there.exit_code) == (0, 0), here.output + there.output
    plans = [json.loads(answer.stdout) for answer in (here, there)]
    for plan in plans:
        plan.pop("model")  # on the way the model and its weights became one archive
    assert plans[0] == plans[1]
    assert json.loads(here.stdout)["options"]["schedule"]["fuse"] == [["first", "relu"]]


@pytest.mark.parametrize(
    ("schedule", "exit_code", "code"),
    [
        ({"fuse": [["relu", "nowhere"]]}, 2, "unknown_node"),
        ({"fuse": [["relu", "first"]], "apart": [["first", "relu"]]}, 2, "invalid_schedule"),
        ({"groups": [{"nodes": ["first"], "halo": {"H": "kept"}}]}, 2, "invalid_schedule"),
    ],
)
def test_a_wrong_schedule_ends_alike_here_and_on_a_service(
    service: EmbeddedService, tmp_path: Path, schedule: object, exit_code: int, code: str
) -> None:
    words = [
        "plan",
        str(written(tmp_path)),
        "--profile",
        "edge4",
        "--set",
        f"schedule={json.dumps(schedule)}",
        "--json",
    ]
    for more in ([], ["--server", service.url]):
        answer = CliRunner().invoke(cli, [*words, *more])
        assert (answer.exit_code, answer.stdout) == (exit_code, "")
        assert json.loads(answer.stderr)["code"] == code
