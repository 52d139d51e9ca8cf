"""`tessera plan --compare`: strategies side by side (UI-1, SPEC 5.4)."""

from __future__ import annotations

import json
import re
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from app.cli.compare_table import print_comparison
from app.cli.comparing import FIGURES, Comparison, Figures, comparison_of, known_strategies, parse_strategies
from app.cli.main import cli
from compiler.compile import plan_model
from compiler.errors import RequestError
from compiler.options import Options, parse_options
from compiler.report.plan import Plan
from tests.models import Model
from tests.profiles import small_profile
from tests.service.harness import conv_chain


def tessera(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@cache
def plan(strategy: str, objective: str = "latency") -> Plan:
    """A chain of convolutions that `rules` fuses."""
    model = Model(name="chain")
    x = model.input([1, 8, 32, 32], "image")
    for number in range(4):
        x = model.relu(model.conv(x, 8, 8, 3, name=f"conv{number}"))
    model.output(x)
    options = parse_options({"fusion": strategy, "objective": objective})
    return plan_model(model.data(), small_profile(nram_bytes=1 << 16), options).plan


@pytest.fixture
def network(tmp_path: Path) -> str:
    """A model file."""
    path = tmp_path / "chain.onnx"
    path.write_bytes(conv_chain(3))
    return str(path)


def compared(network: str, *words: str) -> dict[str, Any]:
    answer = tessera("plan", network, "--profile", "edge4", "--compare", "rules,none", *words, "--json")
    assert answer.exit_code == 0, answer.output
    return dict(json.loads(answer.stdout))


def test_every_value_of_option_fusion_can_be_compared() -> None:
    known = known_strategies()
    assert {"rules", "none"} <= set(known)
    assert parse_strategies(",".join(known)) == known
    for name in known:
        assert parse_options({"fusion": name}).fusion == name
    assert Options().fusion in known


def test_a_strategy_named_twice_is_compared_once_in_the_order_given() -> None:
    assert parse_strategies("none, rules,none") == ("none", "rules")


def test_ratios_are_to_the_best_of_each_figure() -> None:
    found = comparison_of([("rules", plan("rules"), 1.5), ("none", plan("none"), None)], "latency")
    rules, none = found.strategies
    for name in FIGURES:
        values = [getattr(row.figures, name) for row in found.strategies]
        assert [getattr(row.ratios, name) for row in found.strategies] == [value / min(values) for value in values]
    assert rules.ratios == Figures(dram_bytes=1, latency=1, energy=1, edp=1)
    assert none.ratios.latency > 1
    totals = plan("none").totals
    assert none.figures == Figures(
        dram_bytes=totals.dram_bytes,
        latency=totals.latency_s,
        energy=totals.energy_j,
        edp=totals.latency_s * totals.energy_j,
    )
    assert none.above_floor_percent == pytest.approx(
        100 * (totals.dram_bytes - totals.dram_bytes_floor) / totals.dram_bytes_floor
    )
    assert (rules.planning_s, none.planning_s) == (1.5, None)
    assert none.groups == 4 > rules.groups
    assert found.yardsticks.floor_dram_bytes == totals.dram_bytes_floor
    assert found.yardsticks.reference_dram_bytes == totals.dram_bytes_reference


def shown(found: Comparison, columns: int) -> str:
    console = Console(width=columns, record=True, file=StringIO(), force_terminal=True)
    print_comparison(found, console)
    return console.export_text()


@pytest.mark.parametrize("objective", ["latency", "dram_bytes", "energy", "edp"])
def test_the_table_fits_eighty_columns_and_marks_the_objective(objective: str) -> None:
    names = ("rules", "none")
    found = comparison_of([(name, plan(name, objective), 12.345) for name in names], objective)
    text = shown(found, 80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    marked = re.findall(r"(\w+)\*", text)
    assert marked == ["DRAM" if objective == "dram_bytes" else objective]
    for name in (*names, "reference", "minimum"):
        line = next(line for line in text.splitlines() if line.startswith(name))
        assert re.search(r"\d [KM]?i?B\b", line)
    assert text.count("1.000") >= 4
    assert "12.3 s" in text
    assert "Host         runs nothing;" in text


def test_one_document_holds_what_single_plans_say(network: str, tmp_path: Path) -> None:
    found = msgspec.convert(compared(network, "--out", str(tmp_path / "out")), Comparison)
    assert [row.strategy for row in found.strategies] == ["rules", "none"]
    assert found.objective == "latency"
    for row in found.strategies:
        words = ["--set", f"fusion={row.strategy}", "--json"]
        alone = tessera("plan", network, "--profile", "edge4", *words)
        written = json.loads((tmp_path / "out" / row.strategy / "plan.json").read_text())
        assert json.loads(alone.stdout) == written
        assert written["totals"]["dram_bytes"] == row.figures.dram_bytes
        assert row.groups == sum(len(segment["groups"]) for segment in written["segments"])
        assert row.planning_s is not None
        assert row.planning_s > 0


def test_all_other_options_hold_for_every_strategy(network: str, tmp_path: Path) -> None:
    found = compared(network, "--set", "objective=edp", "--set", "halo=recompute", "--out", str(tmp_path))
    assert found["objective"] == "edp"
    options = [json.loads((tmp_path / name / "plan.json").read_text())["options"] for name in ("rules", "none")]
    assert [entry.pop("fusion") for entry in options] == ["rules", "none"]
    assert options[0] == options[1]
    assert (options[0]["objective"], options[0]["halo"]) == ("edp", "recompute")


def test_the_table_is_printed(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    answer = tessera("plan", network, "--profile", "edge4", "--compare", "none")
    assert answer.exit_code == 0, answer.output
    assert "chain.onnx on edge4" in answer.stdout
    assert "latency*" in answer.stdout
    assert "ratio to the best of none;" in answer.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--compare", "rules,nonesuch"], ["nonesuch", *known_strategies()]),
        (["--compare", "rules,,none"], ["''", "rules"]),
        (["--compare", ""], ["''", "rules"]),
        (["--compare", "\x1b[31m"], ["rules"]),
        (["--compare", "rules,none", "--set", "fusion=none"], ["fusion=none with --compare rules,none"]),
        (["--compare", "rules", "--pictures", "drawn"], ["--pictures with --compare"]),
    ],
)
def test_what_cannot_be_compared_is_a_usage_error_that_names_it(
    network: str, words: list[str], said: list[str]
) -> None:
    answer = tessera("plan", network, "--profile", "edge4", *words)
    assert (answer.exit_code, answer.stdout) == (2, "")
    for word in said:
        assert word in answer.stderr
    assert "Traceback" not in answer.output
    assert "\x1b" not in answer.stderr


def test_a_model_that_no_strategy_can_plan_is_the_models_fault(tmp_path: Path) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("no network")
    answer = tessera("plan", str(path), "--profile", "edge4", "--compare", "rules,none")
    assert answer.exit_code == 3
    with pytest.raises(RequestError):
        parse_strategies("rules;none")


@pytest.mark.parametrize("flag", ["--csv", "--wide", "--verify"])
def test_a_comparison_refuses_what_it_would_not_heed(network: str, flag: str) -> None:
    answer = tessera("plan", network, "--profile", "edge4", "--compare", "none", flag)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert f"{flag} with --compare" in answer.stderr
