"""Which units a library has: those with which shapes cost little more than with all candidates (SHAPE-1).

The choice is a k-median problem over the matrix of units by shapes: each shape is served by the unit that covers it at
the least cost, and its regret is that cost over the least of all candidates. Adding the best unit again and again, then
exchanging single units while that helps, is deterministic; sums are integers, so that they are exact in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.errors import LimitError, RequestError
from compiler.shapes.cost import CallCost, Floats
from compiler.shapes.simple import SimpleChooser
from compiler.shapes.units import UnitSet

# Regrets are counted in this fraction of 1; dearer units than the cap are as bad as each other.
_FRACTION: Final = 2**20
_REGRET_MAX: Final = 64.0
# Elements of the matrix, and exchanges tried.
_MAX_ELEMENTS: Final = 20_000_000
_MAX_EXCHANGES: Final = 200

_Regrets = NDArray[np.int64]


def shape_costs(
    units: UnitSet, cost: CallCost, shapes: Sequence[tuple[int, ...]], cores: int | None = None, loaders: int = 1
) -> Floats:
    """Cycles of covering each shape with each unit alone, with the tail modes and call order that suit it best: [u, s].

    `cores` share the calls and wait for each other in the last round; `loaders` as in `SimpleChooser`. Raises
    LimitError for more combinations than are priced.
    """
    if len(units) * len(shapes) > _MAX_ELEMENTS:
        raise LimitError(
            "too many units and shapes to choose a library for",
            stage="shapes",
            op_type=units.signature,
            actual=len(units) * len(shapes),
            limit=_MAX_ELEMENTS,
        )
    chooser = SimpleChooser.build(units, cost, cores, loaders)
    return np.stack([chooser.unit_costs(shape) for shape in shapes], axis=1)


def choose_library(costs: Floats, weights: Sequence[int], size: int) -> tuple[int, ...]:
    """At most `size` units, by number, of least weighted regret; `costs` as from `shape_costs`, one weight per shape.

    Raises RequestError for no units or weights that are none.
    """
    return tuple(sorted(_chosen(_regrets(costs, weights), [], size)))


def regret(costs: Floats, weights: Sequence[int], chosen: Sequence[int]) -> float:
    """Mean cost of serving a shape by the best of some units over that by the best of all, less 1."""
    ratios = costs[list(chosen)].min(axis=0) / costs.min(axis=0)
    return float(np.average(ratios, weights=weights)) - 1.0


def regret_curve(costs: Floats, weights: Sequence[int], sizes: Sequence[int]) -> tuple[tuple[int, float], ...]:
    """The regret of libraries by their size; each begins with the one before it."""
    regrets, chosen, curve = _regrets(costs, weights), list[int](), []
    for size in sorted(sizes):
        chosen = _chosen(regrets, chosen, size)
        curve.append((size, regret(costs, weights, chosen)))
    return tuple(curve)


def _regrets(costs: Floats, weights: Sequence[int]) -> _Regrets:
    """Weighted regrets as whole numbers: [u, s]."""
    if costs.ndim != 2 or not costs.size or len(weights) != costs.shape[1] or min(weights) < 0:
        raise RequestError(
            "there is nothing to choose a library for",
            stage="shapes",
            actual=f"{costs.shape} costs, {len(weights)} weights",
            limit="a unit and a shape, and a weight of 0 or more for each shape",
        )
    # what costs nothing with some unit has no regret with any: there is nothing to save
    least = np.maximum(costs.min(axis=0), np.finfo(np.float64).tiny)
    excess = np.minimum(costs / least - 1.0, _REGRET_MAX)
    return np.asarray(np.rint(excess * _FRACTION), dtype=np.int64) * np.array(weights, dtype=np.int64)


def _chosen(regrets: _Regrets, begin: Sequence[int], size: int) -> list[int]:
    """Units added to `begin` until there are `size` or no regret is left, then exchanged."""
    if size < 1:
        raise RequestError("a library has at least one unit", stage="shapes", actual=size, limit=1)
    chosen = list(begin)
    worst = int(regrets.max(initial=0)) + 1
    nearest = regrets[chosen].min(axis=0) if chosen else np.full(regrets.shape[1], worst)
    while len(chosen) < min(size, len(regrets)) and (nearest > 0).any():
        totals = np.minimum(regrets, nearest).sum(axis=1)
        chosen.append(int(totals.argmin()))
        nearest = np.minimum(nearest, regrets[chosen[-1]])
    for _ in range(_MAX_EXCHANGES):
        exchange = _best_exchange(regrets, chosen)
        if exchange is None:
            break
        place, unit = exchange
        chosen[place] = unit
    return chosen


def _best_exchange(regrets: _Regrets, chosen: list[int]) -> tuple[int, int] | None:
    """The exchange of one chosen unit for another that saves most, None if none saves anything.

    A shape whose unit goes is served by the new unit or its second best; any other by the new one if that is better.
    """
    ranked = np.sort(regrets[chosen], axis=0)
    first, second = ranked[0], ranked[1] if len(chosen) > 1 else np.full_like(ranked[0], regrets.max() + 1)
    owner = regrets[chosen].argmin(axis=0)
    kept = np.minimum(regrets, first)
    # what the exchange costs beyond that, for the shapes of the unit that goes
    lost = np.minimum(regrets, second) - kept
    order = np.argsort(owner, kind="stable")
    totals = np.zeros((len(chosen), len(regrets)), dtype=np.int64)
    owners, begins = np.unique(owner[order], return_index=True)
    totals[owners] = np.add.reduceat(lost[:, order], begins, axis=1).T
    totals += kept.sum(axis=1)
    place, unit = (int(number) for number in np.unravel_index(int(totals.argmin()), totals.shape))
    return (place, unit) if totals[place, unit] < first.sum() else None
