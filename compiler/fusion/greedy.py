"""Strategy `rules`: groups grown greedily under the rules (FUSE-R)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from compiler.cost.objective import Totals, objective_value
from compiler.errors import InternalError
from compiler.fusion.evaluate import Evaluator
from compiler.fusion.none import none_groups
from compiler.fusion.rules.gain import fuse_20
from compiler.fusion.rules.growth import fuse_1, fuse_2, fuse_a, fuse_b
from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.tiling.choose import Refusal
from compiler.tiling.figures import Check
from compiler.tiling.finished import Choice

# Additions in a row that may fail to pay before growth ends.
PATIENCE: Final = 4
# Additions in a row without a profit (rules 5 to 7) before growth ends.
UNPROVEN: Final = 24
# A group that grew to SAMPLED ops is priced only each time it has grown by a sixteenth more; none grows beyond
# MAX_OPS. Both keep long chains from taking quadratic time.
SAMPLED: Final = 64
MAX_OPS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyResult:
    """Groups as bit sets in execution order, and FUSE-20's verdict for those that growth made."""

    groups: tuple[int, ...]
    gains: dict[int, Check]


def greedy_groups(
    evaluator: Evaluator, graph: SegmentGraph, outside: Totals | None = None, fixed: tuple[int, ...] = ()
) -> GreedyResult:
    """Groups of a segment: start rule, growth, shrinking, profit; what is left is grouped as by `none` (FUSE-R).

    `outside` are the totals of the other segments, which energy × latency has to take in. `fixed` are groups of a
    pinned schedule: the others grow around them (TILE-9).
    """
    return _Growth(evaluator, graph, outside or Totals(), fixed).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """What taking a group out of the ungrouped ops changes: groups of `none` that go, groups that come instead."""

    group: int
    gone: frozenset[int]
    come: tuple[int, ...]


class _Growth:
    """The state of one greedy pass over one segment: the groups grown, and `none`'s groups of all other ops."""

    def __init__(self, evaluator: Evaluator, graph: SegmentGraph, outside: Totals, fixed: tuple[int, ...]) -> None:
        self.evaluator = evaluator
        self.outside = outside
        self.graph = graph
        self.free = graph.all & ~_union(fixed)
        self.grown: list[int] = list(fixed)
        self.gains: dict[int, Check] = {}
        self.home: dict[int, int] = {}
        plain = none_groups(evaluator, graph, self.free)
        self._settle(plain)
        self.totals = evaluator.totals([*fixed, *plain])

    def run(self) -> GreedyResult:
        """Start and grow until no op is left to start from."""
        start_rule = fuse_a if self.evaluator.options.start_rule == "A" else fuse_b
        # rules 5 to 7 count what a group contains: where all ops together show no profit, no group does
        untried = self.free if _shows_profit(self.evaluator, self.graph, self.free) else 0
        while (start := start_rule(self.graph, untried)) is not None:
            untried &= ~(1 << start)
            found = self._grow(start)
            if found is not None:
                exchange, gain = found
                self._take(exchange, gain)
                untried &= self.free
        rest = dict.fromkeys(self.home.values())
        return GreedyResult(groups=execution_order(self.graph, [*self.grown, *rest]), gains=self.gains)

    def _settle(self, groups: Iterable[int]) -> None:
        for group in groups:
            self.home.update(dict.fromkeys(bits(group), group))

    def _take(self, exchange: _Exchange, gain: Check) -> None:
        """Make a grown group final."""
        self.totals = self._after(exchange)
        self.grown.append(exchange.group)
        self.gains[exchange.group] = gain
        self.free &= ~exchange.group
        for op in bits(exchange.group):
            del self.home[op]
        self._settle(exchange.come)

    def _exchange(self, group: int) -> _Exchange:
        """Only `none` groups that lose ops change, and those whose chain can now reach what was left over."""
        gone = {self.home[op] for op in bits(group)}
        left_over = _union(gone) & ~group
        for op in bits(left_over):
            gone.update(
                self.home[source]
                for source in self.graph.predecessors[op]
                if source in self.home and not group >> source & 1
            )
        come = none_groups(self.evaluator, self.graph, _union(gone) & ~group)
        return _Exchange(group=group, gone=frozenset(gone), come=tuple(come))

    def _after(self, exchange: _Exchange) -> Totals:
        """The segment's totals after an exchange."""
        gone = self.evaluator.totals(sorted(exchange.gone))
        come = self.evaluator.totals([exchange.group, *exchange.come])
        return self.totals - gone + come

    def _grow(self, start: int) -> tuple[_Exchange, Check] | None:
        """The largest group grown from `start` that shows a profit and pays (rules 5 to 7, and 20).

        FUSE-20 asks for fewer ops where a group does not pay; growth therefore ends when PATIENCE additions in a row
        have not paid, and the last group that did is the answer.
        """
        options = self.evaluator.options
        if self.evaluator.is_left_out(self.graph, start):
            return None
        group, best = 1 << start, None
        directions = [fuse_2, fuse_1] if options.rule_enabled("FUSE-2") else [fuse_1]
        for direction in directions:
            unpaid = unproven = 0
            priced, step_by_step = group, False
            while unpaid < PATIENCE and unproven < UNPROVEN and group.bit_count() < MAX_OPS:
                units = direction(self.graph, group, self.free & ~group, options.rule_enabled("FUSE-3"))
                following = _next_group(self.evaluator, self.graph, group, units, self.grown)
                if following is None:
                    break
                group = following
                size = group.bit_count()
                sampling = best is not None and size > SAMPLED and not step_by_step
                if sampling and size - priced.bit_count() < size // 16:
                    continue
                if not _shows_profit(self.evaluator, self.graph, group):
                    unproven += 1
                    continue
                if isinstance(self.evaluator.tiling(group), Refusal):
                    if not sampling:
                        break
                    group, step_by_step = priced, True  # too far: on from the last that fits, one by one
                    continue
                priced = group
                exchange = self._exchange(group)
                gain = self._gain(exchange)
                if gain.holds:
                    best, unpaid = (exchange, gain), 0
                else:
                    unpaid += 1
        return best

    def _gain(self, exchange: _Exchange) -> Check:
        """FUSE-20 for a grown group, over the groups that change; always holds where the rule is switched off."""
        objective = self.evaluator.options.objective
        if objective == "edp":
            # not a sum over groups: the energy × latency of the whole plan
            check = fuse_20(
                objective_value(objective, self.outside + self._after(exchange)),
                objective_value(objective, self.outside + self.totals),
            )
        else:
            value = self.evaluator.value
            check = fuse_20(value([exchange.group, *exchange.come]), value(sorted(exchange.gone)))
        if self.evaluator.options.rule_enabled("FUSE-20"):
            return check
        return Check(rule="FUSE-20", holds=True, actual=check.actual, limit=check.limit)


def _union(groups: Iterable[int]) -> int:
    mask = 0
    for group in groups:
        mask |= group
    return mask


def _shows_profit(evaluator: Evaluator, graph: SegmentGraph, group: int) -> bool:
    return evaluator.is_profitable(evaluator.profit(graph, group))


def _next_group(
    evaluator: Evaluator, graph: SegmentGraph, group: int, units: Iterator[int], grown: list[int]
) -> int | None:
    """The group with the first unit whose addition keeps all rules; None ends growth."""
    for unit in units:
        candidate = group | unit
        if not graph.is_convex(candidate):
            continue
        if not all(check.holds for check in evaluator.structure(graph, candidate)):
            continue
        if not evaluator.options.rule_enabled("FUSE-4") and not _orderable(graph, [*grown, candidate]):
            continue
        # a group that is only passed through is not priced: what it costs decides nothing
        if candidate.bit_count() > SAMPLED or not _shows_profit(evaluator, graph, candidate):
            return candidate
        if isinstance(evaluator.tiling(candidate), Choice):
            return candidate
    return None


def _orderable(graph: SegmentGraph, groups: list[int]) -> bool:
    return group_order(graph, groups) is not None


def execution_order(graph: SegmentGraph, groups: list[int]) -> tuple[int, ...]:
    """Groups so that each comes after those it reads from; among ready ones, the one with the earliest op."""
    ordered = group_order(graph, groups)
    if ordered is None:
        raise InternalError("groups depend on each other in a circle", stage="fusion")
    return ordered


def group_order(graph: SegmentGraph, groups: list[int]) -> tuple[int, ...] | None:
    """Groups, and all other ops alone, in execution order; None if some wait for each other in a circle."""
    home = {op: number for number, group in enumerate(groups) for op in bits(group)}
    singles = [op for op in graph.ops if op not in home]
    count = len(groups) + len(singles)
    home.update({op: len(groups) + number for number, op in enumerate(singles)})
    waits: list[set[int]] = [set() for _ in range(count)]
    feeds: list[set[int]] = [set() for _ in range(count)]
    for op in graph.ops:
        for user in graph.successors[op]:
            if home[op] != home[user]:
                waits[home[user]].add(home[op])
                feeds[home[op]].add(home[user])
    masks = [*groups, *(1 << op for op in singles)]
    ready = sorted((masks[n] & -masks[n], n) for n in range(count) if not waits[n])
    result = []
    heapq.heapify(ready)
    while ready:
        _, number = heapq.heappop(ready)
        result.append(masks[number])
        for other in feeds[number]:
            waits[other].discard(number)
            if not waits[other]:
                heapq.heappush(ready, (masks[other] & -masks[other], other))
    return tuple(result) if len(result) == count else None
