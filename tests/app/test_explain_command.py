"""`tessera explain --group`, and the gap in `tessera plan` (UI-1, SPEC 5.4)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli.main import cli
from tests.service.harness import conv_chain


@pytest.fixture
def network(tmp_path: Path) -> str:
    """A model file: convolutions that share a weight, so that they do not go together (FUSE-9)."""
    path = tmp_path / "chain.onnx"
    path.write_bytes(conv_chain(3))
    return str(path)


def tessera(command: str, network: str, *words: str) -> Result:
    return CliRunner().invoke(cli, [command, network, "--profile", "edge4", "--set", "verify=none", *words])


def test_a_group_is_explained_with_its_neighbours_on_both_sides(network: str) -> None:
    answer = tessera("explain", network, "--group", "s0.g1")
    assert answer.exit_code == 0, answer.output
    for word in ("Group s0.g1 of segment s0", "Ops:", "SRAM tile", "core tile", "placement", "DRAM bytes:", "Checks:"):
        assert word in answer.stdout
    entered, left = answer.stdout.partition("What enters:")[2].split("What leaves:")
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
    assert "Above the floor: " in answer.stdout
    assert "intermediates that leave a group and come back: " in answer.stdout
    near = tessera("plan", network, "--set", "rules.FUSE-9.enabled=false", "--set", "rules.FUSE-19.enabled=false")
    assert near.exit_code == 0, near.output
    assert "intermediates" not in near.stdout
