"""`tessera explain`, of models and of what was compiled before, and the gap in `tessera plan` (UI-1, 5.4)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from app.cli.main import cli
from compiler.amounts import bytes_text
from tests.models import Model
from tests.profiles import profile_values, small_profile
from tests.service.harness import conv_chain


@pytest.fixture
def network(tmp_path: Path) -> str:
    """A model file: convolutions that share a weight, so that they do not go together (FUSE-9)."""
    path = tmp_path / "chain.onnx"
    path.write_bytes(conv_chain(3))
    return str(path)


@pytest.fixture(autouse=True)
def apart(tmp_path: Path) -> None:
    """A chip like edge4 whose cores have no links: what lies between two groups goes to DRAM."""
    values = profile_values("edge4")
    values["engines"]["link"] = None
    (tmp_path / "apart.yaml").write_text(json.dumps(values))


def tessera(command: str, network: str, *words: str) -> Result:
    profile = str(Path(network).with_name("apart.yaml"))
    return CliRunner().invoke(cli, [command, network, "--profile", profile, "--set", "verify=none", *words])


def test_a_group_is_explained_with_its_neighbours_on_both_sides(network: str) -> None:
    answer = tessera("explain", network, "--group", "s0.g1")
    assert answer.exit_code == 0, answer.output
    for word in (
        "Group s0.g1 of segment s0",
        "Ops:",
        "  tile: N 1, C ",
        "core tile",
        "placement",
        "of DRAM traffic:",
        "Checks:",
    ):
        assert word in answer.stdout
    entered, left = answer.stdout.partition("Inputs:")[2].split("Outputs:")
    assert "from s0.g0: " in entered
    assert "in s0.g2: " in left


def test_a_groups_part_of_the_documents_comes_as_json(network: str) -> None:
    text = tessera("explain", network, "--group", "s0.g1")
    found = json.loads(tessera("explain", network, "--group", "s0.g1", "--json").stdout)
    plan = json.loads(tessera("plan", network, "--json").stdout)
    assert found["explanation"] == text.stdout.splitlines()
    assert found["group"] == plan["segments"][0]["groups"][1]
    assert found["report"]["id"] == "s0.g1"
    assert [edge["producer_group"] for edge in found["entering"]] == ["s0.g0"]
    assert found["gap"] == [entry for entry in plan["gap"]["entries"] if "s0.g1" in entry["groups"]]
    assert set(json.loads(tessera("explain", network, "--json").stdout)) == {"explanation"}


def test_an_unknown_group_is_a_usage_error_that_names_those_that_exist(network: str) -> None:
    plan = json.loads(tessera("plan", network, "--json").stdout)
    ids = [group["id"] for group in plan["segments"][0]["groups"]]
    assert len(ids) > 3
    answer = tessera("explain", network, "--group", "s0.g77")
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "s0.g77" in answer.stderr
    for name in ids:
        assert name in answer.stderr


def test_the_plan_says_what_lies_above_the_floor(network: str) -> None:
    answer = tessera("plan", network)
    plan = json.loads(tessera("plan", network, "--json").stdout)
    totals = plan["totals"]
    assert sum(plan["gap"]["kinds"].values()) == totals["dram_bytes"] - totals["dram_bytes_floor"] > 0
    assert "Excess DRAM" in answer.stdout
    assert "intermediates stored and loaded again" in answer.stdout
    near = tessera("plan", network, "--set", "rules.FUSE-9.enabled=false", "--set", "rules.FUSE-19.enabled=false")
    assert near.exit_code == 0, near.output
    assert "intermediates" not in near.stdout


def test_a_saved_result_is_shown_and_explained_without_the_model(network: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = tessera("compile", network, "--out", str(out))
    assert made.exit_code == 0, made.output
    Path(network).unlink()
    for target in (str(out), str(out / "plan.json")):
        shown = CliRunner().invoke(cli, ["plan", target])
        table, lines = shown.stdout.split("\n\nLatency")
        assert table in made.stdout
        assert lines in made.stdout
        assert " simulated; estimated " in shown.stdout
        said = CliRunner().invoke(cli, ["explain", target])
        assert said.exit_code == 0, said.output
        assert "Boundaries between groups, by the DRAM traffic that each costs:" in said.stdout
    assert json.loads(CliRunner().invoke(cli, ["plan", str(out), "--json"]).stdout) == json.loads(
        (out / "plan.json").read_text()
    )
    (out / "report.json").unlink()
    alone = CliRunner().invoke(cli, ["plan", str(out)]).stdout
    assert "Verified     not known" in alone
    assert "images/s one after another, simulated" in alone
    plan = json.loads((out / "plan.json").read_text())
    changes: list[dict[str, object]] = [{"options": {}}, {"totals": {**plan["totals"], "images": 0}}]
    for change in changes:
        (tmp_path / "plan.json").write_text(json.dumps({**plan, **change}))
        broken = CliRunner().invoke(cli, ["explain", str(tmp_path / "plan.json")])
        assert (broken.exit_code, "was changed by hand" in broken.stderr) == (2, True)
    for words in (["--set", "fusion=rules"], ["--verify"]):
        refused = CliRunner().invoke(cli, ["explain", str(out), *words])
        assert (refused.exit_code, "is shown as it is" in refused.stderr) == (2, True)


@pytest.mark.parametrize("command", ["plan", "explain"])
def test_a_saved_plan_that_was_changed_sends_no_control_characters_to_the_terminal(
    network: str, tmp_path: Path, command: str
) -> None:
    text = tessera("plan", network, "--json").stdout
    (tmp_path / "plan.json").write_text(text.replace('"s0.g0"', '"s0.g0\\u001b]0;title\\u0007"'))
    answer = CliRunner().invoke(cli, [command, str(tmp_path)])
    assert answer.exit_code == 0, answer.output
    assert "s0.g0\\x1b]0;title" in answer.stdout
    assert "\x1b" not in answer.stdout


def test_a_plan_is_only_planned_unless_verify_asks_for_more(network: str) -> None:
    first = tessera("plan", network)
    assert "Verified     not yet; programs are not made" in first.stdout
    assert json.loads(tessera("plan", network, "--json").stdout)["provisional"] is True
    answer = CliRunner().invoke(cli, ["plan", network, "--profile", "edge4", "--verify"])
    assert "compared with ONNX Runtime" in answer.stdout
    assert " simulated; estimated " in answer.stdout


def test_boundaries_are_ranked_by_what_they_cost_each_with_reason_and_remedy(network: str) -> None:
    text = tessera("explain", network).stdout
    plan = json.loads(tessera("plan", network, "--json").stdout)
    sizes: dict[tuple[str, ...], int] = {}
    for entry in plan["gap"]["entries"]:
        if entry["kind"] == "intermediates":
            groups = tuple(entry["groups"])
            sizes[groups] = sizes.get(groups, 0) + entry["read_bytes"] + entry["written_bytes"]
    ranked = sorted(sizes, key=lambda groups: -sizes[groups])
    assert len(ranked) > 2
    for number, groups in enumerate(ranked[:10], 1):
        size = bytes_text(sizes[groups])
        said = text.partition(f"  {number}. {groups[0]} to {' and '.join(groups[1:])}: {size}, ")[2].splitlines()
        assert said[1].startswith("     not fused with ")
        assert any(line.startswith("     remedy: ") for line in said[2:4])


def test_advice_plans_again_and_says_what_the_whole_plan_becomes(tmp_path: Path) -> None:
    """A larger memory that is named keeps the tensor on the chip: planned with it, the tensor no longer crosses."""
    model = Model(name="narrow")
    x = model.input([1, 16, 32, 32])
    for index, kernel in enumerate((3, 3, 3)):
        x = model.conv(x, 16, 16, kernel, name=f"conv{index}")
    model.output(x)
    path, chip = tmp_path / "narrow.onnx", tmp_path / "chip.json"
    path.write_bytes(model.data())
    small = msgspec.to_builtins(small_profile(nram_bytes=12_000, wram_bytes=12_000))
    chip.write_text(json.dumps({name: value for name, value in small.items() if value is not None}))
    words = [str(path), "--profile", str(chip)]
    answer = CliRunner().invoke(cli, ["explain", *words, "--advise"])
    assert answer.exit_code == 0, answer.output
    advice = answer.stdout.partition("Changes that were planned again:")[2]
    line = next(line for line in advice.splitlines() if "(the minimum)" in line and "(now " in line)
    amounts = re.findall(r"(\w+)\.(capacity_bytes) = (\d+) B \(now", line)
    for memory, field, amount in amounts:
        small[memory][field] = int(amount)
    assert amounts
    chip.write_text(json.dumps({name: value for name, value in small.items() if value is not None}))
    again = CliRunner().invoke(cli, ["explain", *words]).stdout
    assert "No boundary between groups costs DRAM traffic above the minimum." in again
    refused = CliRunner().invoke(cli, ["explain", str(tmp_path), "--advise"])
    assert refused.exit_code == 2
