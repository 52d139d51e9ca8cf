"""From a graph at its maxima to a model for ranges: routines, tiles, buffers and costs (SHAPE-1, SHAPE-9)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

import numpy as np

from compiler.errors import ModelError, printable
from compiler.ir.graph import Graph
from compiler.ops.op_facts import GraphFacts, graph_facts
from compiler.options import Options
from compiler.profile.load import profile_json
from compiler.profile.schema import Profile
from compiler.shapes.choose import RoutineChooser
from compiler.shapes.cost import CallCost, OperandTraffic
from compiler.shapes.extents import Range
from compiler.shapes.instance import Values, graph_at
from compiler.shapes.legal import shape_at
from compiler.shapes.library import choose_library, shape_costs
from compiler.shapes.model import Part, ShapeModel
from compiler.shapes.modelled import CallModel
from compiler.shapes.residence import chooser_beside
from compiler.shapes.routine import Routine, RoutineGeometry
from compiler.shapes.segments import on_chips, segments_of
from compiler.shapes.summed import SummedDims
from compiler.shapes.unit_library import Library
from compiler.shapes.units import UnitSet
from compiler.tiling.stationary import WeightTable

# Units whose extent along an axis is at most this accept any length there; longer ones a tenth less (SHAPE-4).
_SMALL: Final = 64
_TAIL: Final = 10
# Units of one signature.
MAX_UNITS: Final = 40
# Dimensions that a library is chosen for.
_SAMPLES: Final = 96
# Dimensions of which both ends are looked at.
_MAX_CORNERS: Final = 4


def build_model(
    graph: Graph,
    profile: Profile,
    ranges: Mapping[str, Range],
    options: Options,
    model_name: str,
    model_digest: str,
    values: Values,
) -> ShapeModel:
    """Choose routines and units for a graph at the maxima of its dimensions; `values` gives elements of constants.

    Raises LimitError where an op has no tile that fits a core, or segments do not fit the chips; ModelError for one
    whose calls make all of an axis that is longer elsewhere.
    """
    facts = graph_facts(graph)
    samples = sampled_dims(ranges)
    others = [graph_facts(graph_at(graph, dims, values)) for dims in corners(ranges)]
    weights = WeightTable(facts, profile)
    highest = {name: one.high for name, one in ranges.items()}
    summed = SummedDims(ranges, lambda name, extent: graph_facts(graph_at(graph, {**highest, name: extent}, values)))
    libraries: list[Library] = []
    made: list[Part] = []
    cycles: dict[int, float] = {}
    chooser: RoutineChooser | None = None
    for is_host, ops in segments_of(facts, profile, options, others):
        numbers = []
        if not is_host:
            if chooser is None or profile.is_stationary:
                chooser = chooser_beside(facts, profile, others, ops, weights.resident_bytes_per_core(ops))
            routines = chooser.routines(ops)
            cycles[len(made)] = sum(map(chooser.cycles, routines))
            numbers = list(range(len(libraries), len(libraries) + len(routines)))
            for routine in routines:
                _refuse_longer(facts, routine, others)
                result = facts.ops[routine.ops[-1]].output
                shapes = [shape_at(graph.tensors[result], dims) for dims in samples]
                libraries.append(
                    _library(chooser, RoutineGeometry(facts, routine.ops), routine, profile, shapes, summed)
                )
        made.append(Part(is_host=is_host, ops=tuple(ops), routines=tuple(numbers)))
    return ShapeModel(
        graph=graph,
        profile=bytes(profile_json(profile)),
        ranges=ranges,
        parts=on_chips(facts, profile, options.chips, made, cycles),
        libraries=tuple(libraries),
        model_name=model_name,
        model_digest=model_digest,
    )


def _refuse_longer(facts: GraphFacts, routine: Routine, others: Sequence[GraphFacts]) -> None:
    """Raise ModelError where every call makes all of an axis that is longer at other extents than at the largest.

    Units and costs are made for the largest; where tables divide an axis its length does not matter.
    """
    node = facts.graph.ops[routine.ops[-1]]
    most = facts.tensors[node.output].shape
    for other in others:
        there = other.tensors[node.output].shape
        if any(there[axis] > most[axis] for axis in range(len(most)) if axis not in routine.tiled):
            raise ModelError(
                "a result is longer where a dynamic dimension is shorter, along an axis of which each call makes all",
                code="longer_below_maxima",
                stage="shapes",
                node=node.node,
                op_type=node.kind,
                actual=f"{'x'.join(map(str, there))} at "
                + printable(", ".join(f"{name} = {extent}" for name, extent in sorted(other.graph.dims.items())), 160),
                limit="x".join(map(str, most)),
                hint="Give the dimension a fixed extent",
            )


def _library(
    chooser: RoutineChooser,
    geometry: RoutineGeometry,
    routine: Routine,
    profile: Profile,
    shapes: Sequence[tuple[int, ...]],
    summed: SummedDims,
) -> Library:
    """The units of a routine: of all tiles that fit a core those with which shapes regret the others least."""
    fitting = {
        tile: found
        for tile in chooser.tiles(routine)
        if (found := chooser.buffers(routine.ops, geometry, tile)) is not None
    }
    candidates, model = _units(geometry, routine, tuple(fitting)), chooser.model(geometry)
    best, loaders = chooser.best_tile(routine), model.loaders
    cost, names = summed.costs(_cost(model, routine, tuple(fitting), best, profile), model, best, chooser.model)
    chosen: Sequence[int] = range(len(candidates))
    if len(candidates) > MAX_UNITS:
        whole = {axis: extent for axis, extent in enumerate(cost.maxima) if axis not in routine.tiled}
        wanted = Counter(tuple(shape[axis] for axis in routine.tiled) for shape in shapes)
        costs = shape_costs(candidates, cost.at(whole), tuple(sorted(wanted)), profile.cores, loaders)
        chosen = choose_library(costs, [wanted[shape] for shape in sorted(wanted)], MAX_UNITS)
    kept = tuple(tuple(fitting)[number] for number in chosen)
    return Library(
        routine=routine,
        units=candidates.chosen(chosen),
        tiles=kept,
        buffers=tuple(fitting[tile] for tile in kept),
        cost=cost,
        loaders=loaders,
        summed=names,
    )


def _units(geometry: RoutineGeometry, routine: Routine, tiles: Sequence[tuple[int, ...]]) -> UnitSet:
    signature = signature_of(geometry, routine)
    extents = [[tile[axis] for axis in routine.tiled] or [1] for tile in tiles]
    return UnitSet.of(
        signature=signature,
        dtype=geometry.facts.graph.tensors[geometry.result].dtype,
        ids=tuple(f"{signature[:16]}-{'x'.join(map(str, tile))}" for tile in tiles),
        extents=extents,
        lows=[[0 if length <= _SMALL else length - length // _TAIL for length in row] for row in extents],
    )


def _cost(
    model: CallModel,
    routine: Routine,
    tiles: Sequence[tuple[int, ...]],
    best: tuple[int, ...],
    profile: Profile,
) -> CallCost:
    """What calls cost, over all axes of the result."""
    geometry = model.geometry
    rank = len(geometry.shape)

    def traffic(name: str) -> OperandTraffic:
        factor = model.common_factor(name) if model.is_common(name, routine.tiled) else 1.0
        return OperandTraffic(
            axes=tuple(range(rank)) if name == geometry.result else geometry.follows(name),
            start_cycles=factor * model.start_cycles(name),
            cycles=lambda tile: factor * model.move_cycles(name, tile),
        )

    return CallCost.tabulate(
        call_cycles=profile.calls.cycles,
        variable_cycles=profile.calls.length_cycles,
        compute_cycles=model.compute_cycles,
        operands=[traffic(name) for name in model.moved],
        maxima=[
            max(tile[axis] for tile in tiles) if axis in routine.tiled else extent
            for axis, extent in enumerate(geometry.shape)
        ],
        reference=best,
    )


def corners(ranges: Mapping[str, Range]) -> list[dict[str, int]]:
    """The ends of up to four ranges in all combinations but the largest; of further ranges the lower ends."""
    names = sorted(ranges, key=lambda name: (ranges[name].low - ranges[name].high, name))[:_MAX_CORNERS]
    found = []
    for ends in product((False, True), repeat=len(names)):
        dims = {name: one.low for name, one in ranges.items()}
        dims |= {name: ranges[name].high for name, is_high in zip(names, ends, strict=True) if is_high}
        if any(dims[name] != one.high for name, one in ranges.items()):
            found.append(dims)
    return found


def sampled_dims(ranges: Mapping[str, Range]) -> list[dict[str, int]]:
    """Dimensions that libraries are chosen for: the ends of the ranges, and as many as `_SAMPLES` in between.

    Extents are drawn evenly by their logarithm, always the same.
    """
    random = np.random.default_rng(0)
    found = [{name: one.low for name, one in ranges.items()}, {name: one.high for name, one in ranges.items()}]
    for _ in range(_SAMPLES if ranges else 0):
        dims = {}
        for name, one in ranges.items():
            extent = int(np.exp(random.uniform(np.log(one.low), np.log(one.high + 1))))
            dims[name] = min(one.high, one.low + (extent - one.low) // one.step * one.step)
        found.append(dims)
    return found


def signature_of(geometry: RoutineGeometry, routine: Routine) -> str:
    """The digest of a routine without the extents that vary: kinds, attributes, types, how ops are wired (SHAPE-1)."""
    graph = geometry.facts.graph
    names: dict[str, int] = {}
    ops = []
    for number in routine.ops:
        op = graph.ops[number]
        varying = {(name, position) for name, position, _ in op.symbols}
        tensors: list[object] = []
        for name in (*op.inputs, op.output):
            if not name:
                tensors.append(None)
                continue
            tensor = graph.tensors[name]
            moving = {axis for axis, _ in tensor.symbols}
            shape = [None if axis in moving else extent for axis, extent in enumerate(tensor.shape)]
            number_of = names.setdefault(name, len(names))
            tensors.append((number_of, tensor.dtype, tensor.stored_dtype, shape, tensor.constant is not None))
        attributes = [
            (
                name,
                [None if (name, i) in varying else v for i, v in enumerate(value)]
                if isinstance(value, tuple)
                else None
                if (name, 0) in varying
                else value,
            )
            for name, value in op.attributes
        ]
        ops.append((op.kind, attributes, tensors))
    text = json.dumps([ops, graph.opset, routine.tiled], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
