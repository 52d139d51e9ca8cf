"""Simple tables in their cached form, made by the caller that needs them (SHAPE-6)."""

from __future__ import annotations

from app.tables.open_packages import Asked, OpenPackage
from app.tables.table_encoding import StoredTable, one_call, stored_runs
from compiler.shapes.table import ShapeTable


def simple(opened: OpenPackage, asked: Asked) -> StoredTable:
    """The simple table; for a routine of one call, that call, which cannot be improved.

    One of units that alone have room is final: searches mix all units. The table is a grid by construction. Proving its
    cover would take longer than making it, while a request waits.
    """
    table = opened.model.simple_table(asked.routine, asked.problem, asked.units)
    if table is None:
        return one_call(opened.model.one_call_cycles(asked.routine, asked.problem))
    return stored(table, is_final=asked.units is not None)


def stored(table: ShapeTable, *, is_final: bool = False) -> StoredTable:
    """A table of identical units in its cached form; no better one is looked for if it is final."""
    return StoredTable(
        kind="simple",
        settled=is_final,
        simple_cycles=table.cost_cycles,
        optimised_cycles=None,
        shape=table.shape,
        runs=stored_runs(table),
    )
