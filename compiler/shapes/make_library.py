"""A library of shape units for a routine without names (SHAPE-1).

Tiles, buffers and costs are functions of the canonical routine, its size class and the profile: models that have the
routine in common have the library in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

import numpy as np

from compiler.errors import RequestError, TesseraError
from compiler.ir.graph import Graph
from compiler.ops.op_facts import GraphFacts, graph_facts
from compiler.profile.schema import Profile
from compiler.shapes.canonical_routine import no_elements
from compiler.shapes.choose import RoutineChooser
from compiler.shapes.cost import CallCost, OperandTraffic
from compiler.shapes.extents import Range
from compiler.shapes.instance import graph_at
from compiler.shapes.legal import shape_at
from compiler.shapes.library import choose_library, shape_costs
from compiler.shapes.modelled import CallModel
from compiler.shapes.routine import Routine, RoutineGeometry
from compiler.shapes.size_class import Sized
from compiler.shapes.summed import SummedDims
from compiler.shapes.unit_library import Library
from compiler.shapes.units import UnitSet

# Units whose extent along an axis is at most this accept any length there; longer ones a tenth less (SHAPE-4).
_SMALL: Final = 64
_TAIL: Final = 10
# Units of one signature.
MAX_UNITS: Final = 40
# Dimensions that a library is chosen for.
_SAMPLES: Final = 96
# Of so many dimensions, the widest, the minimum and the maximum are tried in all combinations.
_MAX_CORNERS: Final = 4


def make_library(sized: Sized, signature: str, profile: Profile) -> Library | None:
    """The units of a routine: of all tiles that fit a core those with which shapes regret the others least.

    `profile` is what stationary weights leave of it. None where the routine means nothing at this size, or no tile
    fits a core.
    """
    try:
        facts = graph_facts(sized.graph)
        others = [graph_facts(graph) for dims in corners(sized.ranges) if (graph := _at(sized, dims)) is not None]
        chooser = RoutineChooser(facts, profile, others, sized.in_place)
        routine = chooser.whole(tuple(range(len(facts.ops))))
        return None if routine is None else _library(chooser, facts, routine, sized, signature, profile)
    except TesseraError:
        if sized.is_class:
            return None
        raise


def _library(
    chooser: RoutineChooser, facts: GraphFacts, routine: Routine, sized: Sized, signature: str, profile: Profile
) -> Library:
    geometry = RoutineGeometry(facts, routine.ops)
    fitting = {
        tile: found
        for tile in chooser.tiles(routine)
        if (found := chooser.buffers(routine.ops, geometry, tile)) is not None
    }
    candidates, model = _units(geometry, routine, tuple(fitting), signature), chooser.model(geometry)
    best, loaders = chooser.best_tile(routine), model.loaders
    summed = SummedDims(sized.ranges, lambda name, extent: _lower(sized, name, extent))
    cost, names = summed.costs(_cost(model, routine, tuple(fitting), best, profile), model, best, chooser.model)
    chosen: Sequence[int] = range(len(candidates))
    if len(candidates) > MAX_UNITS:
        whole = {axis: extent for axis, extent in enumerate(cost.maxima) if axis not in routine.tiled}
        wanted = _wanted(sized, routine)
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


def _units(geometry: RoutineGeometry, routine: Routine, tiles: Sequence[tuple[int, ...]], signature: str) -> UnitSet:
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


def _at(sized: Sized, dims: Mapping[str, int]) -> Graph | None:
    """The routine at some extents; None where it means nothing there."""
    try:
        return graph_at(sized.graph, dims, no_elements)
    except RequestError:
        return None


def _lower(sized: Sized, name: str, extent: int) -> GraphFacts:
    """The facts of the routine with one dimension lower than its maximum; raises RequestError where it is none."""
    highs = {name: one.high for name, one in sized.ranges.items()}
    return graph_facts(graph_at(sized.graph, {**highs, name: extent}, no_elements))


def _wanted(sized: Sized, routine: Routine) -> Counter[tuple[int, ...]]:
    """How often sampled dimensions give the tiled axes of the result each shape."""
    tensor = sized.graph.tensors[sized.graph.outputs[0]]
    shapes = (shape_at(tensor, dims) for dims in sampled_dims(sized.ranges))
    found = (tuple(shape[axis] for axis in routine.tiled) for shape in shapes)
    return Counter(shape for shape in found if min(shape, default=1) > 0)


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
