"""Kinds of tiles: those of one kind make something anew alike, and the same channels of all tensors (TILE-1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from compiler.ops.op_facts import OpFacts
from compiler.program.rounds import Job
from compiler.program.tiles import Index, Tiles


def kinds_along(
    tiles: Tiles, ops: Sequence[OpFacts], counts: Mapping[str, int], blocks: Mapping[str, Sequence[int]]
) -> Mapping[str, Sequence[int]]:
    """By axis of the units' walk, which has `counts` tiles, and tile along it a number: equal where its parts make
    something anew alike.

    `tiles`: the parts of these tiles; `blocks`: by axis the first part of each tile.
    """
    told_apart = {"C", *(tiles.dims(op.output)[op.channel_axis].axis for op in ops if op.channel_axis is not None)}
    found: dict[str, Sequence[int]] = {}
    for axis, count in counts.items():
        known: dict[object, int] = {}
        if axis in told_apart or axis not in tiles.counts:
            found[axis] = range(count)
            continue
        its = tiles.frustums.tiles[axis]
        columns = [its.begins, np.arange(its.count) == 0]
        for dim in (dim for op in ops for dim in tiles.dims(op.output) if dim.axis == axis):
            starts, stops, firsts, lasts = map(np.array, (dim.starts, dim.stops, dim.firsts, dim.lasts))
            columns += [stops > starts, lasts > firsts]
        of_tiles = [row.tobytes() for row in np.stack(columns, axis=1)]
        parts = pairwise([*blocks[axis], its.count])
        found[axis] = [known.setdefault(tuple(of_tiles[begin:end]), len(known)) for begin, end in parts]
    return found


def kind_of(tile: Index, kinds: Mapping[str, Sequence[int]]) -> list[int]:
    """The kind of a unit's tile; `kinds`: along each axis."""
    return [kinds[axis][number] for axis, number in tile.items()]


def kinds_of_rounds(rounds: Iterable[Sequence[Job]], kinds: Mapping[str, Sequence[int]]) -> Sequence[int]:
    """By round its kind: units work on tiles of the same kinds."""
    known: dict[object, int] = {}
    its = (tuple([(unit, *kind_of(tile, kinds)) for unit, tile in jobs]) for jobs in rounds)
    return [known.setdefault(kind, len(known)) for kind in its]
