"""A good partition after few prices, then a proof of how good it is, in a bounded number of steps (FUSE-O).

Pricing in the order of floors proves as it goes, but meets the best partition last. Here floors are first corrected by
what prices have been so far: the least partition under such estimates is found, its groups are priced, estimates get
better, until all groups of the least partition are priced; again with less and less trust in them. Then floors take
over: as long as they leave room for a better partition its groups are priced. If steps end
before that, the partition is the best of all that is known, and no other costs less than the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

import numpy as np

from compiler.fusion.partitions import Floats, Least, Partition, Partitions, weighted, weighted_rows

# How far what prices were elsewhere is trusted, in turn, before floors alone count.
_TRUST: Final = (1.0, 0.5, 0.3, 0.1)
# Of the ratios of prices to floors that were met, the part below what is expected of a group like none met before.
_QUANTILE: Final = 0.25
# What a refused group counts as among these ratios.
_REFUSED_RATIO: Final = 4.0
# What finding a least partition counts for each op, in steps of pricing.
_STEPS_OF_OP: Final = 2.0**-8
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """A partition, and the value below which no partition of the space is."""

    partition: Partition
    bound: float

    @property
    def is_least(self) -> bool:
        """True if no partition of the space is better."""
        return self.partition.value <= self.bound * (1 + _ROUNDING)


class Guide:
    """What is expected of groups not priced yet, from the floors of all and the prices of some."""

    def __init__(self, space: Partitions) -> None:
        self._space = space
        # what is refused unasked counts as priced; infinity times a weight of 0 would be no number
        self._floors = np.where(np.isinf(space.known), 0.0, space.known)
        self._sizes = np.array([group.bit_count() for group in space.groups], dtype=np.float64)
        # of what was refused unasked nothing follows for others
        self._refused = np.isinf(space.known).any(axis=1)
        self._doomed = np.zeros(len(space.groups), dtype=np.bool_)

    def values(self, weights: Sequence[float], trust: float = 1.0) -> Floats:
        """One number per group: its price where known, else its floor times what prices exceed floors by nearby.

        With less trust in what prices were elsewhere the factor is nearer 1.
        """
        space = self._space
        self._doom()
        known, floors = space.values(weights), weighted_rows(self._floors, weights)
        priced = np.flatnonzero(space.is_priced)
        if not len(priced):
            return known
        # imported where it is used alone: it brings a compiler with it
        from compiler.fusion.kernels import expect_between

        expected = self._usual(priced, known, floors)
        alone = float(expected[self._sizes == 1].max(initial=1.0))
        fits = space.is_priced & np.isfinite(known)
        expect_between(space.table[0], fits, self._sizes, known / np.maximum(floors, 1e-300), alone, expected)
        is_open = ~space.is_priced
        result = known.copy()
        result[is_open] = floors[is_open] * expected[is_open]
        if trust < 1:
            # of a floor of nothing no multiple is expected
            unknown = np.flatnonzero(is_open & (floors > 0))
            result[unknown] = floors[unknown] * (result[unknown] / floors[unknown]) ** trust
        result[self._doomed & is_open] = inf
        return result

    def _doom(self) -> None:
        """Expect of all that contains a group of several ops without a tiling that it has none either."""
        groups = self._space.groups
        refused = np.isinf(self._space.known).any(axis=1)
        new = np.flatnonzero(refused & ~self._refused).tolist()
        self._refused = refused
        for row in new:
            mask = groups[row]
            if mask & (mask - 1):
                self._doomed |= np.fromiter((mask & group == mask for group in groups), np.bool_, len(groups))

    def _usual(self, priced: np.ndarray, known: Floats, floors: Floats) -> Floats:
        """By group, a usual ratio of price to floor among priced groups of about its size."""
        ratios = np.minimum(known[priced] / np.maximum(floors[priced], 1e-300), _REFUSED_RATIO)
        kinds = np.frexp(self._sizes)[1]
        levels, met = [], []
        for kind in np.unique(kinds[priced]).tolist():
            of_kind = np.sort(ratios[kinds[priced] == kind])
            levels.append(float(kind))
            met.append(float(of_kind[int(_QUANTILE * (len(of_kind) - 1))]))
        return np.interp(kinds, levels, met)


def best_within(
    space: Partitions, guide: Guide, weights: Sequence[float], ties: Sequence[float], steps: float
) -> Proven | None:
    """The best partition that about `steps` more steps of pricing find, with what is proven; None if there is none.

    `ties` are the weights with so little of other figures that these only tell equals apart. Ops alone are priced in
    any case where there is no answer without.
    """
    limit = space.spent + steps
    # what it takes to find a least partition again counts too, or many rounds that price little would take long
    turn = len(space.tree.ops) * _STEPS_OF_OP
    for trust in _TRUST:
        while space.spent < limit and _price_open(space, Least(space, guide.values(ties, trust)).rows()):
            space.spent += turn
    floors = Least(space, space.values(weights))
    while space.spent < limit and _price_open(space, floors.rows()):
        space.spent += turn
        floors = Least(space, space.values(weights))
    best = _best_known(space, ties)
    if best is None:
        return None
    value = weighted(best, weights)
    return Proven(partition=replace(best, value=value), bound=min(value, floors.value))


def _price_open(space: Partitions, rows: list[int] | None) -> list[int]:
    """Price the groups of a partition that are not; those that were not."""
    opened = [row for row in rows or () if not space.is_priced[row]]
    for row in opened:
        space.settle(row)
    return opened


def _best_known(space: Partitions, weights: Sequence[float]) -> Partition | None:
    """The least partition of priced groups; ops alone are priced if there is none without."""
    for _ in range(2):
        values = space.values(weights)
        values[~space.is_priced] = inf
        rows = Least(space, values).rows()
        if rows is not None:
            return space.partition(rows, weights)
        for op in space.tree.ops:
            row = space.row_of(1 << op)
            if row is not None:
                space.settle(row)
    return None
