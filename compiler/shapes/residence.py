"""Stationary weights beside shape units: where they lie whatever the shape, and what they leave (PROF-2, SHAPE-9).

What lies where is decided at the largest extents; a smaller shape has the leading part of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ops.op_facts import GraphFacts, graph_facts
from compiler.profile.schema import Profile
from compiler.program.context import Context
from compiler.program.emitter import machine_of
from compiler.program.residents import ResidentPart, resident_parts
from compiler.shapes.choose import RoutineChooser
from compiler.shapes.model import Part, ShapeModel
from compiler.tiling.stationary import WeightTable, is_shared_out, resident_weights


def chooser_beside(
    facts: GraphFacts, profile: Profile, others: Sequence[GraphFacts], ops: Sequence[int], resident_bytes: int
) -> RoutineChooser:
    """What chooses routines of a segment's ops, beside so many bytes of stationary weights in every core."""
    return RoutineChooser(facts, profile.beside(resident_bytes), others, in_every_core(facts, profile, ops))


def resident_parts_of(model: ShapeModel, profile: Profile, part: Part) -> tuple[ResidentPart, ...]:
    """Where the stationary weights of a segment lie, at every shape; none where weights are streamed."""
    if not profile.is_stationary:
        return ()
    facts = graph_facts(model.graph)
    resident_bytes = WeightTable(facts, profile).resident_bytes_per_core(part.ops)
    context = Context(facts, machine_of(profile), frozenset(), frozenset())
    return resident_parts(context, profile, part.ops, resident_bytes, without=_varying(facts, part.ops))


def in_every_core(facts: GraphFacts, profile: Profile, ops: Sequence[int]) -> frozenset[str]:
    """The stationary weights that lie whole in every core: calls use them in place."""
    if not profile.is_stationary:
        return frozenset()
    varying = _varying(facts, ops)
    return frozenset(
        name
        for name, (op, operand) in resident_weights(facts, ops).items()
        if name not in varying and (profile.cores == 1 or not is_shared_out(facts, op, operand))
    )


def _varying(facts: GraphFacts, ops: Sequence[int]) -> frozenset[str]:
    """Constants some of whose elements are extents: what they are is known with the shape, and they stay in DRAM."""
    return frozenset(name for name in facts.weights_of(ops) if facts.graph.tensors[name].element_symbols)
