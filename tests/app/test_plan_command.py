"""`tessera plan`: the table, pictures, and schedules from files (UI-1, TILE-9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli.main import cli
from compiler.amounts import rate_text, si_text
from tests.service.harness import light_model

SHUFFLENET = str(light_model("shufflenet"))
# A field that is given twice: only one of them would count.
_TWICE = '{"groups": [], "groups": []}'


def tessera(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def plan(*words: str) -> dict[str, Any]:
    answer = tessera(
        "plan", SHUFFLENET, "--profile", "edge4", "--set", "fusion=none", "--set", "verify=none", *words, "--json"
    )
    assert answer.exit_code == 0, answer.output
    return dict(json.loads(answer.stdout))


def costs(document: dict[str, Any]) -> list[tuple[object, ...]]:
    groups = [group for segment in document["segments"] for group in segment["groups"]]
    return [(g["nodes"], g["tiling"], g["halo"], g["placement"], g["cycles"], g["dram_bytes"]) for g in groups]


@pytest.mark.slow
def test_the_plan_says_what_a_simulation_of_its_commands_takes(tmp_path: Path) -> None:
    """SIM-3."""
    options = ("--set", "fusion=none", "--set", "verify=none")
    network = str(light_model("squeezenet"))
    answer = tessera("plan", network, "--profile", "edge4", *options, "--verify", "--out", str(tmp_path))
    assert answer.exit_code == 0, answer.output
    report = json.loads((tmp_path / "report.json").read_text())
    (program,) = report["programs"]
    totals = report["totals"]
    simulated, estimated = (si_text(totals[name], "s") for name in ("simulated_latency_s", "latency_s"))
    assert f"Latency      {simulated} simulated; estimated {estimated}, against " in answer.stdout
    core = next(one for one in program["engines"] if one["engine"] == "core")["cycles"]
    work = f"computation {100 * core['work'] / sum(core.values()):.0f} % of the cores' time, simulated, waiting for "
    assert f"Limited by   {work}" in answer.stdout
    assert f"{rate_text(report['stream']['images_per_s'])} images/s simulated; one image every" in answer.stdout


@pytest.mark.slow
def test_a_plan_written_to_a_folder_prices_itself_as_a_schedule(tmp_path: Path) -> None:
    answer = tessera(
        "plan", SHUFFLENET, "-p", "edge4", "--set", "fusion=none", "--set", "verify=none", "--out", str(tmp_path)
    )
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "report.json").exists()
    first = json.loads((tmp_path / "plan.json").read_text())
    again = plan("--set", f"schedule={tmp_path / 'plan.json'}")
    assert costs(again) == costs(first)
    assert again["options"]["schedule"]["groups"]
    assert first["options"]["schedule"] is None


@pytest.mark.full
def test_compile_and_explain_take_a_schedule_too_from_a_file_or_in_place(tmp_path: Path) -> None:
    nodes = plan()["segments"][0]["groups"]
    pair = [nodes[1]["nodes"][0], nodes[2]["nodes"][0]]
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"fuse": [pair]}))
    words = [SHUFFLENET, "--profile", "edge4", "--set", "fusion=none", "--set", "verify=none", "--set"]
    from_file = tessera("compile", *words, f"schedule={file}", "--json")
    in_place = tessera("compile", *words, f"schedule={json.dumps({'fuse': [pair[::-1]]})}", "--json")
    assert from_file.exit_code == 0, from_file.output
    assert from_file.stdout == in_place.stdout
    said = tessera("explain", *words, f"schedule={file}", "--group", "s0")
    assert "the schedule pins this group (TILE-9)" in said.stdout


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (None, "there is no file"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("7", "object"),
        (_TWICE, "stands twice"),
    ],
)
def test_a_missing_or_broken_schedule_file_is_a_usage_error_that_names_it(
    tmp_path: Path, text: str | None, word: str
) -> None:
    file = tmp_path / "broken.json"
    if text is not None:
        file.write_text(text)
    answer = tessera("plan", SHUFFLENET, "--profile", "edge4", "--set", f"schedule={file}")
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert word in answer.stderr
    assert "Traceback" not in answer.output
    assert text == "7" or "broken.json" in answer.stderr


@pytest.mark.slow
def test_a_schedule_that_does_not_hold_is_the_fault_of_what_is_planned(tmp_path: Path) -> None:
    file = tmp_path / "tight.json"
    pinned = {"groups": [{"nodes": [plan()["segments"][0]["groups"][0]["nodes"][0]], "tiling": {"core_tile": {}}}]}
    pinned["groups"][0]["tiling"] = {"tile": {"H": 112, "W": 112}, "channel_slices": 1}
    pinned["groups"][0]["placement"] = {"spread": "single"}
    file.write_text(json.dumps(pinned))
    answer = tessera("plan", SHUFFLENET, "--profile", "edge4", "--set", f"schedule={file}", "--json")
    problem = json.loads(answer.stderr)
    assert (answer.exit_code, problem["code"]) == (3, "schedule_does_not_hold")
    assert "bytes needed" in problem["actual"]
    assert "bytes available" in problem["limit"]


def test_pictures_are_written_one_for_each_group(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    document = plan("--pictures", str(folder))
    names = {group["id"] for segment in document["segments"] for group in segment["groups"]}
    assert {path.name for path in folder.iterdir()} == {f"{name}.svg" for name in names}
    assert (folder / "s0.g0.svg").read_text().startswith("<svg ")


def test_pictures_of_a_service_are_a_usage_error(tmp_path: Path) -> None:
    words = ["--pictures", str(tmp_path), "--server", "http://127.0.0.1:1"]
    answer = tessera("plan", SHUFFLENET, "--profile", "edge4", *words)
    assert answer.exit_code == 2
    assert "--pictures with --server" in answer.stderr
