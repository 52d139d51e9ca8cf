"""SHAPE-4: each tail mode occurs, is cheaper than the others where it does, and changes no value."""

from __future__ import annotations

import pytest

from compiler.shapes.instance import graph_at
from compiler.simulator.value_check import check_values
from tests.compiler.shapes.tail_modes import MODES, TailCase, executable, tables_by_mode, tail_cases


def test_every_mode_has_a_case() -> None:
    assert tuple(case.mode for case in tail_cases()) == MODES


@pytest.mark.parametrize("case", tail_cases(), ids=lambda case: case.mode.text)
def test_each_mode_is_chosen_where_it_is_cheaper_and_all_give_the_values_of_onnx_runtime(case: TailCase) -> None:
    of = case.compiled()
    tables = tables_by_mode(of, case.rows)
    chosen = tables[None]
    assert tables.keys() == {None, *MODES}
    assert int(chosen.runs["mode"][-1, 0]) == case.mode
    assert chosen.cost_cycles == tables[case.mode].cost_cycles
    assert all(tables[mode].cost_cycles > chosen.cost_cycles for mode in MODES if mode is not case.mode)
    graph = graph_at(of.model.graph, {"rows": case.rows}, of.values)
    for mode in MODES:
        assert int(tables[mode].runs["mode"][:, 0].max()) == mode
        check = check_values(executable(of, case.rows, tables[mode]), graph, of.source)
        assert check.has_run
        assert "ONNX Runtime" in check.judge
        assert check.holds
