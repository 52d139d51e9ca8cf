"""Default ranges of free dimensions: from the model's own limits, finite, the same every time, and said (SHAPE-9)."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import pytest
from onnx import TensorProto

from compiler import default_ranges
from compiler.compile import compile_shapes, plan_model
from compiler.default_ranges import MOST, MOST_BYTES, MOST_OF_BATCH, with_default_ranges
from compiler.errors import CompilationCancelledError, ModelError
from compiler.frontend.source import ModelSource
from compiler.options import DimRange, Options, parse_options
from compiler.profile import builtin_profile
from compiler.report.explain import explain
from tests.models import Model

DIMS = {"n": 1, "h": 16, "w": 16}


def ranges(model: Model) -> dict[str, int | tuple[int, int, int]]:
    found = with_default_ranges(ModelSource.from_bytes(model.data()), Options()).dims
    return {name: one if isinstance(one, int) else (one.min, one.max, one.step) for name, one in found.items()}


def convolution(kernel: int = 3, *, pad: int = 1, channels: int = 4) -> Model:
    model = Model()
    x = model.input(["n", 3, "h", "w"], "x")
    model.output(model.relu(model.conv(x, 3, channels, kernel, pad=pad)))
    return model


def test_the_first_axis_goes_up_to_8_and_others_up_to_256() -> None:
    assert (MOST_OF_BATCH, MOST) == (8, 256)
    assert ranges(convolution()) == {"n": (1, 8, 1), "h": (1, 256, 1), "w": (1, 256, 1)}


def test_a_window_says_the_least_extent() -> None:
    """A kernel of 5 without padding needs five rows."""
    found = ranges(convolution(5, pad=0))
    assert (found["h"], found["w"]) == ((5, 256, 1), (5, 256, 1))


def test_a_compilation_takes_the_least_extents() -> None:
    """Of one column the smaller half has none, and a window larger than its map is another one."""
    model = Model()
    x = model.input([4, "t"], "x")
    least, most = model.nodes_out("Split", [x], ["least", "most"], axis=1, num_outputs=2)
    model.output(model.relu(least))
    model.output(model.relu(most))
    model.opset = 18
    found = ranges(model)["t"]
    assert isinstance(found, tuple)
    assert found[0] >= 2
    pooled = Model()
    y = pooled.input([1, 3, "h", "w"], "x")
    pooled.output(pooled.node("MaxPool", [y], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1))
    assert ranges(pooled) == {"h": (3, 256, 1), "w": (3, 256, 1)}
    assert compile_shapes(pooled.data(), builtin_profile("edge4")).has_default_ranges


def test_a_dimension_that_may_not_vary_leaves_the_others_their_ranges() -> None:
    """Rows and columns that are halved and doubled again are the same where they are even, which import cannot tell."""
    model = Model()
    x = model.input(["n", 3, "h", "w"], "x")
    half = model.conv(x, 3, 4, stride=2)
    back = model.node("ConvTranspose", [half, model.weight(4, 3, 2, 2)], strides=[2, 2])
    model.output(model.node("Add", [back, x]))
    assert ranges(model) == {"n": (1, 8, 1), "h": 64, "w": 64}


def test_weights_of_a_classifier_fix_the_image() -> None:
    """Of all extents only 32 gives as many features as the last matrix takes."""
    model = Model()
    x = model.input(["n", 3, "h", "w"], "x")
    flat = model.node("Flatten", [model.relu(model.conv(x, 3, 2))], axis=1)
    model.output(model.node("MatMul", [flat, model.weight(2 * 32 * 32, 5)]))
    assert ranges(model) == {"n": (1, 8, 1), "h": 32, "w": 32}


def test_groups_of_rows_make_steps() -> None:
    model = Model()
    x = model.input([1, "t", 6], "x")
    model.output(model.relu(model.node("Reshape", [x, model.ints(1, -1, 4, 6)])))
    assert ranges(model) == {"t": (4, 256, 4)}


def test_a_table_of_positions_says_the_largest_extent() -> None:
    model = Model()
    x = model.input([1, "t", 6], "x")
    length = model.node("Gather", [model.node("Shape", [x]), model.ints(1)], axis=0)
    table = model.node("Slice", [model.weight(100, 6), model.ints(0), length, model.ints(0)])
    model.output(model.node("Add", [x, table]))
    found = ranges(model)["t"]
    assert isinstance(found, tuple)
    assert found[0] == 1
    assert 64 <= found[1] <= 100


def test_text_with_a_dimension_has_a_range() -> None:
    """Its bytes are not known: those of the other tensors count."""
    model = Model()
    model.output(model.node("Identity", [model.input(["n", 1], "words", TensorProto.STRING)]), TensorProto.STRING)
    model.output(model.relu(model.input(["n", 4], "x")))
    assert ranges(model) == {"n": (1, 8, 1)}


def test_tensors_at_the_maxima_fit_in_64_mib() -> None:
    model = convolution(channels=64)
    found = ranges(model)
    most = {name: one if isinstance(one, int) else one[1] for name, one in found.items()}
    assert 2 * 64 * 4 * most["n"] * most["h"] * most["w"] <= MOST_BYTES
    assert most["h"] >= 64


@pytest.mark.parametrize(("imports", "found"), [(1, {"n": 1, "h": 64, "w": 64}), (40, {"n": (1, 8, 1)})])
def test_the_search_ends_after_imports_that_depend_on_the_size_of_the_model(
    monkeypatch: pytest.MonkeyPatch, imports: int, found: Mapping[str, object]
) -> None:
    """What was not tried counts as refused: the model keeps the extents that the search began with."""
    model = convolution()
    nodes = len(onnx.load_from_string(model.data()).graph.node)
    monkeypatch.setattr(default_ranges, "_MOST_NODES", imports * nodes + 1)
    assert ranges(model).items() >= found.items()


class Watching:
    """An observer that asks to stop after some questions."""

    def __init__(self, questions: int) -> None:
        self.left = questions
        self.phases: list[str] = []

    def phase(self, name: str, step: int, total: int) -> None:
        """Remember it."""
        assert 1 <= step <= total
        self.phases.append(name)

    def cancelled(self) -> bool:
        """True from the last question on."""
        self.left -= 1
        return self.left <= 0


def test_the_search_is_a_phase_that_can_be_cancelled() -> None:
    """Nothing was said of it, and a cancelled compilation went on until it had ended."""
    watching = Watching(5)
    with pytest.raises(CompilationCancelledError):
        plan_model(convolution().data(), builtin_profile("edge4"), observer=watching)
    assert (watching.phases, watching.left) == (["default-ranges"], 0)
    static = Watching(1)
    with pytest.raises(CompilationCancelledError):
        plan_model(convolution().data(), builtin_profile("edge4"), parse_options({"dims": DIMS}), observer=static)
    assert static.phases == []


def test_given_dimensions_are_left_as_they_are_and_a_static_model_has_none() -> None:
    source = ModelSource.from_bytes(convolution().data())
    options = parse_options({"dims": {"h": 7}})
    assert with_default_ranges(source, options) is options
    model = Model()
    model.output(model.relu(model.input([2, 3], "x")))
    static = Options()
    assert with_default_ranges(ModelSource.from_bytes(model.data()), static) is static


def test_a_model_that_is_none_at_the_extents_that_are_tried_names_its_dimensions() -> None:
    """Only 37 rows fit the matrix."""
    model = Model()
    x = model.input([2, "rows"], "x")
    model.output(model.node("MatMul", [x, model.weight(37, 3)]))
    assert ranges(model) == {}
    with pytest.raises(ModelError) as caught:
        plan_model(model.data(), builtin_profile("edge4"))
    assert caught.value.code == "dynamic_dim"


def said(dims: Mapping[str, object]) -> tuple[dict[str, tuple[int, int, int, bool]], str]:
    compiled = plan_model(convolution().data(), builtin_profile("edge4"), parse_options({"dims": dims}))
    found = {name: (one.min, one.max, one.step, one.is_default) for name, one in compiled.plan.ranges.items()}
    return found, explain(compiled.plan).splitlines()[0]


def test_the_plan_and_its_explanation_say_which_ranges_are_defaults() -> None:
    found, title = said({})
    assert found == {"h": (1, 256, 1, True), "n": (1, 8, 1, True), "w": (1, 256, 1, True)}
    assert "planned at h = 256, n = 8, w = 256 (default ranges: h 1 to 256, n 1 to 8, w 1 to 256)" in title
    found, title = said({"n": 1, "h": {"min": 4, "max": 9}, "w": 8})
    assert found == {"h": (4, 9, 1, False)}
    assert "default" not in title


def test_units_know_that_their_ranges_are_defaults_and_the_same_come_each_time() -> None:
    data, profile = convolution(channels=2).data(), builtin_profile("edge4")
    model, again = compile_shapes(data, profile), compile_shapes(data, profile)
    assert model.has_default_ranges
    assert {name: str(one) for name, one in model.ranges.items()} == {"h": "1 to 256", "n": "1 to 8", "w": "1 to 256"}
    assert model.ranges == again.ranges
    given = Options(dims={"n": 1, "h": DimRange(min=1, max=9), "w": 8})
    assert not compile_shapes(data, profile, given).has_default_ranges
