"""From a graph at its maxima to a model for ranges: routines, tiles, buffers and costs (SHAPE-1, SHAPE-9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.errors import ModelError, printable
from compiler.ir.graph import Graph
from compiler.ops.op_facts import GraphFacts, graph_facts
from compiler.options import Options
from compiler.profile.load import profile_json
from compiler.profile.schema import Profile
from compiler.shapes.canonical_routine import buffer_names, canonical_routine
from compiler.shapes.choose import RoutineChooser
from compiler.shapes.extents import Range
from compiler.shapes.instance import Values, graph_at
from compiler.shapes.make_library import corners
from compiler.shapes.model import Part, ShapeModel
from compiler.shapes.reach import reach_of
from compiler.shapes.residence import chooser_beside, in_every_core
from compiler.shapes.segments import on_chips, segments_of
from compiler.shapes.shared_libraries import SharedLibraries, Wanted
from compiler.shapes.stored_units import StoredUnits
from compiler.shapes.unit_library import Library, LibraryUse, bound
from compiler.tiling.stationary import WeightTable
from compiler.unit_key import library_id_of


def build_model(
    graph: Graph,
    profile: Profile,
    ranges: Mapping[str, Range],
    options: Options,
    model_name: str,
    model_digest: str,
    values: Values,
    stored: StoredUnits,
) -> ShapeModel:
    """Choose routines and units for a graph at the maxima of its dimensions; `values` gives elements of constants.

    Units are taken from `stored` where they are there; which ones they are does not depend on that.

    Raises LimitError where an op has no tile that fits a core, or segments do not fit the chips; ModelError for one
    whose calls make all of an axis that is longer elsewhere.
    """
    facts = graph_facts(graph)
    others = [graph_facts(graph_at(graph, dims, values)) for dims in corners(ranges)]
    weights = WeightTable(facts, profile)
    wanted: list[Wanted] = []
    made: list[Part] = []
    cycles: dict[int, float] = {}
    chooser: RoutineChooser | None = None
    for is_host, ops in segments_of(facts, profile, options, others):
        numbers = []
        if not is_host:
            resident, in_place = weights.resident_bytes_per_core(ops), in_every_core(facts, profile, ops)
            if chooser is None or profile.is_stationary:
                chooser = chooser_beside(facts, profile, others, ops, resident)
            routines = chooser.routines(ops)
            cycles[len(made)] = sum(map(chooser.cycles, routines))
            numbers = list(range(len(wanted), len(wanted) + len(routines)))
            wanted += [
                Wanted(routine=canonical_routine(graph, one.ops, ranges, in_place), resident_bytes=resident)
                for one in routines
            ]
        made.append(Part(is_host=is_host, ops=tuple(ops), routines=tuple(numbers)))
    libraries, uses = list[Library](), list[LibraryUse]()
    for one, (key, library) in zip(wanted, SharedLibraries(profile, stored).of(wanted), strict=True):
        _refuse_longer(facts, one.routine.ops, library, others)
        names = buffer_names(one.routine, graph, facts.tensors)
        uses.append(LibraryUse(library_id=library_id_of(key), names=names, dims=one.routine.dims))
        libraries.append(bound(library, one.routine.ops, uses[-1]))
    return ShapeModel(
        graph=graph,
        profile=bytes(profile_json(profile)),
        ranges=ranges,
        reach=reach_of(graph, ranges),
        parts=on_chips(facts, profile, options.chips, made, cycles),
        libraries=tuple(libraries),
        uses=tuple(uses),
        model_name=model_name,
        model_digest=model_digest,
    )


def _refuse_longer(facts: GraphFacts, ops: Sequence[int], library: Library, others: Sequence[GraphFacts]) -> None:
    """Raise ModelError where every call makes all of an axis that is longer at other extents than its costs are known.

    Where tables divide an axis its length does not matter.
    """
    node = facts.graph.ops[ops[-1]]
    most, tiled = library.cost.maxima, library.routine.tiled
    for other in others:
        there = other.tensors[node.output].shape
        if any(length > most[axis] for axis, length in enumerate(there) if axis not in tiled):
            raise ModelError(
                "a result is longer where a dynamic dimension is shorter, along an axis of which each call makes all",
                code="longer_below_maxima",
                stage="shapes",
                node=node.node,
                op_type=node.kind,
                actual=f"{'x'.join(map(str, there))} at "
                + printable(", ".join(f"{name} = {extent}" for name, extent in sorted(other.graph.dims.items())), 160),
                limit="x".join(map(str, facts.tensors[node.output].shape)),
                hint="Give the dimension a fixed extent",
            )
