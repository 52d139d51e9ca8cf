"""Optimised tables in their cached form; apart from `making`, because they need machine code (SHAPE-6)."""

from __future__ import annotations

from app.tables.open_packages import Asked, OpenPackage
from app.tables.table_encoding import StoredTable, stored_runs
from compiler.shapes.optimised import best_table
from compiler.shapes.table import check_cover


def settled(opened: OpenPackage, asked: Asked, simple: StoredTable) -> StoredTable:
    """The optimised table, which is final."""
    library = opened.model.libraries[asked.routine]
    cost = opened.model.cost_at(asked.routine, asked.problem)
    shape = tuple(asked.problem[axis] for axis in library.routine.tiled)
    table = best_table(library.units, cost, shape, opened.model.cores, library.loaders)
    check_cover(table)
    return StoredTable(
        kind="optimised",
        settled=True,
        simple_cycles=simple.simple_cycles,
        optimised_cycles=table.cost_cycles,
        shape=table.shape,
        runs=stored_runs(table),
    )
