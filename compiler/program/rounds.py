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
        self._dealt = group.walk.assignment.owner.tolist() if group.configuration.spread is Spread.BANDS else []

    def of(self, index: Index) -> tuple[int, ...]:
        """The units that work on a tile: the one that it is dealt to, or all of them."""
        group, tiles = self._group, self._tiles
        configuration, walk = group.configuration, group.walk
        match configuration.spread:
            case Spread.SINGLE:
                return (0,)
            case Spread.IMAGES:
                images = tiles.counts.get("N", 1)
                return (index.get("N", 0) // ceil_div(images, configuration.units),)
            case Spread.BANDS:
                row = index.get(walk.rows, 0) if walk.rows is not None else 0
                column = index.get(walk.columns, 0) if walk.columns is not None else 0
                return (self._dealt[row][column],)
            case Spread.CHANNELS if group.channels_are_free and "C" in tiles.counts:
                return (index["C"] // ceil_div(tiles.counts["C"], configuration.units),)
            case Spread.CHANNELS if group.channels_are_free:
                return (0,)
        return tuple(range(configuration.units))

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
