"""What a parameter table may be, and its listing (SHAPE-2, SHAPE-4)."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import compiler.shapes
from compiler.errors import LimitError, TesseraError
from compiler.shapes.cost import CallCost
from compiler.shapes.simple import simple_table
from compiler.shapes.strips import optimised_table
from compiler.shapes.table import (
    MAX_EXTENT,
    MAX_RUNS,
    RUN,
    Runs,
    ShapeTable,
    TableError,
    check_cover,
    expand,
    table_text,
)
from compiler.shapes.units import UnitSet
from tests.compiler.shapes.given import problems, product_cost, units_of
from tests.compiler.shapes.recount import times_computed
from tests.matrices import tries


def given_table() -> ShapeTable:
    """11 x 10 by units of 4 x 4: four runs, tails of 3 rows and 2 columns discarded."""
    return simple_table(units_of([[4, 4]]), product_cost([4, 4], [(0,), (1,)]), (11, 10))


def test_a_listing_says_loops_lengths_and_ranges() -> None:
    """9 calls of 10 + 16; results 45 + 110; rows moved by 3 strips, 15 + 22; columns by each call, 45 + 60."""
    assert table_text(given_table()) == (
        "table Test float32 11x10 simple: 9 calls, 531\n"
        "  run 0 shared 0 unit u0  0: 0+4 x2; 1: 0+4 x2\n"
        "  run 1 shared 1 unit u0  0: 0+4 x2; 1: 8+2 discard 4..4\n"
        "  run 2 shared 0 unit u0  0: 8+3 discard 4..4; 1: 0+4 x2\n"
        "  run 3 shared 1 unit u0  0: 8+3 discard 4..4; 1: 8+2 discard 4..4\n"
    )


def test_runs_that_share_a_loop_turn_it_together() -> None:
    entries = expand(given_table())
    assert entries.starts.tolist() == [[row, column] for row in (0, 4, 8) for column in (0, 4, 8)]
    assert entries.lengths.tolist() == [[row, column] for row in (4, 4, 3) for column in (4, 4, 2)]
    assert entries.runs.tolist() == [0, 0, 1, 0, 0, 1, 2, 2, 3]
    assert entries.fresh.tolist() == [0, 1, 1] * 3


def _shift(runs: Runs) -> None:
    runs["start"][3, 1] = 7


def _lengthen(runs: Runs) -> None:
    runs["count"][0, 1] = 3


def _leave(runs: Runs) -> None:
    runs["length"][1, 1] = 4


def _far(runs: Runs) -> None:
    runs["count"][0, 1] = 2**62


def _spread(runs: Runs) -> None:
    runs["stride"][0, 1] = 5


def _misorder(runs: Runs) -> None:
    runs["order"][0] = 1


def _untie(runs: Runs) -> None:
    runs["shared"][2] = 1


def _outgrow(runs: Runs) -> None:
    runs["high"][2, 0] = runs["low"][2, 0] = 2


def _unknown(runs: Runs) -> None:
    runs["unit"][0] = 1


def _nowhere(runs: Runs) -> None:
    runs["mode"][0, 0] = 9


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_shift, "covered again"),
        (_lengthen, "covered again|leave|not the same"),
        (_leave, "leave the tensor"),
        (_far, "leave the tensor"),
        (_spread, "do not abut"),
        (_misorder, "call order"),
        (_untie, "not the same"),
        (_outgrow, "does not accept"),
        (_unknown, "no such unit"),
        (_nowhere, "does not accept"),
    ],
)
def test_a_spoilt_table_is_refused(spoil: Callable[[Runs], None], message: str) -> None:
    table = given_table()
    check_cover(table)
    runs = table.runs.copy()
    spoil(runs)
    with pytest.raises(TableError, match=message):
        check_cover(replace(table, runs=runs))


@pytest.mark.parametrize("run", range(4))
def test_a_missing_run_is_noticed(run: int) -> None:
    table = given_table()
    runs = table.runs[[number for number in range(4) if number != run]]
    runs["shared"][0] = 0
    with pytest.raises(TableError, match=r"not covered|not the same"):
        check_cover(replace(table, runs=runs))


def test_too_many_runs_and_calls_are_refused() -> None:
    table = given_table()
    with pytest.raises(LimitError, match="too many runs"):
        check_cover(replace(table, runs=table.runs[[0] * (MAX_RUNS + 1)]))
    runs = table.runs.copy()
    runs["count"][0] = 2**15
    with pytest.raises(LimitError, match="too many calls"):
        expand(replace(table, runs=runs))
    with pytest.raises(TableError, match="the shape is none"):
        check_cover(replace(table, shape=(MAX_EXTENT + 1, 10)))


@given(problems(ranks=(1, 2, 3), lengths=12), st.data())
@tries(first=100, rest=300)
def test_a_table_that_is_accepted_covers_its_shape_whatever_was_changed_in_it(
    problem: tuple[UnitSet, CallCost, tuple[int, ...]], data: st.DataObject
) -> None:
    """Counted element by element, against the proof by runs; a proof that accepts too much fails here."""
    units, cost, shape = problem
    made = simple_table if data.draw(st.booleans()) else optimised_table
    table = made(units, cost, tuple(max(1, length) for length in shape))
    runs = table.runs.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        run, name = data.draw(st.integers(0, len(runs) - 1)), data.draw(st.sampled_from(sorted(RUN.names or ())))
        value = data.draw(st.integers(0, 12) if name != "start" else st.integers(-3, 12))
        if runs[name].ndim == 1:
            runs[name][run] = value
        else:
            runs[name][run, data.draw(st.integers(0, len(shape) - 1))] = value
    changed = replace(table, runs=runs)
    try:
        check_cover(changed)
    except TesseraError:
        return
    assert (times_computed(changed) == 1).all()


LOADED = ("units", "tails", "cost", "core_time", "table", "simple", "buckets")


@pytest.mark.parametrize("name", LOADED)
def test_what_a_loader_needs_imports_little(name: str) -> None:
    """No machine code and no documents: numpy, errors, and what stands here too."""
    text = (Path(compiler.shapes.__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    modules = {node.module or "" for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    own = {module for module in modules if module.startswith("compiler")}
    allowed = {f"compiler.shapes.{other}" for other in LOADED}
    assert own <= allowed | {"compiler.errors"}
    assert not any(module.startswith(("numba", "msgspec")) for module in modules)
