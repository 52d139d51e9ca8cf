"""Programs of loops with single numbers changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from compiler.program.program import Program

# The lists of loops and of waits; each number of them may be changed.
LISTS = ("spaces", "statements", "run_offsets", "runs", "term_offsets", "terms", "ring_offsets", "rings", "distances")
WAITS = ("wait_offsets", "waits")
_NUMBERS = (*range(-3, 20), 64, 2**20, 2**31 - 1, -(2**31), 2**40 - 1, 2**40, 2**56, 2**62, 2**63 - 1, -(2**63))


def with_number(program: Program, name: str, row: int, field: str, value: int) -> Program:
    """One number changed: `field` is a name, a name and an index ("extents.1"), or "" for a list of plain numbers."""
    owner: Any = program if name in WAITS else program.loops
    rows = getattr(owner, name).copy()
    column, _, index = field.partition(".")
    target = rows[column] if column else rows
    target[(row, int(index)) if index else row] = value
    owner = replace(owner, **{name: rows})
    return owner if name in WAITS else replace(program, loops=owner)


@st.composite
def mutants(draw: st.DrawFn, program: Program) -> Program:
    """The program with one or two numbers changed, to small ones mostly, or to the ends of their types."""
    for _ in range(draw(st.integers(1, 2))):
        lists = {name: getattr(program if name in WAITS else program.loops, name) for name in (*LISTS, *WAITS)}
        name = draw(st.sampled_from([name for name, rows in lists.items() if len(rows)]))
        rows = lists[name]
        fields = [text for field in rows.dtype.names or () for text in _numbers_of(rows, field)] or [""]
        field = draw(st.sampled_from(fields))
        row = draw(st.integers(0, len(rows) - 1))
        limits = np.iinfo(rows[field.partition(".")[0]].dtype if field else rows.dtype)
        numbers = [number for number in _NUMBERS if limits.min <= number <= limits.max]
        program = with_number(program, name, row, field, draw(st.sampled_from(numbers)))
    return program


def _numbers_of(rows: Any, field: str) -> list[str]:
    shape = rows.dtype[field].shape
    return [f"{field}.{index}" for index in range(shape[0])] if shape else [field]
