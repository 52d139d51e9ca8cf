"""The best table for a shape whose calls several cores share (SHAPE-6).

A strip search knows work, not cores: it prefers few large calls, and most cores would wait. So it is asked several
times, each time for units up to another size, and what cores wait in the last round decides between the answers.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

import numpy as np

from compiler.shapes.cost import CallCost
from compiler.shapes.simple import SimpleChooser, with_cores
from compiler.shapes.strips import optimised_table
from compiler.shapes.table import ShapeTable
from compiler.shapes.units import UnitSet

# Calls per core that units are looked for with; None: units of any size.
_ROUNDS: Final = (None, 1, 2, 4)


def best_table(units: UnitSet, cost: CallCost, shape: tuple[int, ...], cores: int, loaders: int) -> ShapeTable:
    """The table of least modelled time, mixed or of identical units; `cost_cycles` counts cores that wait.

    Raises LimitError where a search would be too large.
    """
    found = replace(SimpleChooser.build(units, cost, cores, loaders).table(shape), kind="optimised")
    if 0 in shape:
        return found
    volumes = units.extents.prod(axis=1)
    asked: set[tuple[int, ...]] = set()
    for rounds in _ROUNDS if cores > 1 else (None,):
        most = np.inf if rounds is None else max(float(volumes.min()), prod(shape) / (cores * rounds))
        chosen = tuple(np.flatnonzero(volumes <= most).tolist())
        if chosen in asked:
            continue
        asked.add(chosen)
        table = _of_all(optimised_table(units.chosen(chosen), cost, shape), units, chosen)
        table = with_cores(table, cost, cores, loaders)
        if table.cost_cycles < found.cost_cycles:
            found = table
    return found


def _of_all(table: ShapeTable, units: UnitSet, chosen: tuple[int, ...]) -> ShapeTable:
    """A table of some of the units as one of all of them: runs number these."""
    runs = table.runs.copy()
    runs["unit"] = np.array(chosen, dtype=np.int32)[runs["unit"]]
    return replace(table, units=units.ids, runs=runs)
