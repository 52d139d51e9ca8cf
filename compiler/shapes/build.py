"""From a graph at its maxima to a model for ranges: routines, tiles, buffers and costs (SHAPE-1, SHAPE-9)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from compiler.ir.graph import Graph
from compiler.ops.facts import graph_facts
from compiler.profile.load import profile_json
from compiler.profile.schema import Profile
from compiler.shapes.buffers import unit_buffers
from compiler.shapes.choose import RoutineChooser
from compiler.shapes.cost import CallCost, OperandTraffic
from compiler.shapes.extents import Range
from compiler.shapes.instance import refuse_what_is_at_maxima
from compiler.shapes.unit_library import Library
from compiler.shapes.model import Part, ShapeModel
from compiler.shapes.modelled import CallModel
from compiler.shapes.routine import Routine, RoutineGeometry
from compiler.shapes.units import UnitSet

# Units whose extent along an axis is at most this accept any length there; longer ones a tenth less (SHAPE-4).
_SMALL = 64
_TAIL = 10


def build_model(
    graph: Graph,
    profile: Profile,
    ranges: Mapping[str, Range],
    parts: Sequence[tuple[bool, tuple[int, ...]]],
    model_name: str,
    model_digest: str,
) -> ShapeModel:
    """Choose routines and units for a graph at the maxima of its dimensions.

    Raises ModelError for what is known at the maxima only, LimitError where an op has no tile that fits a core.
    """
    refuse_what_is_at_maxima(graph)
    facts = graph_facts(graph)
    chooser = RoutineChooser(facts, profile)
    libraries: list[Library] = []
    made: list[Part] = []
    for is_host, ops in parts:
        numbers = []
        for routine in () if is_host else chooser.routines(ops):
            numbers.append(len(libraries))
            geometry = RoutineGeometry(facts, routine.ops)
            libraries.append(_library(geometry, routine, chooser.tiles(routine), chooser.best_tile(routine), profile))
        made.append(Part(is_host=is_host, ops=tuple(ops), routines=tuple(numbers)))
    return ShapeModel(
        graph=graph,
        profile=bytes(profile_json(profile)),
        ranges=ranges,
        parts=tuple(made),
        libraries=tuple(libraries),
        model_name=model_name,
        model_digest=model_digest,
    )


def _library(
    geometry: RoutineGeometry,
    routine: Routine,
    tiles: Sequence[tuple[int, ...]],
    best: tuple[int, ...],
    profile: Profile,
) -> Library:
    fitting = [(tile, found) for tile in tiles if (found := unit_buffers(geometry, tile, profile)) is not None]
    signature = signature_of(geometry, routine)
    model = CallModel(geometry, profile)
    rank = len(geometry.shape)
    maxima = [
        max(tile[axis] for tile, _ in fitting) if axis in routine.tiled else geometry.shape[axis]
        for axis in range(rank)
    ]
    cost = CallCost.tabulate(
        call_cycles=0.0,
        variable_cycles=0.0,
        compute_cycles=lambda lengths: model.compute_cycles(lengths),
        operands=[
            OperandTraffic(
                axes=tuple(range(rank)) if name == geometry.result else geometry.follows(name),
                start_cycles=model.startup_cycles,
                cycles=lambda lengths, name=name: model.move_cycles(name, lengths),  # type: ignore[misc]
            )
            for name in model.moved
        ],
        maxima=maxima,
        reference=best,
    )
    extents = [[tile[axis] for axis in routine.tiled] or [1] for tile, _ in fitting]
    lows = [[0 if length <= _SMALL else length - length // _TAIL for length in row] for row in extents]
    return Library(
        routine=routine,
        units=UnitSet.of(
            signature=signature,
            dtype=geometry.facts.graph.tensors[geometry.result].dtype,
            ids=tuple(_identifier(signature, tile, profile) for tile, _ in fitting),
            extents=extents,
            lows=lows,
            allows_overlap=False,
        ),
        tiles=tuple(tile for tile, _ in fitting),
        buffers=tuple(found for _, found in fitting),
        cost=cost,
    )


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


def _identifier(signature: str, tile: Sequence[int], profile: Profile) -> str:
    """The name of a unit: its signature and its tile."""
    del profile
    return f"{signature[:16]}-{'x'.join(map(str, tile))}"
