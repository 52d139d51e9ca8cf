"""Simple tables in the form in which they are cached: made where they are asked for (SHAPE-6)."""

from __future__ import annotations

from app.tables.opened import Asked, OpenPackage
from app.tables.stored import StoredTable, one_call, stored_runs


def simple(opened: OpenPackage, asked: Asked) -> StoredTable:
    """The simple table; of a routine of one call that call, which nothing can better.

    It is a grid by construction. A proof of its cover would take longer than to make it, while a request waits.
    """
    table = opened.model.simple_table(asked.routine, asked.problem)
    if table is None:
        return one_call(opened.model.one_call_cycles(asked.routine, asked.problem))
    return StoredTable(
        kind="simple",
        settled=False,
        simple_cycles=table.cost_cycles,
        optimised_cycles=None,
        shape=table.shape,
        runs=stored_runs(table),
    )
