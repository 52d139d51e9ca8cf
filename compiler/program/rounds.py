"""In which order units work on the tiles of a group (TILE-4, TILE-8).

A *round* is what units do at the same time: for each its tile. Where units share out the channels they all work on the
same tile. Where halos pass between units, a tile comes no earlier than the ones that made what it needs
(`tiling/turns.py`). Where slices of the channels lie outermost, all units begin a slice in the same round, so that
weights which they share come once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product, zip_longest

from compiler.program.tiles import Index, Tiles
from compiler.tiling.tile import HaloMode, Spread
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.turns import rounds_in_turn
from compiler.units import ceil_div

Job = tuple[int, dict[str, int]]


class Owners:
    """Who works on which tile of a group."""

    def __init__(self, group: TiledGroup, tiles: Tiles) -> None:
        self._group = group
        self._tiles = tiles
        configuration, counts = group.configuration, tiles.counts
        spread, units = configuration.spread, configuration.units
        # by row and column the unit that a tile is dealt to
        self._dealt: list[list[tuple[int]]] = []
        # or the axis along which units follow each other, and how many tiles each has; or all of them work on all
        self._along: tuple[str, int] | None = None
        self._all = (0,) if spread is Spread.SINGLE else tuple(range(units))
        if spread is Spread.BANDS:
            self._dealt = [[(unit,) for unit in row] for row in group.walk.assignment.owner.tolist()]
        elif spread is Spread.IMAGES:
            self._along = "N", ceil_div(counts.get("N", 1), units)
        elif spread is Spread.CHANNELS and group.channels_are_free:
            self._along = "C", ceil_div(counts.get("C", 1), units)

    def of(self, index: Index) -> tuple[int, ...]:
        """The units that work on a tile: the one that it is dealt to, or all of them."""
        if self._dealt:
            walk = self._group.walk
            row = 0 if walk.rows is None else index.get(walk.rows, 0)
            column = 0 if walk.columns is None else index.get(walk.columns, 0)
            return self._dealt[row][column]
        if self._along is None:
            return self._all
        axis, tiles = self._along
        return (index.get(axis, 0) // tiles,)

    def slices(self) -> list[frozenset[int] | None]:
        """The numbers along the channels that are worked on before the next ones, in order; None: all of them at once.

        Units that share out the channels work on one slice each.
        """
        group, counts = self._group, self._tiles.counts
        if not group.configuration.slices_outer or "C" not in counts:
            return [None]
        return [
            frozenset(number for number in range(counts["C"]) if self.slice_number(number) == mine)
            for mine in range(self._slices_of_unit)
        ]

    def slice_number(self, number: int) -> int:
        """Which of its unit's slices of the channels the slice of a number is."""
        return number % self._slices_of_unit

    @property
    def _slices_of_unit(self) -> int:
        units = self._group.configuration.units if self._group.configuration.spread is Spread.CHANNELS else 1
        return ceil_div(self._tiles.counts["C"], units)


def rounds_of(tiles: Tiles, owners: Owners) -> list[list[Job]]:
    """All rounds: for each unit that works its tile, in the order of the walk."""
    indices = [
        dict(zip(tiles.order, numbers, strict=True)) for numbers in product(*(range(n) for n in tiles.counts.values()))
    ]
    mine = [owners.of(index) for index in indices]
    if any(len(found) > 1 for found in mine):
        return [[(unit, index) for unit in units] for index, units in zip(indices, mine, strict=True)]
    found: list[list[Job]] = []
    for slice_of in owners.slices():
        queues: dict[int, list[dict[str, int]]] = {}
        its = []
        for index, (unit,) in zip(indices, mine, strict=True):
            if slice_of is None or index["C"] in slice_of:
                queues.setdefault(unit, []).append(index)
                its.append(index)
        found += in_step(tiles, queues, its)
    return found


def in_step(
    tiles: Tiles, queues: dict[int, list[dict[str, int]]], indices: Sequence[dict[str, int]]
) -> list[list[Job]]:
    """Rounds of what each worker has to do in turn, each tile as early as what passes between workers lets it."""
    ranks = {_key(index): rank for rank, index in enumerate(indices)}
    if any(t.mode is HaloMode.EXCHANGE for t in tiles.frustums.tiles.values()):
        owner = {_key(index): unit for unit, queue in queues.items() for index in queue}
        later = [
            [
                ranks[_key(found)]
                for axis in tiles.order
                # who passes halos both ways is in step anyway
                if axis not in tiles.both_ways
                and (found := tiles.successor(axis, index)) is not None
                and _key(found) in ranks
            ]
            for index in indices
        ]
        numbers = rounds_in_turn([owner[_key(index)] for index in indices], later)
        result: list[list[Job]] = [[] for _ in range(max(numbers, default=-1) + 1)]
        for index, number in zip(indices, numbers, strict=True):
            result[number].append((owner[_key(index)], index))
        return result
    order = sorted(queues)
    rounds = []
    for row in zip_longest(*(queues[unit] for unit in order)):
        jobs = [(unit, index) for unit, index in zip(order, row, strict=True) if index is not None]
        rounds.append(sorted(jobs, key=lambda job: ranks[_key(job[1])]))
    return rounds


def _key(index: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(index.values())
