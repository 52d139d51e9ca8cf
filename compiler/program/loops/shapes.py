"""Sets of bytes as positions along strides: those of accesses, and those of all tiles of a statement together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from compiler.program.strided import Flags, Ints

ShapeColumns = tuple[tuple[Ints, Ints, Ints, Ints, Ints], Ints, Ints]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shapes:
    """Sets of bytes: positions along strides, by falling stride, each a run of bytes.

    `counts`, `strides`: (rows, axes), 1 and 0 for axes that are not used. `is_nested`: no position lies within reach of
    those before it.
    """

    counts: Ints
    strides: Ints
    runs: Ints
    is_nested: Flags


def shapes_of(counts: Ints, strides: Ints) -> Shapes:
    """The shapes of accesses in normal form."""
    runs = np.where(strides == 1, counts, 1).prod(axis=1)
    is_axis = (counts > 1) & (strides > 1)
    counts, strides = np.where(is_axis, counts, 1), np.where(is_axis, strides, 0)
    order = np.argsort(-strides, axis=1, kind="stable")
    counts, strides = np.take_along_axis(counts, order, 1), np.take_along_axis(strides, order, 1)
    used = int((counts > 1).any(axis=0).sum())
    return _nest(counts[:, :used], strides[:, :used], runs)


def over_tiles(shapes: Shapes, tiles: Ints, slopes: Ints) -> tuple[Shapes, Ints]:
    """Shapes with their tiles, so many along each counter, as further axes; which axis each counter is, or -1.

    A counter that moves nothing is none, and what it repeats does not nest.
    """
    repeats = ((tiles > 1) & (slopes == 0)).any(axis=1)
    spread = np.where(slopes != 0, tiles, 1)
    counts = np.concatenate([shapes.counts, spread], axis=1)
    strides = np.concatenate([shapes.strides, np.where(spread > 1, np.abs(slopes), 0)], axis=1)
    order = np.argsort(-strides, axis=1, kind="stable")
    axes = np.argsort(order, axis=1, kind="stable")[:, shapes.counts.shape[1] :]
    found = _nest(np.take_along_axis(counts, order, 1), np.take_along_axis(strides, order, 1), shapes.runs)
    found = replace(found, is_nested=found.is_nested & ~repeats)
    return found, np.where(spread > 1, axes, -1)


def _nest(counts: Ints, strides: Ints, runs: Ints) -> Shapes:
    reach, is_nested = runs.copy(), np.ones(len(runs), dtype=np.bool_)
    for axis in range(counts.shape[1] - 1, -1, -1):
        is_nested &= (counts[:, axis] == 1) | (strides[:, axis] >= reach)
        reach = reach + (counts[:, axis] - 1) * strides[:, axis]
    return Shapes(counts=counts, strides=strides, runs=runs, is_nested=is_nested)


def joined(*parts: Shapes) -> Shapes:
    """Several shapes, one after another."""
    axes = max(part.counts.shape[1] for part in parts)

    def wide(rows: Ints, fill: int) -> Ints:
        return np.concatenate([rows, np.full((len(rows), axes - rows.shape[1]), fill)], axis=1)

    return Shapes(
        counts=np.concatenate([wide(part.counts, 1) for part in parts]),
        strides=np.concatenate([wide(part.strides, 0) for part in parts]),
        runs=np.concatenate([part.runs for part in parts]),
        is_nested=np.concatenate([part.is_nested for part in parts]),
    )


def shape_columns(shapes: Shapes) -> ShapeColumns:
    """Shapes as the columns that machine code reads (`windows.py`)."""
    dims = (shapes.counts > 1).sum(axis=1).astype(np.int64)
    reaches = shapes.runs + ((shapes.counts - 1) * shapes.strides).sum(axis=1)
    rows = shapes.counts.prod(axis=1).astype(np.int64)
    columns = dims, shapes.runs.astype(np.int64), reaches, rows, shapes.is_nested.astype(np.int64)
    return columns, np.ascontiguousarray(shapes.counts), np.ascontiguousarray(shapes.strides)
