"""Plans on a terminal: no column is lost, names are shortened in the middle, the headline says what counts."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from rich.console import Console

from app.printing.plan_table import PlanFirst, groups_csv, print_plan
from compiler.compile import plan_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.report.plan import Plan
from tests.exported import exported_models

# Networks whose nodes have long names, each with the chip it is planned for.
_LONG_NAMES = {
    "swin_torchscript": "cluster4x4",
    "bert_torchscript_unfolded": "edge4",
    "quantised_resnet_torchscript": "edge4",
    "lstm_tagger_dynamo": "edge4",
    "mobilenet_v3_torchscript": "manycore2x64",
}
# A plan of the first takes a fraction of a second, of the others seconds.
_MARKS: dict[str, Any] = {
    "lstm_tagger_dynamo": (),
    "swin_torchscript": pytest.mark.full,
    "mobilenet_v3_torchscript": pytest.mark.full,
}
# With sequences of this length its layers stay on the host.
_DIMS = {"lstm_tagger_dynamo": {"sequence": 200}}
_CASES = [pytest.param(name, marks=_MARKS.get(name, pytest.mark.slow)) for name in _LONG_NAMES]
_BRIEF = ["group", "nodes", "names", "tile", "tiles", "DRAM", "latency", "energy", "bound"]


@pytest.fixture(scope="module")
def plan_of() -> Callable[..., Plan]:
    """The plan of an exported network, made once for all tests of this file."""
    known: dict[tuple[str, str], Plan] = {}
    models = {model.file.removesuffix(".onnx"): model for model in exported_models()}

    def planned(name: str, fusion: str = "search") -> Plan:
        if (name, fusion) not in known:
            dims = dict(models[name].dims) | _DIMS.get(name, {})
            options = parse_options({"dims": dims, "fusion": fusion})
            known[name, fusion] = plan_model(models[name].read(), builtin_profile(_LONG_NAMES[name]), options).plan
        return known[name, fusion]

    return planned


def printed(plan: Plan, **console: Any) -> str:
    """The plan as it is printed; a terminal's colours and styles as escape sequences."""
    out = io.StringIO()
    wide = console.pop("wide", False)
    print_plan(plan, None, Console(file=out, markup=False, highlight=False, **console), wide=wide)
    return out.getvalue()


TERMINAL: dict[str, Any] = {"force_terminal": True, "color_system": "standard", "legacy_windows": False}


@pytest.mark.parametrize("name", _CASES)
def test_a_plan_with_long_names(
    name: str, plan_of: Callable[[str], Plan], golden: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 80 and 120 columns, piped, and under NO_COLOR."""
    plan = plan_of(name)
    texts = [
        printed(plan, width=80, **TERMINAL),
        printed(plan, width=120, **TERMINAL),
        printed(plan, width=80, force_terminal=False),
    ]
    monkeypatch.setenv("NO_COLOR", "1")
    texts.append(printed(plan, width=80, **TERMINAL))
    golden("\n=====\n".join(texts))


@pytest.mark.parametrize("name", _CASES)
def test_no_column_is_lost_and_no_line_is_wider_than_the_terminal(name: str, plan_of: Callable[[str], Plan]) -> None:
    plan = plan_of(name)
    for width in (80, 100, 200):
        lines = printed(plan, width=width, force_terminal=True, color_system=None).splitlines()
        header = next(line for line in lines if line.startswith("group"))
        assert header.split() == _BRIEF
        assert max(map(len, lines)) <= width


@pytest.mark.parametrize("name", _CASES)
def test_a_pipe_gets_all_columns_and_whole_names(name: str, plan_of: Callable[[str], Plan]) -> None:
    plan = plan_of(name)
    piped = printed(plan, width=20, force_terminal=False)
    wide = printed(plan, width=20, force_terminal=True, color_system=None, wide=True)
    header = next(line for line in piped.splitlines() if line.startswith("group"))
    assert header.split()[-4:] == ["cycles", "halo", "placement", "stalls"]
    for segment in plan.segments:
        for group in segment.groups:
            for text in (piped, wide):
                (row,) = [line for line in text.splitlines() if line.startswith(f"{group.id} ")]
                assert group.nodes[0] in row
                assert group.nodes[-1] in row


@pytest.mark.slow
def test_csv_has_the_raw_numbers_of_every_group(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of("swin_torchscript", "none")
    rows = {row["group"]: row for row in csv.DictReader(io.StringIO(groups_csv(plan)))}
    for segment in plan.segments:
        for group in segment.groups:
            row = rows.pop(group.id)
            assert (int(row["dram_bytes"]), int(row["cycles"])) == (group.dram_bytes, group.cycles)
            assert float(row["energy_j"]) == group.energy_j
            assert (row["first_node"], row["last_node"]) == (group.nodes[0], group.nodes[-1])
    assert set(rows) == {segment.id for segment in plan.segments if segment.kind == "host"}


def test_the_final_plan_adds_what_was_simulated_and_says_what_changed(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of("mobilenet_v3_torchscript", "none")
    totals = msgspec.structs.replace(plan.totals, simulated_latency_s=1.5, simulated_energy_j=0.5)
    final = msgspec.structs.replace(plan, provisional=False, totals=totals)
    fewer = msgspec.structs.replace(plan.segments[-1], groups=plan.segments[-1].groups[:-1])
    changed = msgspec.structs.replace(final, segments=(*plan.segments[:-1], fewer))
    shown = []
    for last in (final, changed):
        out = io.StringIO()
        table = PlanFirst(Console(file=out, width=100, force_terminal=True, color_system=None))
        table.show(plan)
        first = out.getvalue()
        assert " estimated, against " in first
        assert " simulated; " not in first
        table.show(last)  # as after a defect, when the plan is made again
        assert out.getvalue() == first
        table.finish(last, None)
        shown.append(out.getvalue().removeprefix(first))
    same, different = shown
    assert "1.5 s per batch of 4 (375 ms per image) simulated; estimated " in same
    assert "group  " not in same
    count = sum(len(segment.groups) for segment in plan.segments)
    assert f"The plan changed while its programs were made: {count} groups became {count - 1}" in different
    assert "group  " in different
