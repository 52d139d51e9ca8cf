"""Tables read through indices: just the rows that are named cross the memories (IMPORT-5, SPEC 5.1)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from compiler.compile import compile_model
from compiler.ops.op_facts import graph_facts
from compiler.tiling.geometry import GroupGeometry
from tests.compiler.planning import BY_RULES
from tests.models import Model
from tests.profiles import small_profile

ROWS, WIDTH, WORDS = 70_000, 16, 24


def lookup() -> Model:
    """An embedding lookup of a table that no memory on the chip holds, and a product behind it."""
    model = Model()
    words = model.input([1, WORDS], "words", TensorProto.INT64)
    table = model.constant(np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH), "table")
    vectors = model.node("Gather", [table, words], name="lookup", out="vectors")
    model.output(model.node("MatMul", [vectors, model.weight(WIDTH, 8)], name="product", out="result"))
    return model


def test_a_constant_table_is_read_like_an_activation_of_the_shape_of_its_result() -> None:
    facts = lookup().facts()
    op = facts.ops[0]
    assert [(o.tensor, o.constant) for o in op.operands] == [("vectors:gathered", False), ("words", False)]
    assert facts.tensors["vectors:gathered"].shape == (1, WORDS, WIDTH)
    assert op.weight_bytes == 0
    assert op.dtype == "float32"


def test_a_box_of_the_result_needs_the_same_box_of_what_is_gathered() -> None:
    facts = lookup().facts()
    geometry = GroupGeometry(facts, [0])
    assert geometry.inputs == ("vectors:gathered", "words")
    assert geometry.weights == ()
    (name,) = geometry.outputs
    axes = facts.tensors[name].axes
    boxes = geometry.project({axes[1]: (np.array([3]), np.array([7]))})
    assert [(int(a[1][0]), int(a[2][0])) for a in boxes["vectors:gathered"]] == [(0, 1), (3, 7), (0, WIDTH)]
    assert [(int(a[1][0]), int(a[2][0])) for a in boxes["words"]] == [(0, 1), (3, 7)]


def test_an_embedding_lookup_compiles_on_a_chip_smaller_than_its_table() -> None:
    """The floor counts the rows that are read, not the table."""
    plan = compile_model(lookup().data(), small_profile(nram_bytes=64 * 1024), BY_RULES).plan
    gathered, words, weight, result = WORDS * WIDTH * 4, WORDS * 8, WIDTH * 8 * 4, WORDS * 8 * 4
    assert plan.totals.dram_bytes_floor == gathered + words + weight + result
    assert plan.totals.dram_bytes_floor <= plan.totals.dram_bytes < ROWS * WIDTH * 4
    assert (plan.native.chip_nodes, plan.native.host_nodes) == (2, 0)


def test_data_computed_at_run_time_is_an_ordinary_operand() -> None:
    model = Model()
    data, words = model.input([9, 4]), model.input([3], dtype=TensorProto.INT64)
    model.output(model.node("Gather", [data, words]))
    facts = model.facts()
    assert [o.tensor for o in facts.ops[0].operands] == [data, words]


@pytest.mark.parametrize("taken", ["vectors:gathered", "vectors:gathered'"])
def test_a_value_that_has_the_name_already_is_left_alone(taken: str) -> None:
    model = lookup()
    model.input([2], "vectors:gathered")
    model.output(model.node("Relu", ["vectors:gathered"], out="other"))
    if taken.endswith("'"):
        model.input([2], taken)
        model.output(model.node("Relu", [taken], out="another"))
    facts = graph_facts(model.graph())
    read = facts.ops[0].operands[0].tensor
    assert read.startswith(taken)
    assert read not in facts.graph.tensors
    assert facts.tensors[read].shape == (1, WORDS, WIDTH)
    assert facts.tensors["vectors:gathered"].shape == (2,)
