"""Partitions that are Pareto-optimal in two sums over their groups, such as energy and latency (FUSE-O).

The dynamic programme of `partitions.py` with labels in place of least costs: for every op, the pairs (a, b) of its own
group and of all ops that it post-dominates, of which none is as good as another in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from compiler.fusion.partitions import Candidate, Partitions

PriceT = TypeVar("PriceT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoPartition(Generic[PriceT]):
    """A partition: groups with their prices, each after the groups that it reads from, and their two sums."""

    groups: tuple[int, ...]
    prices: tuple[PriceT, ...]
    a: float
    b: float


def best_frontier(
    partitions: Partitions[PriceT], pair: Callable[[PriceT], tuple[float, float]], labels: int = 64
) -> tuple[ParetoPartition[PriceT], ...]:
    """The Pareto-optimal partitions, by ascending a, one for each pair of sums; none if each has a refused group.

    `pair` are a price's two parts; neither may be greater for a floor than for the price above it. A group is priced
    only if with its floor it would be better in a or b than every label of its output found before.

    While no op and no set of outputs that some group needs has more than `labels` labels (at least 2), the answer is
    complete. Where there are more, the corners of their lower convex hull are kept and of the others as many as may
    be, evenly. With complete hulls every weighted sum and every product of the two sums is still the least there is;
    only if a hull has more corners, all that is promised is that each answer is a partition with these sums.
    """
    return _Labelling(partitions, pair, labels).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Label(Generic[PriceT]):
    """Two sums over groups, and what they are sums of: a candidate and a label of what it needs, or two labels."""

    a: float
    b: float
    candidate: Candidate[PriceT] | None = None
    parts: tuple[_Label[PriceT], ...] = ()


class _Labelling(Generic[PriceT]):
    def __init__(
        self, partitions: Partitions[PriceT], pair: Callable[[PriceT], tuple[float, float]], labels: int
    ) -> None:
        self._partitions = partitions
        self._pair = pair
        self._limit = labels
        self._of: dict[int, list[_Label[PriceT]]] = {}
        self._together: dict[tuple[int, ...], list[_Label[PriceT]]] = {(): [_Label(a=0, b=0)]}

    def run(self) -> tuple[ParetoPartition[PriceT], ...]:
        """Label the ops, those of a frontier before the op that needs it."""
        for op in self._partitions.tree.ops:
            self._of[op] = self._labels(self._partitions.candidates[op])
        return tuple(_partition(label) for label in self._needed(self._partitions.tree.roots))

    def _labels(self, candidates: Iterable[Candidate[PriceT]]) -> list[_Label[PriceT]]:
        """The labels of an op; candidates with the least product by their floors are looked at first."""
        ordered = []
        for number, candidate in enumerate(candidates):
            least = self._with(candidate)
            if least:
                ordered.append((min(label.a * label.b for label in least), number, candidate))
        found: list[_Label[PriceT]] = []
        for _, _, candidate in sorted(ordered, key=lambda entry: entry[:2]):
            if not candidate.is_exact:
                if len(_undominated(found + self._with(candidate), found)) == 0:
                    continue
                self._partitions.settle(candidate)
            found = _pareto(found + self._with(candidate))
        return _thinned(found, self._limit)

    def _with(self, candidate: Candidate[PriceT]) -> list[_Label[PriceT]]:
        """A candidate's labels by what is known of its price; none if it was refused or lacks what it needs."""
        if candidate.price is None:
            return []
        a, b = self._pair(candidate.price)
        needed = self._needed(candidate.frontier)
        return [_Label(a=a + x.a, b=b + x.b, candidate=candidate, parts=(x,)) for x in needed]

    def _needed(self, outputs: tuple[int, ...]) -> list[_Label[PriceT]]:
        """Labels of several outputs together, which many groups need alike."""
        if len(outputs) == 1:
            return self._of[outputs[0]]
        start = len(outputs)
        while outputs[:start] not in self._together and start:
            start -= 1
        together = self._together[outputs[:start]]
        for end in range(start, len(outputs)):
            one = self._of[outputs[end]]
            sums = [_Label(a=x.a + y.a, b=x.b + y.b, parts=(x, y)) for x in together for y in one]
            together = self._together[outputs[: end + 1]] = _thinned(_pareto(sums), self._limit)
        return together


def _pareto(labels: list[_Label[PriceT]]) -> list[_Label[PriceT]]:
    """The labels that no other is as good as in both sums, by ascending a; of equal ones the first."""
    kept: list[_Label[PriceT]] = []
    for label in sorted(labels, key=lambda label: (label.a, label.b)):
        if not kept or label.b < kept[-1].b:
            kept.append(label)
    return kept


def _undominated(labels: list[_Label[PriceT]], known: list[_Label[PriceT]]) -> list[_Label[PriceT]]:
    """What of labels that begin with the known ones is better than all of these."""
    old = {id(label) for label in known}
    return [label for label in _pareto(labels) if id(label) not in old]


def _thinned(labels: list[_Label[PriceT]], limit: int) -> list[_Label[PriceT]]:
    """At most `limit` of Pareto-optimal labels by ascending a: the hull's corners, then others evenly."""
    if len(labels) <= limit:
        return labels
    corners = set(_hull(labels))
    others = [number for number in range(len(labels)) if number not in corners]
    if len(corners) >= limit:
        chosen = _evenly(sorted(corners), limit)
    else:
        chosen = sorted([*corners, *_evenly(others, limit - len(corners))])
    return [labels[number] for number in chosen]


def _evenly(numbers: list[int], limit: int) -> list[int]:
    """`limit` of the numbers, the first and, from 2 on, the last among them."""
    if limit == 1:
        return numbers[:1]
    return [numbers[position * (len(numbers) - 1) // (limit - 1)] for position in range(limit)]


def _hull(labels: list[_Label[PriceT]]) -> list[int]:
    """Positions of the corners of the lower convex hull of Pareto-optimal labels by ascending a."""
    corners: list[int] = []
    for number, label in enumerate(labels):
        while len(corners) > 1:
            first, last = labels[corners[-2]], labels[corners[-1]]
            if (last.b - first.b) * (label.a - first.a) < (label.b - first.b) * (last.a - first.a):
                break
            corners.pop()
        corners.append(number)
    return corners


def _partition(label: _Label[PriceT]) -> ParetoPartition[PriceT]:
    candidates = sorted(_chosen(label))
    return ParetoPartition(
        groups=tuple(candidate.group for candidate in candidates),
        prices=tuple(candidate.price for candidate in candidates if candidate.price is not None),
        a=label.a,
        b=label.b,
    )


def _chosen(label: _Label[PriceT]) -> Iterator[Candidate[PriceT]]:
    waiting = [label]
    while waiting:
        one = waiting.pop()
        if one.candidate is not None:
            yield one.candidate
        waiting.extend(one.parts)
