"""Extents that are computed by floats, as by scales, agree with float32 arithmetic at all extents (SHAPE-9)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import ModelError
from compiler.frontend.varying_scales import Room
from compiler.ir.symbol import Dim, expression_of
from compiler.ir.varying_floats import VaryingFloat, calculated, ratio_of, rounded, varying_float
from tests.compiler.shapes.dynamic import Compiled, Ranges
from tests.models import Model, import_graph

FLOAT = np.dtype(np.float32)
RANGES = {"h": (6, 13), "w": (8, 15)}


def extents(model: Model, x: str, first: int, end: int) -> str:
    return model.node("Slice", [model.node("Shape", [x]), model.ints(first), model.ints(end), model.ints(0)])


def floats(model: Model, *values: float) -> str:
    return model.constant(np.array(values, np.float32))


def sized(rounding: str | None, scales: tuple[float, float], *, op: str = "Mul", **attributes: str) -> Model:
    """Sizes put together of extents as they are and of scaled ones."""
    model = Model()
    x = model.input([1, 2, "h", "w"], "x")
    scaled = model.node(op, [model.node("Cast", [extents(model, x, 2, 4)], to=1), floats(model, *scales)])
    scaled = model.node(rounding, [scaled]) if rounding else scaled
    sizes = model.node("Concat", [extents(model, x, 0, 2), model.node("Cast", [scaled], to=7)], axis=0)
    model.output(model.node("Resize", [x, "", "", sizes], **attributes))
    return model


def scaled_back(scale: float, *, opset: int = 17, kind: str = "Resize") -> Model:
    """Scales that are the quotients of rounded extents by those before."""
    model = Model(opset=opset)
    x = model.input([1, 2, "h", "w"], "x")
    own = model.node("Cast", [extents(model, x, 2, 4)], to=1)
    wanted = model.node("Floor", [model.node("Mul", [own, floats(model, scale, scale)])])
    scales = model.node("Concat", [floats(model, 1, 1), model.node("Div", [wanted, own])], axis=0)
    inputs = [x, "", scales] if opset > 10 else [x, scales]
    model.output(model.node(kind, inputs, mode="nearest"))
    return model


def cropped() -> Model:
    """The middle of an image, of seven eighths."""
    model = Model()
    x = model.input([1, 2, "h", "w"], "x")
    own = model.node("Cast", [extents(model, x, 2, 4)], to=1)
    kept = model.node("Floor", [model.node("Mul", [own, floats(model, 0.875, 0.875)])])
    before = model.node("Floor", [model.node("Div", [model.node("Sub", [own, kept]), floats(model, 2, 2)])])
    start = model.node("Cast", [before], to=7)
    end = model.node("Add", [start, model.node("Cast", [kept], to=7)])
    model.output(model.relu(model.node("Slice", [x, start, end, model.ints(2, 3)])))
    return model


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: sized("Floor", (0.5, 1 / 3)), ["h // 2", "w // 3"]),
        (lambda: sized(None, (0.7, 2.25), mode="linear"), ["(7*h) // 10", "w // 4 + 2*w"]),
        (lambda: sized("Ceil", (0.25, 1.5)), ["-((-h) // 4)", "-((-w) // 2) + w"]),
        (
            lambda: sized("Floor", (3, 7), op="Div", mode="linear", coordinate_transformation_mode="align_corners"),
            ["h // 3", "w // 7"],
        ),
        (lambda: scaled_back(0.5), ["h // 2", "w // 2"]),
        (lambda: scaled_back(0.5, opset=10), ["h // 2", "w // 2"]),
        (cropped, ["(7*h) // 8", "(7*w) // 8"]),
    ],
)
def test_extents_of_scales_are_expressions(build: Callable[[], Model], expected: list[str]) -> None:
    """Values agree with ONNX Runtime at both ends and in between."""
    compiled = Compiled.of(build(), RANGES)
    assert not compiled.has_host
    graph = compiled.model.graph
    found = [_plain(str(one)) for _, one in graph.tensors[graph.outputs[0]].symbols]
    assert found == list(map(_plain, expected))
    for dims in ({"h": 6, "w": 8}, {"h": 13, "w": 15}, {"h": 11, "w": 9}):
        assert not compiled.misses(dims)


def _plain(expression: str) -> str:
    return "".join(one for one in expression if one not in "() ")


@pytest.mark.parametrize(
    ("model", "ranges"),
    [
        # 50 / 7 · 7 is less than 50 in float32, and ONNX Runtime makes 49 positions of it
        (scaled_back(1 / 3), {"h": (6, 50), "w": (8, 50)}),
        # 4.5 is rounded to the even number
        (sized("Round", (0.3, 0.7)), {"h": (6, 16), "w": (8, 15)}),
    ],
)
def test_what_rounds_otherwise_at_some_extents_is_refused(model: Model, ranges: Ranges) -> None:
    with pytest.raises(ModelError, match="known at its maximum only"):
        Compiled.of(model, ranges)
    graph = import_graph(model.data(), {name: high for name, (_, high) in ranges.items()})
    assert not graph.host  # a plan for the maxima there is


def resized(*, is_by_size: bool, **attributes: str) -> Model:
    """As many rows as another input has elements."""
    model = Model()
    x, y = model.input([1, 1, "h", 3], "x"), model.input(["k"], "y")
    wanted, own = model.node("Shape", [y]), extents(model, x, 2, 3)
    if is_by_size:
        given = ["", model.node("Concat", [model.ints(1, 1), wanted, model.ints(3)], axis=0)]
    else:
        scale = model.node("Div", [model.node("Cast", [wanted], to=1), model.node("Cast", [own], to=1)])
        given = [model.node("Concat", [floats(model, 1, 1), scale, floats(model, 1)], axis=0)]
    model.output(model.node("Resize", [x, "", *given], mode="nearest", **attributes))
    model.output(model.relu(y))
    return model


@pytest.mark.parametrize("is_by_size", [True, False])
@pytest.mark.parametrize(
    ("transformation", "rounding", "ranges", "pair"),
    [
        # 1 / (2 / 14) is 6.9999995 in float32, and ONNX Runtime reads row 6 of 14
        ("asymmetric", "floor", {"h": (12, 16), "k": (2, 4)}, "14 to 2"),
        ("half_pixel", "floor", {"h": (6, 8), "k": (1, 2)}, "7 to 1"),
        ("half_pixel", "round_prefer_floor", {"h": (34, 38), "k": (20, 22)}, "36 to 21"),
    ],
)
def test_a_nearest_resize_that_reads_other_rows_in_float32_at_some_extents_is_refused(
    is_by_size: bool, transformation: str, rounding: str, ranges: Ranges, pair: str
) -> None:
    model = resized(is_by_size=is_by_size, coordinate_transformation_mode=transformation, nearest_mode=rounding)
    with pytest.raises(ModelError, match="known at its maximum only") as caught:
        Compiled.of(model, ranges)
    assert caught.value.actual == f"from {pair}, float32 arithmetic finds other positions"


def test_a_nearest_resize_is_compiled_where_float32_reads_the_same_rows() -> None:
    model = resized(is_by_size=True, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    compiled = Compiled.of(model, {"h": (12, 13), "k": (2, 4)})
    assert not compiled.has_host
    assert not compiled.misses({"h": 12, "k": 4})


def repeated(count: int) -> Model:
    """A sum over and over, of 64 equal floats that vary with two extents."""
    model = Model()
    x = model.input([1, 2, "h", "w"], "x")
    own = model.node("Cast", [extents(model, x, 2, 4)], to=1)
    ends = [model.node("Slice", [own, model.ints(i), model.ints(i + 1), model.ints(0)]) for i in range(2)]
    own = model.node("Concat", [model.node("Mul", [model.node("Mul", ends), floats(model, 0.3)])] * 64, axis=0)
    for i in range(count):
        own = model.node("Add", [own, floats(model, *([0.37 + i] * 64))])
    model.output(model.node("Cast", [own], to=7))
    return model


def test_equal_floats_are_held_once() -> None:
    tracemalloc.start()
    import_graph(repeated(3).data(), {"h": 300, "w": 300})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20  # 64 elements of each of 3 sums would be 69 MB


def test_floats_that_all_values_hold_are_bounded() -> None:
    a, b, c = (varying_float(Dim.symbol(name, 6), FLOAT) for name in "abc")
    room = Room(floats=14)
    assert room.holds(a)
    assert room.holds(a)
    assert room.holds(Dim.symbol("d", 100))
    assert room.holds(b)
    assert not room.holds(c)
    assert not room.floats
    assert room.holds(a)


def cast_beside(value: float) -> Model:
    """Sizes from a list of which another element is no extent."""
    model = Model()
    x = model.input([1, 2, "h", "w"], "x")
    half = model.node("Mul", [model.node("Cast", [extents(model, x, 2, 4)], to=1), floats(model, 0.5, 0.5)])
    every = model.node("Cast", [model.node("Concat", [half, floats(model, value)], axis=0)], to=7)
    kept = model.node("Slice", [every, model.ints(0), model.ints(2), model.ints(0)])
    sizes = model.node("Concat", [extents(model, x, 0, 2), kept], axis=0)
    model.output(model.node("Resize", [x, "", "", sizes], mode="nearest"))
    return model


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 9.3e18, -3e38])
def test_a_list_with_what_is_no_integer_is_unknown(value: float) -> None:
    assert not import_graph(cast_beside(value).data(), {"h": 13, "w": 15}).host
    with pytest.raises(ModelError, match="known at its maximum only"):
        Compiled.of(cast_beside(value), RANGES)


def test_scales_that_vary_are_told_by_their_ends() -> None:
    model = Model()
    x = model.input([1, 2, "h", "w"], "x")
    own = model.node("Cast", [extents(model, x, 2, 4)], to=1)
    scales = model.node("Div", [model.node("Sub", [own, floats(model, 20, 20)]), own])
    given = model.node("Concat", [floats(model, 1, 1), scales], axis=0)
    model.output(model.node("Resize", [x, "", given], mode="nearest"))
    with pytest.raises(ModelError, match="positive and finite") as caught:
        Compiled.of(model, RANGES)
    assert caught.value.actual == "1.0, 1.0, -2.33333 to -0.538462, -1.5 to -0.333333"


@given(
    st.floats(0.0078125, 8, width=32),
    st.sampled_from(["Floor", "Ceil", "Round", "Cast"]),
    st.integers(1, 300),
    st.booleans(),
)
def test_rounded_floats_agree_with_float32_at_all_extents_or_are_none(
    scale: float, kind: str, high: int, is_quotient: bool
) -> None:
    extent, factor = varying_float(Dim.symbol("h", high), FLOAT), varying_float(scale, FLOAT)
    assert extent is not None
    assert factor is not None
    number = calculated("Div" if is_quotient else "Mul", extent, factor)
    assert number is not None
    found = rounded(kind, number)
    every = np.arange(1, high + 1).astype(np.float32)
    floats = every / np.float32(scale) if is_quotient else every * np.float32(scale)
    assert np.array_equal(number.values, floats)
    if found is not None:
        wanted = {"Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Cast": np.trunc}[kind](floats)
        expression = expression_of(found)
        values = [found if expression is None else expression.value({"h": h}) for h in range(1, high + 1)]
        assert values == wanted.tolist()


def test_a_float_is_unknown_where_its_terms_are_large() -> None:
    """Each squaring would double their digits."""
    extent, tenth = varying_float(Dim.symbol("h", 13), FLOAT), varying_float(0.1, FLOAT)
    assert extent is not None
    assert tenth is not None
    number = calculated("Mul", extent, tenth)
    for _ in range(4):
        assert number is not None
        number = calculated("Mul", number, number)
    assert number is not None
    assert number.denominator == 10**16
    assert calculated("Mul", number, number) is None


@given(st.integers(1, 60), st.integers(1, 60))
def test_scales_are_sizes_where_floats_say_the_same_extent(source: int, target: int) -> None:
    one, other = Dim.symbol("h", source), Dim.symbol("k", target)
    left, right = varying_float(other, FLOAT), varying_float(one, FLOAT)
    assert left is not None
    assert right is not None
    scale = calculated("Div", left, right)
    assert isinstance(scale, VaryingFloat)
    own, wanted = np.meshgrid(np.arange(1, source + 1), np.arange(1, target + 1), indexing="ij")
    scaled = np.float32(own) * (np.float32(wanted) / np.float32(own))
    assert (ratio_of(scale, one) is not None) == bool((scaled.astype(np.int64) == wanted).all())
