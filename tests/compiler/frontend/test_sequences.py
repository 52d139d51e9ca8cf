"""Sequences and optionals of known elements leave no node on the host (IMPORT-5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler.compile import compile_model
from compiler.profile import builtin_profile
from tests.compiler.frontend.test_unrolled import agrees, graph_of
from tests.compiler.planning import BY_RULES
from tests.models import Model, import_graph

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def place(model: Model, number: int) -> str:
    """A position as a constant scalar."""
    return model.constant(np.array(number, dtype=np.int64))


def test_parts_of_a_split_are_slices_as_in_networks_of_several_scales() -> None:
    """`torch.split` with an index for each part, as Res2Net is exported."""
    model = Model()
    x = model.input([1, 8, 5, 5])
    parts = model.node("SplitToSequence", [x, place(model, 3)], axis=1)
    first, second, last = (model.node("SequenceAt", [parts, place(model, number)]) for number in (0, 1, -1))
    sums = model.node("Add", [model.conv(first, 3, 3), second])
    model.output(model.node("Concat", [sums, model.relu(last)], axis=1))
    agrees(model)


@pytest.mark.parametrize("axis", [0, -1])
def test_positions_of_a_split_without_lengths_lose_their_axis_if_the_node_says_so(axis: int) -> None:
    model = Model()
    x = model.input([3, 4])
    for keepdims in (0, 1):
        parts = model.node("SplitToSequence", [x], axis=axis, keepdims=keepdims)
        model.output(model.relu(model.node("SequenceAt", [parts, place(model, 2)])))
    agrees(model)


def test_a_split_into_given_lengths_is_joined_again() -> None:
    model = Model()
    x = model.input([2, 5])
    parts = model.node("SplitToSequence", [x, model.ints(1, 4)], axis=-1)
    model.output(model.relu(model.node("ConcatFromSequence", [parts], axis=-1)))
    model.output(model.node("SequenceLength", [parts]), INT)
    agrees(model)


def test_a_list_is_built_changed_and_stacked() -> None:
    model = Model()
    x, y = model.input([2, 3]), model.input([2, 3])
    built = model.node("SequenceInsert", [model.node("SequenceEmpty", []), x])
    built = model.node("SequenceInsert", [built, model.node("Exp", [y]), place(model, 0)])
    built = model.node("SequenceInsert", [built, model.node("Neg", [y]), place(model, -1)])
    built = model.node("SequenceErase", [model.node("SequenceErase", [built, place(model, 0)])])
    built = model.node("SequenceInsert", [built, model.node("SequenceAt", [built, place(model, 0)])])
    model.output(model.node("ConcatFromSequence", [built], axis=1, new_axis=1))
    agrees(model)


def test_a_loop_that_appends_to_a_list_is_written_out() -> None:
    model = Model()
    x = model.input([3, 2])
    nodes = [
        helper.make_node("Gather", [x, "i"], ["row"], axis=0),
        helper.make_node("Exp", ["row"], ["new"]),
        helper.make_node("SequenceInsert", ["list", "new"], ["longer"]),
    ]
    body = graph_of(nodes, {"i": INT, "go": BOOL}, {"go": BOOL})
    for side, name in ((body.input, "list"), (body.output, "longer")):
        side.append(helper.make_tensor_sequence_value_info(name, FLOAT, None))
    given = [place(model, 3), model.constant(np.array(True)), model.node("SequenceEmpty", [])]
    model.output(model.node("ConcatFromSequence", [model.node("Loop", given, body=body)], axis=0, new_axis=1))
    agrees(model)


@pytest.mark.parametrize("opset", [17, 18])
def test_an_optional_is_its_element(opset: int) -> None:
    """From opset 18 on a tensor may stand for an optional."""
    model = Model(opset=opset)
    x = model.input([2, 3])
    held = model.node("Optional", [x]) if opset < 18 else x
    model.output(model.relu(model.node("OptionalGetElement", [held])))
    model.output(model.node("OptionalHasElement", [held]), BOOL)
    agrees(model)


@pytest.mark.parametrize("what", ["position", "length", "varying", "element"])
def test_what_is_known_at_run_time_only_stays_on_the_host(what: str) -> None:
    model = Model()
    x = model.input([4, "n" if what == "varying" else 3])
    given: dict[str, Any] = {"position": place(model, 1), "length": place(model, 2)}
    if what in given:
        given[what] = model.input([], what, INT)
    if what == "varying":
        parts = model.node("SplitToSequence", [x, given["length"]], axis=1)
    else:
        parts = model.node("SplitToSequence", [x, given["length"]], axis=0)
    if what == "element":
        parts = model.node("SequenceInsert", [parts, x, model.input([], "where", INT)])
    model.output(model.relu(model.node("SequenceAt", [parts, given["position"]])))
    kinds = {node.op_type for node in import_graph(model.data(), {"n": 3} if what == "varying" else {}).host.values()}
    assert {"SplitToSequence", "SequenceAt"} <= kinds


def test_a_sequence_that_is_an_output_too_stays_and_its_elements_do_not_pass_through_it() -> None:
    model = Model()
    x = model.input([4, 3])
    parts = model.node("SplitToSequence", [x, place(model, 2)], axis=0)
    model.outputs.append(helper.make_tensor_sequence_value_info(parts, FLOAT, None))
    model.output(model.relu(model.node("SequenceAt", [parts, place(model, 1)])))
    assert {node.op_type for node in import_graph(model.data()).host.values()} == {"SplitToSequence"}
    assert compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values.checked


def test_a_position_that_the_sequence_does_not_have_is_left_to_the_host() -> None:
    model = Model()
    built = model.node("SequenceConstruct", [model.input([2])])
    model.output(model.node("SequenceAt", [built, place(model, 1)]))
    assert {"SequenceAt"} <= {node.op_type for node in import_graph(model.data()).host.values()}
