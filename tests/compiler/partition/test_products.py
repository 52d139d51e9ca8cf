"""Products by a large constant from the left: as convolutions, only where they have to be (TILE-2, PART-3)."""

from __future__ import annotations

import pytest

from compiler.compile import compile_model
from compiler.fusion.candidate import SegmentCompilers
from compiler.ir.graph import Graph
from compiler.ir.verify import verify_graph
from compiler.options import Options
from compiler.partition.products import TurnProducts
from compiler.profile import builtin_profile
from tests.compiler.planning import BY_RULES
from tests.compiler.shapes.dynamic import misses
from tests.models import Model

CHIPS = ("edge4", "cluster4x4", "manycore2x64")


def turned(graph: Graph, chip: str = "manycore2x64") -> Graph:
    """The graph after the pass, verified."""
    profile = builtin_profile(chip)
    found = TurnProducts(profile=profile, candidates=SegmentCompilers(profile, Options()).of).run(graph)
    verify_graph(found)
    return found


def product(rows: int, columns: int, lead: list[int | str], width: int | str) -> Model:
    """A product, called `left`, of a constant and an input, to which something is added."""
    model = Model()
    weight = model.weight(rows, columns)
    result = model.node("MatMul", [weight, model.input([*lead, columns, width])], name="left")
    model.output(model.node("Add", [result, model.weight(rows, 1)]))
    return model


@pytest.mark.matrix(first=1, rest=2)
@pytest.mark.parametrize(
    ("lead", "chip"), [([3], "manycore2x64"), ([], "manycore2x64"), *(([2, 3], chip) for chip in CHIPS)]
)
def test_values_are_those_of_the_reference(lead: list[int | str], chip: str) -> None:
    report = compile_model(product(400, 512, lead, 96).data(), builtin_profile(chip)).report
    assert report.values_checked
    assert all(output.holds for output in report.values.outputs)


def test_it_becomes_a_convolution_over_the_columns() -> None:
    found = turned(product(400, 512, [2, 3], 96).graph())
    assert [op.kind for op in found.ops] == ["Reshape", "Conv", "Reshape", "Add"]
    inner = found.ops[1]
    assert [found.tensors[name].shape for name in inner.inputs] == [(6, 512, 96), (400, 512, 1)]
    assert found.tensors[inner.output].shape == (6, 400, 96)
    assert inner.origin == ("left",)


def test_a_batch_and_columns_that_vary() -> None:
    model = product(400, 512, ["n", 2], "w")
    found = turned(model.graph({"n": 3, "w": 96}))
    inner = next(op for op in found.ops if op.kind == "Conv")
    assert [(axis, str(one)) for axis, one in found.tensors[inner.output].symbols] == [(0, "2*n"), (2, "w")]
    assert not misses(model, {"n": (1, 3), "w": (1, 96)}, count=2)


@pytest.mark.parametrize("chip", ["edge4", "cluster4x4"])
def test_parts_of_a_factor_that_come_for_each_slice_of_channels_are_counted(chip: str) -> None:
    """TILE-6: what the program moves is what the plan says.

    But for the addend (2,800 of 15 to 39 million bytes): the plan has it come in each round, and it stays in the cores.
    """
    report = compile_model(product(700, 700, [2], 700).data(), builtin_profile(chip), BY_RULES).report
    assert [program.dram_ratio for program in report.programs] == [pytest.approx(1.0, rel=2e-4)] * len(report.programs)


def test_what_fits_and_weights_behind_are_left_as_they_are() -> None:
    behind = Model()
    behind.output(behind.node("MatMul", [behind.input([8, 512]), behind.weight(512, 600)]))
    for model in (product(100, 100, [4], 50), behind):
        graph = model.graph()
        assert turned(graph) is graph
