"""Strategy `search` by its own prices against brute force over convex single-output partitions (FUSE-O)."""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose
from random import Random

import pytest

from compiler.cost.objective import Totals, objective_value
from compiler.errors import TesseraError
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.evaluate import Evaluator
from compiler.fusion.search import search_groups
from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.options import Options
from compiler.profile.schema import Profile
from compiler.tiling.choose import Refusal
from tests.compiler.fusion.cases import any_model, any_profile, edges_of, model_of, segment_of, tight
from tests.compiler.fusion.networks import all_partitions, as_mask, random_network, series_parallel
from tests.strategies import OBJECTIVES

MOST_OPS = 10
# of which the default run takes a sample
NETWORKS = 2000
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A segment, a chip that holds each of its ops, an objective, and totals from elsewhere."""

    graph: SegmentGraph
    profile: Profile
    options: Options
    outside: Totals

    def evaluator(self) -> Evaluator:
        """A fresh one, that knows no price."""
        return SegmentCompilers(self.profile, self.options).of(self.graph.facts).evaluator(self.graph.ops)


def case(seed: int) -> Case:
    """Networks of any shape, series-parallel ones, and ones of any ops; the next draw where one does not fit."""
    random = Random(seed)
    objective = OBJECTIVES[seed % len(OBJECTIVES)]
    options = Options(objective=objective, fusion="search")  # type: ignore[arg-type]
    while True:
        kind = random.randrange(3)
        if kind == 2:
            model = any_model(random, random.randint(1, MOST_OPS))
        else:
            model = model_of(random, (random_network, series_parallel)[kind](random, random.randint(2, MOST_OPS)))
        graph = segment_of(model)
        if graph is None or len(graph.ops) > MOST_OPS:
            continue
        outside = Totals(dram_bytes=5000, cycles=random.choice((0, 10**5)), energy_pj=random.choice((0.0, 1e6)))
        profile = any_profile(random)
        if random.random() < 0.8:
            profile = tight(random, profile, graph.facts)
        found = Case(graph=graph, profile=profile, options=options, outside=outside)
        try:
            evaluator = found.evaluator()
            if all(not isinstance(evaluator.tiling(1 << op), Refusal) for op in graph.ops):
                return found
        except TesseraError:  # a weight that stays on the chip is larger than it
            continue


def is_legal(graph: SegmentGraph, group: frozenset[int]) -> bool:
    """Rules 8 and 9 by definition: among several ops no convolution whose weight is computed or has other readers."""
    model = graph.facts.graph
    for op in group:
        made = model.ops[op]
        if len(group) > 1 and made.kind in ("Conv", "ConvTranspose"):
            weight = made.inputs[1]
            if model.tensors[weight].constant is None or len(model.consumers[weight]) > 1:
                return False
    return True


def least_by_brute_force(these: Case) -> float:
    """The least value of the objective over all partitions; every group is priced."""
    evaluator = these.evaluator()
    prices: dict[frozenset[int], Totals | None] = {}

    def price(group: frozenset[int]) -> Totals | None:
        if group not in prices:
            found = evaluator.tiling(as_mask(group)) if is_legal(these.graph, group) else None
            prices[group] = None if found is None or isinstance(found, Refusal) else Totals.of((found.cost,))
        return prices[group]

    values = []
    for partition in all_partitions(edges_of(these.graph)):
        found = [made for group in partition if (made := price(group)) is not None]
        if len(found) == len(partition):
            values.append(objective_value(these.options.objective, sum(found, start=these.outside)))
    return float(min(values))


def check(seed: int) -> int:
    """Search and brute force have the same least value; the number of groups that the search found."""
    these = case(seed)
    evaluator = these.evaluator()
    found = search_groups(evaluator, these.graph, these.outside)
    assert found is not None
    assert sorted(op for group in found.groups for op in bits(group)) == list(these.graph.ops)
    assert all(group & (group - 1) == 0 or len(these.graph.outputs_of(group)) == 1 for group in found.groups)
    value = objective_value(these.options.objective, these.outside + evaluator.totals(found.groups))
    wanted = least_by_brute_force(these)
    exact = these.options.objective in ("latency", "dram_bytes")
    assert value == wanted if exact else isclose(value, wanted, rel_tol=_ROUNDING), (seed, these.options.objective)
    assert found.bound is not None
    assert isclose(found.bound, value, rel_tol=_ROUNDING), (seed, "the least is not proven to be")
    return len(found.groups)


@pytest.mark.matrix(first=1, rest=3)
@pytest.mark.parametrize("start", range(0, NETWORKS, 10))
def test_search_finds_what_brute_force_over_real_prices_finds(start: int) -> None:
    """FUSE-O: without the improvement step, over its class; 2,000 random networks of up to 10 ops."""
    assert len({check(seed) for seed in range(start, start + 10)}) > 1
