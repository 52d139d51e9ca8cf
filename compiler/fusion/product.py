"""The partition with the least product of two sums over its groups, such as energy × latency (FUSE-O, `edp`).

A product of two sums is no sum over groups. But over points (a, b) in the positive quadrant a · b is least at a corner
of their convex hull: between two points of which neither is better in both, it is greater than at one of the two. And
a corner of the hull is the point of least p·a + q·b for some p and q, which is a sum over groups. So the least product
is found exactly by a few searches for the least weighted sum; what one search priced, the next ones know.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isclose
from typing import Final

from compiler.fusion.partitions import Partition, weighted

# A search that betters the chord by less than this, relatively, has found nothing new.
_ROUNDING: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Corner:
    """A point (a, b), and the least value of p·a + q·b, which it has: no point lies below that line."""

    a: float
    b: float
    p: float
    q: float

    @property
    def product(self) -> float:
        """What is to be least."""
        return self.a * self.b


def least_product(search: Callable[[float, float], tuple[float, float] | None]) -> tuple[float, float] | None:
    """The weights p and q under which the least p·a + q·b is at the point with the least a·b; None without points.

    `search` returns the point (a, b), both at least 0, of least p·a + q·b for weights p, q ≥ 0, None if there is
    none. The same weights have to give the same point. Of equal products the one with less a.
    """
    ends = [_corner(search, *weights) for weights in ((1, 0), (0, 1))]
    if ends[0] is None or ends[1] is None:
        return None
    first, last = ends[0], ends[1]
    best = min(first, last, key=_rank)
    # stretches of the hull that are not known yet, by the least product that they may hold
    waiting = [(_bound(first, last), 0, first, last)]
    made = 1
    while waiting and waiting[0][0] < best.product:
        _, _, left, right = heapq.heappop(waiting)
        p, q = left.b - right.b, right.a - left.a
        if p <= 0 or q <= 0:
            continue
        middle = _corner(search, p, q)
        chord = p * left.a + q * left.b
        if middle is None or not _is_less(p * middle.a + q * middle.b, chord):
            continue
        best = min(best, middle, key=_rank)
        for pair in ((left, middle), (middle, right)):
            heapq.heappush(waiting, (_bound(*pair), made, *pair))
            made += 1
    return best.p, best.q


def best_product(
    best: Callable[[Sequence[float]], Partition | None],
    pair: tuple[Sequence[float], Sequence[float]] = ((1, 0), (0, 1)),
    outside: tuple[float, float] = (0, 0),
) -> Partition | None:
    """The partition with the least (outside[0] + sum of a) · (outside[1] + sum of b).

    `best` finds the partition with the least sum of prices under some weights; a and b are the sums under the two
    weights of `pair`. As exact as `best` is. Its `value` is that product. None if there is no partition. Of equal
    products the one with less a.
    """
    found: dict[tuple[float, float], tuple[Partition, tuple[float, float]]] = {}

    def search(p: float, q: float) -> tuple[float, float] | None:
        partition = best([p * one + q * other for one, other in zip(*pair, strict=True)])
        if partition is None:
            return None
        point = (outside[0] + weighted(partition, pair[0]), outside[1] + weighted(partition, pair[1]))
        found[p, q] = (partition, point)
        return point

    weights = least_product(search)
    if weights is None:
        return None
    partition, (a, b) = found[weights]
    return Partition(groups=partition.groups, prices=partition.prices, value=a * b)


def _corner(search: Callable[[float, float], tuple[float, float] | None], p: float, q: float) -> Corner | None:
    point = search(p, q)
    return None if point is None else Corner(a=point[0], b=point[1], p=p, q=q)


def _rank(corner: Corner) -> tuple[float, float]:
    return corner.product, corner.a


def _is_less(value: float, than: float) -> bool:
    return value < than and not isclose(value, than, rel_tol=_ROUNDING)


def _bound(left: Corner, right: Corner) -> float:
    """The product where the lines through two corners meet, below which no point between the corners can be.

    All points between them are in the triangle of the two and that meeting point, and the product is least at a
    corner of the triangle.
    """
    determinant = left.p * right.q - right.p * left.q
    if determinant <= 0:
        return inf if left.a >= right.a else left.a * right.b
    over_left = left.p * left.a + left.q * left.b
    over_right = right.p * right.a + right.q * right.b
    a = (over_left * right.q - over_right * left.q) / determinant
    b = (left.p * over_right - right.p * over_left) / determinant
    return max(a, left.a) * max(b, right.b)
