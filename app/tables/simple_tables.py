"""Simple tables in their cached form, made by the caller that needs them (SHAPE-6)."""

from __future__ import annotations

from app.tables.open_packages import Asked, OpenPackage
from app.tables.table_encoding import StoredTable, one_call, stored_runs
from compiler.shapes.table import ShapeTable


def simple(opened: OpenPackage, asked: Asked) -> StoredTable:
    """The simple table; for a routine of one call, that call, which cannot be improved.

    The table is a grid by construction. Proving its cover would take longer than making it, while a request waits.
    """
    table = opened.model.simple_table(asked.routine, asked.problem)
    if table is None:
        return one_call(opened.model.one_call_cycles(asked.routine, asked.problem))
    return stored(table)


def stored(table: ShapeTable) -> StoredTable:
    """A table of identical units in its cached form."""
    return StoredTable(
        kind="simple",
        settled=False,
        simple_cycles=table.cost_cycles,
        optimised_cycles=None,
        shape=table.shape,
        runs=stored_runs(table),
    )
