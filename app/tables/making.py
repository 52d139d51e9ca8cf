"""Simple tables in the form in which they are cached: made where they are asked for (SHAPE-6)."""

from __future__ import annotations

from app.tables.opened import Asked, OpenPackage
from app.tables.stored import StoredRun, StoredTable, stored_runs
from compiler.shapes.simple import once_cycles


def simple(opened: OpenPackage, asked: Asked) -> StoredTable:
    """The simple table; of a routine of one call that call, which nothing can better.

    It is a grid by construction. A proof of its cover would take longer than to make it, while a request waits.
    """
    table = opened.model.simple_table(asked.routine, asked.shape)
    if table is None:
        return _one_call(opened, asked)
    return StoredTable(
        kind="simple",
        settled=False,
        simple_cycles=table.cost_cycles,
        optimised_cycles=None,
        shape=table.shape,
        runs=stored_runs(table),
    )


def _one_call(opened: OpenPackage, asked: Asked) -> StoredTable:
    cost = opened.model.cost_at(asked.routine, asked.shape)
    # one core works, the others wait
    cycles = cost.work_cycles((), 0) * opened.model.cores + once_cycles(cost)
    return StoredTable(
        kind="optimised",
        settled=True,
        simple_cycles=cycles,
        optimised_cycles=cycles,
        shape=(),
        runs=(StoredRun(unit=0, shared=0, order=(), axes=()),),
    )
