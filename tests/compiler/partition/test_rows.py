"""Ops that read rows of a table by index, on chips with and without an engine for it (PART-1, IMPORT-6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from onnx import TensorProto

from compiler.compile import compile_model, plan_model
from compiler.errors import ModelError
from compiler.frontend.source import ModelSource
from compiler.ir.symbol import Expression
from compiler.options import Options
from compiler.partition.rows import LeaveRowsToHost
from compiler.profile.schema import Profile
from tests.compiler.program.lowered import chip
from tests.models import Model


def lookup(rows: int = 40, *, constant: bool = False) -> Model:
    """Rows of a table chosen by an input, or by constants at equal distances, and a product of them."""
    model = Model()
    if constant:
        indices = model.ints(1, 8, 15, 22, 29, 36)
        x = model.node("Gather", [model.weight(rows, 8), indices], axis=0, name="rows")
        x = model.node("Add", [model.input([6, 8]), x])
    else:
        indices = model.input([2, 3], dtype=TensorProto.INT64)
        x = model.node("Gather", [model.weight(rows, 8), indices], axis=0, name="rows")
    model.output(model.node("MatMul", [x, model.weight(8, 5)], name="product"))
    return model


def without_iodma() -> Profile:
    """Clusters whose SRAM has the only way to DRAM."""
    return chip(cores=2, sram=1 << 13, iodma=False)


def test_without_an_engine_that_brings_rows_to_a_core_the_host_reads_them() -> None:
    found = compile_model(ModelSource.from_bytes(lookup().data()), without_iodma(), Options())
    first, *others = found.plan.segments
    assert [(node.node, "iodma" in node.reason) for node in first.host] == [("rows", True)]
    assert [segment.kind for segment in others] == ["chip"]
    assert found.report.values.checked


def test_rows_at_equal_distances_are_the_hosts_as_well() -> None:
    found = compile_model(ModelSource.from_bytes(lookup(constant=True).data()), without_iodma(), Options())
    assert found.report.values.checked


@pytest.mark.parametrize(("rows", "iodma"), [(40, True), (6, False)])
def test_with_such_an_engine_or_a_table_no_larger_than_its_rows_the_chip_reads_them(rows: int, iodma: bool) -> None:
    profile = chip(cores=2, sram=1 << 13, iodma=iodma)
    found = plan_model(lookup(rows).data(), profile, Options())
    assert [segment.kind for segment in found.plan.segments] == ["chip"]


def test_strict_refuses_what_would_be_left_to_the_host_for_lack_of_an_engine() -> None:
    with pytest.raises(ModelError, match="iodma") as caught:
        plan_model(lookup().data(), without_iodma(), Options(strict=True))
    assert (caught.value.code, caught.value.node) == ("unsupported_op", "rows")


def test_rows_at_positions_that_depend_on_a_dimension_are_refused() -> None:
    """The host's node would have to know the shape (SHAPE-9)."""
    model = Model()
    rows = model.node("Gather", [model.weight(40, 8), model.input([6], dtype=TensorProto.INT64)], axis=0, name="rows")
    model.output(model.relu(rows))
    graph = model.graph()
    gather, *others = graph.ops
    progression = (("axis", 0), ("begin", 3), ("step", 1))
    beginning = ("begin", 0, Expression(terms=(("past", 1),)))
    gather = replace(gather, inputs=gather.inputs[:1], attributes=progression, symbols=(beginning,))
    ops = (gather, *others)
    with pytest.raises(ModelError) as caught:
        LeaveRowsToHost(profile=without_iodma()).run(replace(graph, ops=ops))
    assert (caught.value.code, caught.value.node) == ("known_at_maxima_only", "rows")
