"""The best table for a shape whose calls several cores share (SHAPE-6).

First the tables of identical units, each priced by what its cores take (`core_time.py`). A strip search, which may mix
units, knows work, not cores: it prefers few large calls, and most cores would wait. So it is asked several times, each
time for units up to another size. All it can gain is the time that cores lose with identical units: where that is
little, there is no search.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

import numpy as np

from compiler.errors import LimitError
from compiler.shapes.core_time import on_cores, waiting_share
from compiler.shapes.cost import CallCost
from compiler.shapes.simple import SimpleChooser
from compiler.shapes.strips import optimised_table
from compiler.shapes.table import ShapeTable
from compiler.shapes.units import UnitSet

# Units whose tables are priced by cores, the most promising by the estimate: on the routines of five networks these
# hold a table within 0.7 % of the best of all units, on average.
_GRIDS: Final = 8
# Calls per core that units are looked for with; None: units of any size.
_ROUNDS: Final = (None, 1, 2, 4)
# Part of the cores' time that must be lost for a search: below it no search on the routines of five networks found a
# better table.
_WORTH: Final = 0.05


def best_table(units: UnitSet, cost: CallCost, shape: tuple[int, ...], cores: int, loaders: int) -> ShapeTable:
    """The table of least modelled time, mixed or of identical units; `cost_cycles` counts cores that wait.

    Where a search would be too large, the best of identical units.
    """
    grids = SimpleChooser.build(units, cost, cores, loaders).tables(shape, _GRIDS)
    found = replace(min(grids, key=lambda table: table.cost_cycles), kind="optimised")
    if 0 in shape or waiting_share(found, units, cost, cores) < _WORTH:
        return found
    volumes = units.extents.prod(axis=1)
    asked: set[tuple[int, ...]] = set()
    for rounds in _ROUNDS if cores > 1 else (None,):
        most = np.inf if rounds is None else max(float(volumes.min()), prod(shape) / (cores * rounds))
        chosen = tuple(np.flatnonzero(volumes <= most).tolist())
        if chosen in asked:
            continue
        asked.add(chosen)
        try:
            table = _of_all(optimised_table(units.chosen(chosen), cost, shape), units, chosen)
            table = on_cores(table, units, cost, cores, loaders)
        except LimitError:
            continue
        if table.cost_cycles < found.cost_cycles:
            found = table
    return found


def _of_all(table: ShapeTable, units: UnitSet, chosen: tuple[int, ...]) -> ShapeTable:
    """A table of some of the units as one of all of them: runs number these."""
    runs = table.runs.copy()
    runs["unit"] = np.array(chosen, dtype=np.int32)[runs["unit"]]
    return replace(table, units=units.ids, runs=runs)
