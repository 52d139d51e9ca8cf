"""In how many rounds units get through tiles whose halos pass between them (TILE-3, TILE-4).

A tile is worked on no earlier than those that made what it needs; in the same round it comes after them op by op. What
a unit sends to another takes the place of what the other has needed for earlier tiles, so that is done by then. Where a
unit cuts its tiles into core tiles, its last core tile makes what the next unit's first one needs: that unit's tile
comes a round later then (`by_tile`).
"""

from __future__ import annotations

from collections.abc import Sequence


def rounds_in_turn(owners: Sequence[int], later: Sequence[Sequence[int]], *, by_tile: bool = False) -> list[int]:
    """The earliest round of every tile, tiles in the order of the walk.

    `owners`: the unit of each tile; `later`: the tiles after it that have something waiting from it.
    """
    rounds: list[int] = []
    free: dict[int, int] = {}
    need = [0] * len(owners)
    for rank, unit in enumerate(owners):
        others = (free.get(owners[other], 0) - by_tile for other in later[rank] if owners[other] != unit)
        found = max(free.get(unit, 0), need[rank], *others, 0)
        rounds.append(found)
        free[unit] = found + 1
        for other in later[rank]:
            need[other] = max(need[other], found + (by_tile and owners[other] != unit))
    return rounds


def rounds_of_runs(counts: Sequence[tuple[int, int, bool]], *, by_tile: bool = False) -> int:
    """The rounds of units that have a run of tiles along each axis.

    `counts`: for each axis, outermost first, the most tiles of one unit, the units along it, and whether its halos
    pass between them: then a unit begins when the one before it is at the last tiles of its own run, or
    (`by_tile`) has ended the first of them.
    """
    lag, inner = 0, 1
    for tiles, units, passes in reversed(counts):
        lag += (units - 1) * ((tiles - 1) * inner + by_tile) if passes else 0
        inner *= tiles
    return inner + lag
