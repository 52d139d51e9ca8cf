"""Routines' boxes and units' buffers: what a call needs fits its unit, at any dimensions (SHAPE-1, SHAPE-3)."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ops.op_facts import graph_facts
from compiler.profile import builtin_profile
from compiler.program.program import Level
from compiler.program.residents import weight_level
from compiler.shapes import routine
from compiler.shapes.canonical_routine import canonical_routine
from compiler.shapes.instance import graph_at
from compiler.shapes.routine import MAX_TILED, RoutineGeometry, axis_choices
from compiler.shapes.unit_library import UnitBuffers
from tests.compiler.shapes import varying_layers, varying_shapes  # noqa: F401 - they note their models
from tests.compiler.shapes.dynamic import Compiled, Ranges, misses
from tests.compiler.shapes.test_model import NETWORKS
from tests.compiler.shapes.varying_models import SERVED
from tests.models import Model

# Models whose boxes are not those of their results, and larger ranges than they are served by elsewhere.
RANGES: dict[str, Ranges] = {
    **{name: ranges for name, (_, ranges) in NETWORKS.items()},
    "reshape_merge": {"s": (1, 8), "b": (1, 3)},
    "resize_to_size": {"h": (2, 19), "w": (1, 17)},
    "resize_half": {"h": (2, 19), "w": (1, 17)},
    "attention": {"s": (1, 18), "b": (1, 3)},
    "conv_t": {"h": (1, 17), "w": (1, 16)},
    "unet": {"h": (2, 18), "w": (2, 18)},
    "d2s": {"h": (2, 16), "w": (2, 16)},
}


@cache
def compiled(name: str) -> Compiled:
    """A model of the list, compiled once."""
    model = Model()
    if name in NETWORKS:
        model = NETWORKS[name][0]()
    else:
        SERVED[name][0](model)
    return Compiled.of(model, RANGES[name])


@pytest.mark.matrix(first=3, rest=3)
@settings(max_examples=25)
@given(st.data())
@pytest.mark.parametrize("name", sorted(RANGES))
def test_every_box_of_at_most_the_tile_has_room_at_any_dimensions(name: str, data: st.DataObject) -> None:
    of = compiled(name)
    dims = {key: data.draw(st.integers(low, high)) for key, (low, high) in RANGES[name].items()}
    facts = graph_facts(graph_at(of.model.graph, dims, of.values))
    for library in of.model.libraries:
        geometry = RoutineGeometry(facts, library.routine.ops)
        number = data.draw(st.integers(0, len(library.tiles) - 1))
        tile, buffers = library.tiles[number], library.buffers[number]
        lengths, starts = list(geometry.shape), [0] * len(geometry.shape)
        for axis in library.routine.tiled:
            lengths[axis] = data.draw(st.integers(1, min(tile[axis], geometry.shape[axis])))
            starts[axis] = data.draw(st.integers(0, geometry.shape[axis] - lengths[axis]))
        boxes = geometry.boxes(np.array([starts], dtype=np.int64), np.array([lengths], dtype=np.int64))
        for tensor, (begin, end) in boxes.items():
            if tensor in buffers.placed:
                needed = (end - begin)[0].tolist()
                room = buffers.placed[tensor].extents
                assert all(map(int.__le__, needed, room)), (tensor, dims, tile, starts, lengths, needed, room)


def spans(buffers: UnitBuffers, level: Level) -> list[tuple[int, int, str]]:
    """Where the buffers of a level lie: first byte, end, tensor."""
    return sorted(
        (address, address + placed.size_bytes, name)
        for name, placed in buffers.placed.items()
        if placed.level == level
        for address in placed.addresses
    )


@pytest.mark.parametrize("name", sorted(RANGES))
def test_buffers_lie_in_their_memories_and_apart(name: str) -> None:
    """What is read, written and kept at once does not overlap; what lies between ops may, by its lifetime."""
    profile = builtin_profile("edge4")
    of = compiled(name)
    for library in of.model.libraries:
        between = {of.model.graph.ops[op].output for op in library.routine.ops[:-1]}
        for buffers in library.buffers:
            assert buffers.activation_bytes <= profile.nram.capacity_bytes
            assert buffers.weight_bytes <= profile.weight_memory_bytes
            for level in {Level.NRAM, weight_level(profile)}:
                kept = [span for span in spans(buffers, level) if span[2] not in between]
                assert all(a[1] <= b[0] for a, b in pairwise(kept))
                inner = [span for span in spans(buffers, level) if span[2] in between]
                assert all(a[1] <= b[0] or a[0] >= b[1] for a in inner for b in kept)


@pytest.mark.parametrize("name", sorted(RANGES))
def test_routines_are_whole_and_make_one_result(name: str) -> None:
    of = compiled(name)
    facts = graph_facts(of.model.graph)
    run = [op for library in of.model.libraries for op in library.routine.ops]
    assert sorted(run) == list(range(len(of.model.graph.ops)))
    for library in of.model.libraries:
        for op in library.routine.ops[:-1]:
            inner = facts.graph.ops[op].output
            assert set(facts.graph.consumers[inner]) <= set(library.routine.ops)
            assert inner not in (*facts.graph.outputs, *facts.graph.output_tensors)
        assert len(library.routine.tiled) <= MAX_TILED
        sized = canonical_routine(of.model.graph, library.routine.ops, of.model.ranges).size_classes
        choices = (axis_choices(RoutineGeometry(graph_facts(one.graph), range(len(one.graph.ops)))) for one in sized)
        assert any(library.routine.tiled in found for found in choices)


def test_a_convolution_needs_its_rows_and_the_ones_around() -> None:
    model = Model()
    x = model.input([1, 3, 10, 8])
    model.output(model.relu(model.conv(x, 3, 4, 3, stride=1)))
    geometry = RoutineGeometry(model.facts(), (0, 1))
    boxes = geometry.boxes(np.array([[0, 0, 2, 0]]), np.array([[1, 4, 3, 8]]))
    begin, end = boxes[x]
    # rows 2 to 4 of the result need rows 1 to 5; at the border there is nothing to the left
    assert (begin.tolist(), end.tolist()) == ([[0, 0, 1, 0]], [[1, 3, 6, 8]])
    assert geometry.extents((1, 4, 3, 4))[x] == (1, 3, 5, 6)
    assert geometry.follows(x) == (2, 3)
    assert geometry.inputs == (x,)


@pytest.mark.parametrize("name", ["residual", "resize_to_size", "reshape_merge"])
def test_what_tiles_need_does_not_depend_on_how_many_are_looked_at_together(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = compiled(name)
    facts = graph_facts(of.model.graph)
    together = [RoutineGeometry(facts, library.routine.ops) for library in of.model.libraries]
    wanted = [
        geometry.extents(tile)
        for geometry, library in zip(together, of.model.libraries, strict=True)
        for tile in library.tiles
    ]
    monkeypatch.setattr(routine, "_AT_ONCE", 3)
    apart = [RoutineGeometry(facts, library.routine.ops) for library in of.model.libraries]
    assert wanted == [
        geometry.extents(tile)
        for geometry, library in zip(apart, of.model.libraries, strict=True)
        for tile in library.tiles
    ]


def test_an_axis_of_which_the_result_needs_one_element_wants_room_for_that_one() -> None:
    """A Slice of the second of three: at the largest extent, six, it is the second and the fourth."""
    model = Model()
    x = model.input([2, "width"], "x")
    model.output(model.node("Slice", [x, model.ints(1), model.ints(-1), model.ints(1), model.ints(2)]))
    facts = graph_facts(model.graph({"width": 3}))
    assert RoutineGeometry(facts, (0,)).extents((1, 1))["x"] == (1, 1)
    assert misses(model, {"width": (3, 6)}) == []
