"""What a plan will at least take when it is simulated, told from some of its groups (SCHED-7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.cost.model import Cost
from compiler.cost.objective import Totals
from compiler.fusion.groups import Group

# How many different groups are simulated before anything is said of the others, and to how many standard errors. The
# plans of `rules` of ResNet-50, Inception-v1 and DenseNet-121 on edge4 were left out after 5 of their groups, as they
# were after all.
_ENOUGH: Final = 5
STANDARD_ERRORS: Final = 3.0
# The golden ratio: multiples of it, without their whole part, lie far from each other.
_GOLDEN: Final = 0.6180339887498949


def sampled(count: int) -> list[int]:
    """So many numbers from 0, in an order whose first ones come from everywhere."""
    return sorted(range(count), key=lambda number: number * _GOLDEN % 1.0)


def as_whole(alone: Totals, before: Totals, after: Totals) -> Totals:
    """What groups that take so much each by itself may take together, as others did: `after` in place of `before`."""
    return Totals(
        dram_bytes=alone.dram_bytes,
        cycles=alone.cycles * after.cycles / max(1, before.cycles),
        energy_pj=alone.energy_pj * after.energy_pj / max(1.0, before.energy_pj),
    )


def least_of(
    prices: Sequence[Cost], met: Sequence[tuple[Totals, Totals]], rate: float, errors: float = STANDARD_ERRORS
) -> Totals:
    """The least that groups of these prices should take together, told from others of their plan.

    `met`: of each of those the price, and what it took. Within a plan prices err alike, so a group is expected to take
    its price times their mean factor; of the sum so many standard `errors` are taken off. No group moves fewer bytes
    than its price says, or takes less time than these at the DRAM's `rate` (bytes per cycle) or than it computes; while
    few were met this bound is the answer, but for the mean (without errors).
    """
    found = _rows([_bound(price, rate) for price in prices]).sum(axis=0)
    if prices and (len(met) >= _ENOUGH or not errors):
        priced, taken = _rows([price for price, _ in met]), _rows([its for _, its in met])
        open_ = _rows([Totals.of((price,)) for price in prices])
        factors = np.where(priced > 0, taken / np.maximum(priced, 1e-300), 1.0) if met else np.ones((1, 3))
        least = factors.mean(axis=0) * open_.sum(axis=0)
        if errors:
            # of the mean factor, and of what each group deviates from it
            error = factors.std(axis=0, ddof=1) * np.sqrt(open_.sum(axis=0) ** 2 / len(met) + (open_**2).sum(axis=0))
            least -= errors * error
        found = np.maximum(found, least)
    dram_bytes, cycles, energy_pj = found.tolist()
    return Totals(dram_bytes=dram_bytes, cycles=cycles, energy_pj=energy_pj)


def tiles_of(groups: Sequence[Group]) -> int:
    """Tiles of all ops, with which a program's length goes."""
    total = 0
    for group in groups:
        tiling, configuration = group.choice.tiling, group.choice.tiling.configuration
        slices = configuration.channel_slices * configuration.input_slices
        total += len(group.ops) * tiling.tiles * tiling.core_tiles * slices
    return total


def _bound(price: Cost, rate: float) -> Totals:
    """The bytes, and the longer of their time at the DRAM's rate and of computation; start-ups may be hidden.

    Of 561 groups of eight networks on four chips one took 0.9999 of the longer one, all others at least as long.
    """
    return Totals(dram_bytes=price.dram_bytes, cycles=max(price.dram_bytes / rate, price.compute_cycles))


def _rows(totals: Sequence[Totals]) -> NDArray[np.float64]:
    """Bytes, cycles and energy: shape (n, 3)."""
    rows = [(its.dram_bytes, its.cycles, its.energy_pj) for its in totals]
    return np.array(rows, dtype=np.float64).reshape(-1, 3)
