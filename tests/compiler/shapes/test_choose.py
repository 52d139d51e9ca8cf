"""Which ops run together, and with which tiles (SHAPE-1, SHAPE-8)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from compiler.errors import LimitError
from compiler.ops.op_facts import graph_facts
from compiler.profile import builtin_profile
from compiler.shapes.choose import RoutineChooser
from compiler.shapes.modelled import CallModel, table_cycles
from compiler.shapes.routine import RoutineGeometry
from tests.compiler.shapes.dynamic import Compiled
from tests.compiler.shapes.test_buffers import compiled
from tests.models import Model


def test_a_convolution_takes_in_what_follows_it_alone() -> None:
    """Batch norm is in the weights; the sum and its relu are run with the second convolution, the skip is read."""
    model = Model()
    x = model.input([1, 8, 32, 32])
    first = model.relu(model.conv(x, 8, 8, 3))
    second = model.relu(model.node("Add", [model.conv(first, 8, 8, 3), first]))
    model.output(second)
    facts = graph_facts(model.graph())
    chooser = RoutineChooser(facts, builtin_profile("cluster4x4"))
    routines = [tuple(facts.ops[op].kind for op in one.ops) for one in chooser.routines(range(len(facts.ops)))]
    assert routines == [("Conv", "Relu"), ("Conv", "Add", "Relu")]


def test_what_others_read_is_not_hidden_in_a_routine() -> None:
    model = Model()
    x = model.input([1, 8, 16, 16])
    middle = model.output(model.relu(x))
    model.output(model.node("Exp", [middle]))
    facts = graph_facts(model.graph())
    chooser = RoutineChooser(facts, builtin_profile("edge4"))
    assert [one.ops for one in chooser.routines(range(2))] == [(0,), (1,)]


@pytest.mark.parametrize("name", ["residual", "encoder", "unet"])
def test_the_best_tile_is_among_the_tiles_and_none_takes_less(name: str) -> None:
    of, profile = compiled(name), builtin_profile("edge4")
    facts = graph_facts(of.model.graph)
    chooser = RoutineChooser(facts, profile)
    for library in of.model.libraries:
        routine = chooser.whole(library.routine.ops)
        assert routine is not None
        geometry = RoutineGeometry(facts, routine.ops)
        tiles, best = chooser.tiles(routine), chooser.best_tile(routine)
        assert best in tiles
        model = CallModel(geometry, profile)
        least = min(table_cycles(model, routine.tiled, tile) for tile in tiles)
        # found axis by axis: no tile that differs along several of them is much better
        assert table_cycles(model, routine.tiled, best) <= 1.25 * least


def test_an_op_of_which_no_tile_fits_is_named() -> None:
    model = Model()
    x = model.input(["rows", 400_009], dtype=TensorProto.INT32)
    # a mean of integers has no parts: their means would be cut off
    model.output(model.node("ReduceMean", [x], axes=[1], name="wide"), TensorProto.INT32)
    with pytest.raises(LimitError) as caught:
        Compiled.of(model, {"rows": (1, 8)})
    assert caught.value.code == "no_tile_fits"
    assert caught.value.node == "wide"


def test_weights_that_no_core_holds_are_divided_however_little_they_are_of_all_that_is_read() -> None:
    """576 KiB of 6.7 MB: not a tenth, so that positions of the image alone would be divided."""
    model = Model()
    x = model.input(["n", 128, 56, 56])
    model.output(model.relu(model.conv(x, 128, 128, 3, stride=2)))
    compiled = Compiled.of(model, {"n": (1, 4)}, verify="none")
    (library,) = compiled.model.libraries
    assert 1 in library.routine.tiled
    assert max(buffers.weight_bytes for buffers in library.buffers) < 2**18
    assert not compiled.misses({"n": 1})


@pytest.mark.parametrize("kind", ["Softmax", "LayerNormalization"])
def test_a_row_that_fits_once_is_held_and_its_results_are_divided(kind: str) -> None:
    """The vocabulary of a language model: 201 KB in, as much out, where a core of edge4 has 262 KB."""
    model = Model(opset=17)
    x = model.input(["n", 50_257], "x")
    model.output(model.node(kind, [x, *([model.weight(50_257)] if kind == "LayerNormalization" else [])], axis=-1))
    compiled = Compiled.of(model, {"n": (1, 4)}, verify="none")
    assert not compiled.misses({"n": 3})


def test_results_that_follow_no_input_are_divided() -> None:
    """One element becomes sixteen megabytes, by the shape of an input that nothing else reads."""
    model = Model()
    x, z = model.input([1, 1], "x"), model.input(["n", 4096], "z")
    model.output(model.node("Expand", [x, model.node("Shape", [z])]))
    compiled = Compiled.of(model, {"n": (1, 1024)})  # values are compared at n = 1 and 32
    (library,) = compiled.model.libraries
    assert library.routine.tiled == (0, 1)


def test_rows_of_a_table_that_is_the_larger_one_at_small_extents_are_not_found_by_the_routine_that_reads_them() -> None:
    """Labels of three classes: brought whole for nine samples, read one by one in DRAM for one or two."""
    model = Model()
    best = model.node("ArgMax", [model.input(["n", 3])], axis=1)
    model.output(model.node("Gather", [model.constant(np.array([5, 7, 9])), best]), TensorProto.INT64)
    compiled = Compiled.of(model, {"n": (1, 9)})
    assert not [miss for n in (1, 2, 9) for miss in compiled.misses({"n": n})]
