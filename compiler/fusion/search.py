"""Strategy `search`: the partition of a segment of least cost (FUSE-O)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Final

from compiler.cost.objective import Totals, objective_value
from compiler.fusion.evaluate import Evaluator
from compiler.fusion.floors import GroupFloors
from compiler.fusion.greedy import MAX_OPS, execution_order
from compiler.fusion.guided import Guide, Proven, best_within
from compiler.fusion.partitions import Floats, Partition, Partitions
from compiler.fusion.postdominators import PostDominators
from compiler.fusion.product import best_product
from compiler.fusion.segment_graph import SegmentGraph, mask_of

# So many groups are tried in all, shared out among the ops that they end with: at least and at most so many for each
# (where there are more, whole blocks and their branches).
GROUPS_MAX: Final = 60_000
_GROUPS_OF_OP: Final = (16, 4096)
# So many steps of pricing are taken at most, beside one for each op up to so many ops; where there are no more groups
# than the last says, two for each of so many, which is all that small segments take.
STEPS_MAX: Final = 192
_STEPS_OF_OPS: Final = 1024
_FEW: Final = 640
# What an objective sums up, of DRAM bytes, cycles and energy; and what tells equals apart.
_TIE: Final = 2.0**-34
_WEIGHTS: Final = MappingProxyType({"dram_bytes": (1, 0, 0), "latency": (0, 1, 0), "energy": (0, 0, 1)})
_TIES: Final = MappingProxyType({"dram_bytes": (1, _TIE, 0), "latency": (_TIE, 1, 0), "energy": (0, 0, 1)})


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Groups as bit sets in execution order, and what is known of how good they are.

    bound: no partition of single-output groups of at most MAX_OPS ops has an objective below it; None where that is not
    known (`edp` is no sum: its bound is what the least one has, once that is proven). candidates, priced: groups that
    were tried, and those that were priced.
    """

    groups: tuple[int, ...]
    bound: float | None
    candidates: int
    priced: int
    space: Partitions


def search_groups(
    evaluator: Evaluator, graph: SegmentGraph, outside: Totals | None = None, fixed: tuple[int, ...] = ()
) -> SearchResult | None:
    """The least partition of a segment into single-output groups; None if an op has no tiling alone.

    `outside` are the totals of the other segments, which energy × latency has to take in. `fixed` are groups of a
    pinned schedule, around which the others are found (TILE-9).
    """
    tree = PostDominators.of(graph, without=sum(fixed))
    floors = GroupFloors(graph, evaluator.profile)
    legal = _Legality(evaluator, graph)
    space = Partitions(
        tree,
        lambda groups: _floors(floors, legal, groups),
        lambda group: _price(evaluator, group),
        lambda group: group.bit_count() < MAX_OPS and legal.allows_more(group),
        sorted((_GROUPS_OF_OP[0], GROUPS_MAX // max(1, len(tree.ops)), _GROUPS_OF_OP[1]))[1],
        evaluator.asking,
    )
    found = _least(space, evaluator.options.objective, (outside or Totals()) + evaluator.totals(fixed))
    if found is None:
        return None
    partition, bound = found
    return SearchResult(
        groups=execution_order(graph, [*fixed, *partition.groups]),
        bound=bound if space.is_whole and space.is_sound else None,
        candidates=space.size,
        priced=space.priced,
        space=space,
    )


def _least(space: Partitions, objective: str, outside: Totals) -> tuple[Partition, float | None] | None:
    """The least partition that steps allow, and the objective that none is below, with what is outside."""
    guide = Guide(space)
    steps = _steps(space)
    proven: list[Proven] = []

    def best(weights: Sequence[float], ties: Sequence[float]) -> Partition | None:
        # energy × latency asks several times: later ones get some steps even if the first took all
        found = best_within(space, guide, weights, ties, max(steps // 4, steps - space.spent))
        if found is None:
            return None
        proven.append(found)
        return found.partition

    if objective == "edp":
        pair = (_WEIGHTS["energy"], _WEIGHTS["latency"])
        partition = best_product(lambda w: best(w, w), pair, (outside.energy_pj, outside.cycles))
        if partition is None:
            return None
        return partition, partition.value if all(one.is_least for one in proven) else None
    partition = best(_WEIGHTS[objective], _TIES[objective])
    if partition is None:
        return None
    return partition, proven[0].bound + float(objective_value(objective, outside))


def _steps(space: Partitions) -> int:
    """Steps that the search may take; with few groups of few tensors no bound."""
    bounded = STEPS_MAX + min(len(space.tree.ops), _STEPS_OF_OPS)
    return max(bounded, _FEW * 2) if space.size <= _FEW else bounded


def _floors(floors: GroupFloors, legal: _Legality, groups: Sequence[int]) -> Floats:
    figures = floors.of(groups)
    figures[[not legal.allows(group) for group in groups]] = inf
    return figures


def _price(evaluator: Evaluator, group: int) -> tuple[float, float, float] | None:
    totals = evaluator.price(group)
    return None if totals is None else (totals.dram_bytes, totals.cycles, totals.energy_pj)


class _Legality:
    """Which groups of several ops rules 8 and 9 and a schedule's forbidden edges allow."""

    def __init__(self, evaluator: Evaluator, graph: SegmentGraph) -> None:
        self._evaluator = evaluator
        self._alone = mask_of(op for op in graph.ops if evaluator.is_left_out(graph, op))

    def allows(self, group: int) -> bool:
        """True if the ops may form a group: what rules leave out is alone."""
        if not group & (group - 1):
            return True
        return not group & self._alone and self._evaluator.keeps_apart(group)

    def allows_more(self, group: int) -> bool:
        """False if no group that contains this one is allowed."""
        return not group & self._alone and self._evaluator.keeps_apart(group)
