"""Pads that mirror or repeat more than a core holds: axis by axis, with the same values (TILE-2)."""

from __future__ import annotations

import pytest

from compiler.compile import compile_model
from compiler.fusion.candidate import SegmentCompilers
from compiler.ir.graph import Graph
from compiler.ir.verify import verify_graph
from compiler.options import Options
from compiler.partition.pads import SplitPads
from compiler.profile import builtin_profile
from tests.compiler.planning import BY_RULES
from tests.compiler.shapes.dynamic import misses
from tests.models import Model


def split(graph: Graph) -> Graph:
    """The graph after the pass, verified."""
    profile = builtin_profile("edge4")
    found = SplitPads(profile=profile, candidates=SegmentCompilers(profile, Options()).of).run(graph)
    verify_graph(found)
    return found


def padded(mode: str, shape: list[int | str], pads: list[int]) -> Model:
    """A pad called `wide`."""
    model = Model(opset=19)
    model.output(model.node("Pad", [model.input(shape), model.ints(*pads)], mode=mode, name="wide"))
    return model


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_values_are_those_of_the_reference(mode: str) -> None:
    model = padded(mode, [2, 3, 270, 280], [0, 1, 5, 0, 0, 1, 9, 17])
    found = split(model.graph())
    assert [found.tensors[op.output].shape for op in found.ops] == [
        (2, 5, 270, 280),
        (2, 5, 284, 280),
        (2, 5, 284, 297),
    ]
    assert [dict(op.attributes)["pads"] for op in found.ops] == [
        (0, 1, 0, 0, 0, 1, 0, 0),
        (0, 0, 5, 0, 0, 0, 9, 0),
        (0, 0, 0, 0, 0, 0, 0, 17),
    ]
    report = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report
    assert report.values_checked
    assert all(output.holds for output in report.values.outputs)


def test_images_of_any_size_have_units() -> None:
    model = padded("reflect", [1, 3, "h", "w"], [0, 0, 3, 3, 0, 0, 3, 3])
    found = split(model.graph({"h": 400, "w": 300}))
    first, second = found.ops
    assert [(axis, str(one)) for axis, one in found.tensors[first.output].symbols] == [(2, "h + 6"), (3, "w")]
    assert second.output == found.outputs[0]
    assert not misses(model, {"h": (20, 400), "w": (20, 300)}, count=2)


def test_an_axis_that_is_padded_at_smaller_extents_alone_keeps_its_pad() -> None:
    """Up to a multiple of 8: the largest extent is one."""
    model = Model(opset=19)
    x = model.input([1, 1, "h", 512])
    rows = model.node("Gather", [model.node("Shape", [x]), model.ints(2)])
    missing = model.node("Sub", [model.ints(8), model.node("Mod", [rows, model.ints(8)])])
    pads = [model.ints(0, 0, 0, 2, 0, 0), model.node("Mod", [missing, model.ints(8)]), model.ints(2)]
    model.output(model.node("Pad", [x, model.node("Concat", pads, axis=0)], mode="edge"))
    found = split(model.graph({"h": 512}))
    assert [dict(op.attributes)["varying"] for op in found.ops] == [(2,), ()]
    first, second = found.ops
    assert ([position for _, position, _ in first.symbols], second.symbols) == ([6], ())


def test_what_fits_and_constants_are_left_as_they_are() -> None:
    for model in (
        padded("reflect", [1, 3, 64, 64], [0, 0, 3, 3, 0, 0, 3, 3]),
        padded("constant", [1, 3, 512, 512], [0, 0, 3, 3, 0, 0, 3, 3]),
        padded("reflect", [1, 3, 512, 512], [0, 0, 3, 0, 0, 0, 3, 0]),
    ):
        graph = model.graph()
        assert split(graph) is graph


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize(("shape", "pads"), [([1, 700_000], [0, 200, 0, 300]), ([2, 700_000, 1], [0, 0, 1, 0, 9, 0])])
def test_of_an_axis_that_no_core_holds_the_margins_are_parts(
    mode: str, shape: list[int | str], pads: list[int]
) -> None:
    """IMPORT-7: audio as spectrograms pad it runs on the chip."""
    model = padded(mode, shape, pads)
    assert split(model.graph()).ops[-1 if len(shape) == 2 else -2].kind == "Concat"
    found = compile_model(model.data(), builtin_profile("edge4"), BY_RULES)
    assert found.plan.native.host_nodes == 0
    assert found.report.values_checked
    assert all(output.max_error == 0 for output in found.report.values.outputs)


@pytest.mark.parametrize(
    ("shape", "pads"), [([700_000], [700_000, 0]), ([1, 700_000], [0, -5, 0, 5]), ([1, "n"], [0, 5, 0, 5])]
)
def test_margins_that_go_round_twice_crop_or_vary_are_left_in_the_pad(shape: list[int | str], pads: list[int]) -> None:
    graph = padded("reflect", shape, pads).graph({"n": 700_000} if "n" in shape else {})
    assert split(graph) is graph
