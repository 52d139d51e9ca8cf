"""Checks cached tables against the routines that need them (SHAPE-7).

A digest detects damage, but not tables that someone wrote to the cache on purpose. A value that is no table of the
routine counts as missing, and is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from app.tables.cache import Entry
from app.tables.open_packages import Asked, OpenPackage
from app.tables.table_encoding import StoredTable, is_of


def fits(opened: OpenPackage, asked: Asked, table: StoredTable) -> bool:
    """Whether a table fits the request."""
    library = opened.model.libraries[asked.routine]
    return is_of(table, library.units, tuple(asked.problem[axis] for axis in library.routine.tiled))


def fitting(opened: OpenPackage, asked: Mapping[str, Asked], entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Entries by key, without tables that do not fit; `asked` gives the request of each key."""
    return {
        key: entry if entry.table is None or fits(opened, asked[key], entry.table) else replace(entry, table=None)
        for key, entry in entries.items()
    }
