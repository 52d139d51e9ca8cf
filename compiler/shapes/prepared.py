"""Tables made when a model is compiled, for shapes that were named then; packages carry them (SHAPE-9, SHAPE-10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from compiler.shapes.model import ShapeModel
from compiler.shapes.table import MAX_RUNS, ShapeTable, check_cover

# Shapes of one package that have tables, and runs of all these together, equal tables counted once.
MAX_SHAPES: Final = 64
MAX_RUNS_IN_ALL: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShapeTables:
    """The tables of all routines at given dimensions, None for a routine of one call; and what simple ones cost.

    A table is optimised, or simple where the search for a better one would be too large.
    """

    dims: Mapping[str, int]
    tables: tuple[ShapeTable | None, ...]
    simple_cycles: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedModel:
    """A model for ranges of shapes with the tables that were made beforehand."""

    model: ShapeModel
    tables: tuple[ShapeTables, ...]


def tables_for(tables: Sequence[ShapeTables], dims: Mapping[str, int]) -> tuple[ShapeTable | None, ...] | None:
    """The tables that were made for these dimensions; None where none were."""
    return next((one.tables for one in tables if one.dims == dims), None)


def check_prepared(model: ShapeModel, tables: Sequence[ShapeTables], *, proved: bool = False) -> None:
    """Raise ValueError, TableError, RequestError or LimitError for tables that are none of the model's.

    `proved`: that they cover their shapes is known.
    """
    if len(tables) > MAX_SHAPES:
        raise ValueError(f"there are tables for {len(tables)} shapes, more than {MAX_SHAPES}")
    runs = 0
    known: set[tuple[int, tuple[int, ...], bytes]] = set()
    for one in tables:
        model.check(one.dims)
        if len(one.tables) != len(model.libraries) or len(one.simple_cycles) != len(model.libraries):
            raise ValueError("not every routine has a table")
        for number, (table, cycles) in enumerate(zip(one.tables, one.simple_cycles, strict=True)):
            if not 0 <= cycles < np.inf:
                raise ValueError(f"a table costs {cycles} cycles")
            if (table is None) != (not model.libraries[number].routine.tiled):
                raise ValueError("a routine that is divided has no table, or another one has")
            if table is None:
                continue
            key = (model.alike[number], table.shape, table.runs.tobytes())
            if key not in known:
                runs += len(table.runs)
                if runs > MAX_RUNS_IN_ALL:
                    raise ValueError(f"the tables have {runs} runs, more than {MAX_RUNS_IN_ALL}")
                _check(model, number, table, proved=proved)
                known.add(key)


def _check(model: ShapeModel, number: int, table: ShapeTable, *, proved: bool) -> None:
    """Whether units are called as they are; the shape is that of the result already."""
    units = model.libraries[number].units
    unit, rank = table.runs["unit"], len(table.shape)
    if len(unit) > MAX_RUNS or not 0 <= table.cost_cycles < np.inf:
        raise ValueError("a table is too long, or costs nothing that can be told")
    if (unit < 0).any() or (unit >= len(units)).any():
        raise ValueError("a table calls units that are not there")
    mine = table.runs["low"][:, :rank], table.runs["high"][:, :rank]
    if (mine[0] != units.lows[unit]).any() or (mine[1] != units.extents[unit]).any():
        raise ValueError("a table calls units for lengths that they do not take")
    if not proved:
        check_cover(table)
