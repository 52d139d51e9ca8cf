"""What keeps the search's time bounded on any graph: steps, visits, and reasons that are not asked for (FUSE-O)."""

from __future__ import annotations

import pytest

from compiler.cost.objective import Totals
from compiler.fusion.boundary import Reasons, boundaries_of
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.evaluate import Evaluator
from compiler.fusion.postdominators import PostDominators
from compiler.fusion.segment_graph import SegmentGraph
from compiler.fusion.single_output import single_output_groups
from compiler.options import Options
from compiler.profile import builtin_profile
from compiler.tiling.finished import Choice
from tests.compiler.fusion.networks import Edges
from tests.models import Model, group_of, whole_segment


def evaluated(model: Model) -> tuple[SegmentGraph, Evaluator]:
    """A model as one segment, and who prices its groups."""
    graph = whole_segment(model.facts())
    return graph, SegmentCompilers(builtin_profile("edge4"), Options()).of(graph.facts).evaluator(graph.ops)


def convolutions() -> Model:
    """Two pairs of a convolution and a Relu, of equal content."""
    model = Model()
    x = model.input([1, 4, 16, 16])
    for index in range(2):
        x = model.relu(model.conv(x, 4, 4, name=f"conv{index}"), name=f"relu{index}")
    model.output(x)
    return model


def test_a_price_of_known_content_counts_less_and_is_that_of_the_tiling() -> None:
    graph, evaluator = evaluated(convolutions())
    first, second = (group_of(graph.facts, f"conv{index}", f"relu{index}") for index in range(2))
    assert evaluator.asking(first) == evaluator.asking(second) == evaluator.steps(first)
    price = evaluator.price(first)
    assert evaluator.asking(first) == evaluator.asking(second) < evaluator.steps(second)
    assert evaluator.price(second) == price
    for group in (first, second):
        choice = evaluator.tiling(group)
        assert isinstance(choice, Choice)
        assert Totals.of((choice.cost,)) == price


@pytest.mark.parametrize(("operands", "extent"), [(2, 64), (100, 64), (2, 2**28), (100, 2**28)])
def test_steps_grow_with_tensors_and_with_long_axes(operands: int, extent: int) -> None:
    model = Model()
    x = model.input([extent])
    model.output(model.node("Sum", [x] * operands))
    _, evaluator = evaluated(model)
    long = 1 + 4 * (2**18 // 2**14) if extent > 64 else 1
    assert evaluator.steps(1) == pytest.approx(1 + operands * long // 24, rel=0.1)


def test_reasons_at_boundaries_end_with_their_steps_and_say_so() -> None:
    """SPEC 5.4, where a plan has more boundaries than can be priced."""
    graph, evaluator = evaluated(convolutions())
    first, second = (group_of(graph.facts, f"conv{index}", f"relu{index}") for index in range(2))
    homes = {op: first if first >> op & 1 else second for op in graph.ops}
    (none,) = boundaries_of(evaluator, graph, first, homes, reasons=Reasons(left=0.0))
    assert (none.rule, none.actual, none.limit) == (None, None, None)
    assert "was not worked out" in none.why
    reasons = Reasons()
    (priced,) = boundaries_of(evaluator, graph, first, homes, reasons=reasons)
    assert priced.actual == evaluator.value([first | second])
    assert reasons.left < Reasons().left


def nested(depth: int) -> Edges:
    """A skip connection around a skip connection and so on: each op reads the one before, and one across."""
    edges = {(op, op + 1) for op in range(2 * depth - 1)}
    return Edges.of(edges | {(depth - 1 - op, depth + op) for op in range(1, depth)}, 2 * depth)


def test_blocks_nested_in_blocks_are_looked_for_in_a_bounded_number_of_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each larger block is the last one and most of the network again."""
    visited = 0
    smallest_with = PostDominators.smallest_with

    def counted(tree: PostDominators, group: int, op: int) -> int:
        nonlocal visited
        found = smallest_with(tree, group, op)
        visited += (found & ~group).bit_count()
        return found

    monkeypatch.setattr(PostDominators, "smallest_with", counted)
    network, limit = nested(400), 16
    tree = PostDominators.of(network)
    for output in network.ops[-200::50]:
        visited = 0
        groups = [group for group, _ in single_output_groups(tree, output, lambda _: True, limit)]
        assert len(groups) > limit
        # at most 64 for each group of the limit in either kind that visits blocks, and the block that goes beyond
        assert visited <= 2 * (64 * limit + len(network.ops))
