"""ArgMax, ArgMin and CumSum along more than a core holds: of parts of the axis, with the same values (TILE-2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import TensorProto

from compiler.compile import Compilation, compile_model
from compiler.fusion.candidate import SegmentCompilers
from compiler.ir.graph import Graph
from compiler.ir.verify import verify_graph
from compiler.options import Options
from compiler.partition.positions import SplitPositions
from compiler.profile import builtin_profile
from compiler.simulator.run import run_executable
from tests.compiler.planning import BY_RULES
from tests.compiler.shapes.dynamic import misses
from tests.models import Model

# Of 4 bytes more than a core of edge4 has; the second is prime, and the third twice a prime.
EXTENTS = (100_000, 100_003, 2 * 100_003)


def split(graph: Graph) -> Graph:
    """The graph after the pass, verified."""
    profile = builtin_profile("edge4")
    found = SplitPositions(profile=profile, candidates=SegmentCompilers(profile, Options()).of).run(graph)
    verify_graph(found)
    return found


def extreme(
    kind: str, shape: Sequence[int | str], axis: int, *, keep: int = 1, last: int = 0, ties: bool = False
) -> Model:
    """An ArgMax or ArgMin of an input; with `ties` of the input's signs, so that many positions are equal."""
    model = Model(opset=13)
    x = model.input(shape, "x")
    x = model.node("Sign", [x]) if ties else x
    found = model.node(kind, [x], name="long", axis=axis, keepdims=keep, select_last_index=last)
    model.output(found, TensorProto.INT64)
    return model


def running(
    shape: Sequence[int | str], axis: int, dtype: int = TensorProto.FLOAT, *, exclusive: int = 0, reverse: int = 0
) -> Model:
    """A CumSum of an input."""
    model = Model(opset=14)
    inputs = [model.input(shape, "x", dtype), model.constant(axis, dtype="int64")]
    node = model.node("CumSum", inputs, exclusive=exclusive, reverse=reverse)
    model.output(node, dtype)
    return model


def compiled(model: Model, options: Options = BY_RULES) -> Compilation:
    """A compilation, whose program was run and compared with ONNX Runtime."""
    found = compile_model(model.data(), builtin_profile("edge4"), options)
    assert found.report.values_checked
    assert all(output.holds for output in found.report.values.outputs)
    assert not [node for segment in found.plan.segments for node in segment.host]
    return found


@pytest.mark.matrix(first=1, rest=3)
@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
def test_of_equal_extremes_the_first_or_the_last_is_found(kind: str, last: int, extent: int) -> None:
    model = extreme(kind, [1, extent], 1, last=last, ties=True)
    assert kind in [op.kind for op in split(model.graph()).ops]
    compiled(model)


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("keep", [0, 1])
def test_the_axis_may_be_any_and_may_go(keep: int) -> None:
    compiled(extreme("ArgMax", [2, 100_003, 3], 1, keep=keep))
    compiled(extreme("ArgMin", [100_000, 2], 0, keep=keep))


def test_data_is_read_twice() -> None:
    totals = compiled(extreme("ArgMax", [1, 1_000_000], 1), Options()).plan.totals
    assert totals.dram_bytes <= 2.01 * totals.dram_bytes_floor


@pytest.mark.matrix(first=1, rest=2)
@pytest.mark.parametrize("places", [[0], [5], [100_002], [5, 90_000]])
def test_of_what_is_no_number_the_position_is_found_as_in_an_axis_that_fits(places: list[int]) -> None:
    """ONNX says nothing of it; the op's own definition takes the first."""
    executable = compiled(extreme("ArgMax", [1, 100_003], 1)).executable
    assert executable is not None
    data = np.ones((1, 100_003), np.float32)
    data[0, 9000] = 7
    data[0, places] = np.nan
    (found,) = run_executable(executable, {"x": data}).values()
    assert int(np.asarray(found).item()) == places[0]


@pytest.mark.matrix(first=1, rest=2)
@pytest.mark.parametrize(
    ("exclusive", "reverse", "extent"), [(0, 0, 100_000), (1, 0, 100_000), (0, 1, 100_000), (1, 1, 100_003)]
)
def test_a_running_sum_goes_on_from_part_to_part(exclusive: int, reverse: int, extent: int) -> None:
    model = running([1, extent], 1, exclusive=exclusive, reverse=reverse)
    assert [op.kind for op in split(model.graph()).ops].count("CumSum") == 2
    compiled(model)


def test_an_axis_that_leaves_no_room_for_its_sums_is_not_added_up_for_each_of_them() -> None:
    """A core of edge4 holds 65,536 numbers, hardly more than the axis: summed at once it would be read many times."""
    plan = compiled(running([1, 65_521], 1), Options()).plan
    assert plan.totals.dram_bytes < 8 * 4 * 65_521


def test_running_sums_along_any_axis_and_of_whole_numbers() -> None:
    compiled(running([2, 100_000, 2], 1))
    compiled(running([100_000, 2], 0, TensorProto.INT32))


@pytest.mark.slow
def test_other_axes_may_vary() -> None:
    assert not misses(extreme("ArgMax", ["n", 70_000], 1), {"n": (1, 3)}, count=2)
    found = split(running(["n", 70_000], 1).graph({"n": 3}))
    assert [op.kind for op in found.ops].count("CumSum") == 2
    assert all(found.tensors[op.output].symbols for op in found.ops)


def test_an_axis_that_varies_is_left() -> None:
    for model in (extreme("ArgMax", [2, "n"], 1), running([2, "n"], 1)):
        graph = model.graph({"n": 100_000})
        assert split(graph) is graph


def test_what_fits_is_left_as_it_is() -> None:
    for model in (extreme("ArgMax", [8, 1_000], 1), running([8, 1_000], 1)):
        graph = model.graph()
        assert split(graph) is graph


def test_sums_that_parts_would_round_are_left() -> None:
    graph = running([1, 200_000], 1, TensorProto.FLOAT16).graph()
    assert split(graph) is graph
