"""What was found in a cache against the routine that it was asked for (SHAPE-7).

Values bear a digest that damage does not have; who can write to a cache on purpose can make one. A value that no table
of the routine is counts as none, and is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from app.tables.cache import Entry
from app.tables.opened import Asked, OpenPackage
from app.tables.stored import StoredTable, is_of


def fits(opened: OpenPackage, asked: Asked, table: StoredTable) -> bool:
    """Whether a table can be the one that was asked for."""
    library = opened.model.libraries[asked.routine]
    return is_of(table, library.units, tuple(asked.problem[axis] for axis in library.routine.tiled))


def fitting(opened: OpenPackage, asked: Mapping[str, Asked], entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Entries by key, without tables that do not fit; `asked` holds what each key stands for."""
    return {
        key: entry if entry.table is None or fits(opened, asked[key], entry.table) else replace(entry, table=None)
        for key, entry in entries.items()
    }
