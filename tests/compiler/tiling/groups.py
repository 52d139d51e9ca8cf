"""Random groups for tests of tilings."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from compiler.fusion.segment_graph import bits
from compiler.ops.op_facts import GraphFacts
from compiler.tiling.geometry import GroupGeometry
from tests.models import whole_segment
from tests.strategies import models


@st.composite
def groups(draw: st.DrawFn) -> tuple[GraphFacts, GroupGeometry]:
    """A random convex group of a random network with one output."""
    facts = draw(models(max_ops=6, max_extent=10)).facts()
    graph = whole_segment(facts)
    assume(graph.ops)
    last = draw(st.sampled_from(graph.ops))
    members = [last]
    for op in sorted(bits(graph.ancestors[last]), reverse=True):
        if draw(st.integers(0, 3)):
            mask = sum(1 << m for m in [*members, op])
            if graph.is_convex(mask) and len(graph.outputs_of(mask)) == 1:
                members.append(op)
    return facts, GroupGeometry(facts, members)
