"""Tail modes at stated shapes: cycles of the table that uses each, and its values (SHAPE-4).

`python -m tests.bench tail-modes`.
"""

from __future__ import annotations

from compiler.program.executable import ChipSegment
from compiler.program.loops.time import time_of
from compiler.shapes.instance import graph_at
from compiler.shapes.table import ShapeTable
from compiler.simulator.value_check import check_values
from tests.compiler.shapes.dynamic import Compiled
from tests.compiler.shapes.tail_modes import MODES, PROFILE, executable, tables_by_mode, tail_cases


def run() -> None:
    """One row per case."""
    print(f"\n### Tails by mode, `{PROFILE}`: modelled cycles, in brackets simulated\n")
    print(f"| model | rows | chosen | {' | '.join(mode.text for mode in MODES)} | largest error |")
    print("|---|---:|---|---:|---:|---:|---:|")
    for case in tail_cases():
        of = case.compiled()
        tables = tables_by_mode(of, case.rows)
        found = [_cycles_and_error(of, case.rows, tables[mode]) for mode in MODES]
        cells = " | ".join(f"{modelled:,.0f} ({simulated:,.0f})" for modelled, simulated, _ in found)
        error = max(error for _, _, error in found)
        print(f"| {case.name} | {case.rows} | {case.mode.text} | {cells} | {error:.1g} |")


def _cycles_and_error(of: Compiled, rows: int, table: ShapeTable) -> tuple[float, float, float]:
    """Modelled and simulated cycles of a table, and its largest relative error against ONNX Runtime."""
    made = executable(of, rows, table)
    programs = [one.program for one in made.segments if isinstance(one, ChipSegment)]
    simulated = sum(time_of(program, of.profile).cycles for program in programs)
    check = check_values(made, graph_at(of.model.graph, {"rows": rows}, of.values), of.source)
    assert check.holds
    return table.cost_cycles / of.model.cores, simulated, max(one.max_error for one in check.comparisons)
