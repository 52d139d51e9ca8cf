"""Executables run on what a caller gives: inputs of every type of ONNX, those without elements left out (SIM-1)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler.compile import compile_model
from compiler.errors import RequestError
from compiler.options import Options
from compiler.profile import builtin_profile
from compiler.program.executable import ChipSegment, Executable
from compiler.simulator.run import run_executable
from tests.models import Model

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def executable_of(model: Model) -> Executable:
    """The model for a small chip, without the compiler's own check."""
    executable = compile_model(model.data(), builtin_profile("edge4"), Options(verify="none")).executable
    assert executable is not None
    return executable


@pytest.mark.parametrize(
    ("code", "values", "expected"),
    [
        (TensorProto.FLOAT8E5M2, np.array([1.5, -2.0], ml_dtypes.float8_e5m2), [1.5, -2.0]),
        (TensorProto.INT4, np.array([7, -8], ml_dtypes.int4), [7.0, -8.0]),
        (TensorProto.STRING, np.array(["1.5", "-2"], object), [1.5, -2.0]),
    ],
)
def test_an_input_of_a_type_that_only_the_host_knows_reaches_the_host(
    code: int, values: Any, expected: list[float]
) -> None:
    model = Model(opset=21, ir_version=10)
    model.output(model.node("Cast", [model.input([2], "x", code)], out="y", to=FLOAT))
    assert run_executable(executable_of(model), {"x": values})["y"].tolist() == expected


def test_an_input_of_another_shape_is_refused_whatever_its_type() -> None:
    model = Model(opset=21, ir_version=10)
    model.output(model.node("Cast", [model.input([2], "x", TensorProto.INT4)], to=FLOAT))
    with pytest.raises(RequestError, match="another shape"):
        run_executable(executable_of(model), {"x": np.zeros(3, ml_dtypes.int4)})


def test_what_onnx_runtime_hands_out_as_bits_gets_its_type() -> None:
    """ONNX Runtime gives eight-bit floats as uint8."""
    model = Model(opset=19, ir_version=9)
    code = TensorProto.FLOAT8E4M3FN
    model.output(model.node("Cast", [model.input([2], "x", TensorProto.FLOAT16)], out="y", to=code), code)
    found = run_executable(executable_of(model), {"x": np.array([1.5, -2.0], np.float16)})["y"]
    assert found.dtype == ml_dtypes.float8_e4m3fn
    assert found.astype(np.float32).tolist() == [1.5, -2.0]


@pytest.mark.parametrize("given", [[], [np.ones(3, np.float32)]])
def test_a_sequence_has_the_type_of_the_model_even_if_it_is_empty(given: list[Any]) -> None:
    model = Model()
    model.inputs.append(helper.make_tensor_sequence_value_info("x", FLOAT, [3]))
    model.output(model.node("SequenceLength", ["x"], out="y"), INT)
    assert run_executable(executable_of(model), {"x": given})["y"] == len(given)


def test_an_empty_optional_has_the_type_of_the_model() -> None:
    model = Model(opset=18)
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [3]))
    model.inputs.append(helper.make_value_info("x", kind))
    model.output(model.node("OptionalHasElement", ["x"], out="y"), TensorProto.BOOL)
    assert not run_executable(executable_of(model), {"x": None})["y"]


def test_an_input_without_elements_need_not_be_given_and_keeps_its_reader_on_the_chip() -> None:
    """No axes are given, so all are summed over: known when compiling."""
    model = Model()
    x = model.input([2, 3], "x")
    model.output(model.node("ReduceSum", [x, model.input([0], "axes", INT)], out="y", keepdims=0))
    executable = executable_of(model)
    assert [type(segment) for segment in executable.segments] == [ChipSegment]
    assert [value.name for value in executable.inputs] == ["x"]
    assert run_executable(executable, {"x": np.ones((2, 3), np.float32)})["y"] == 6


def brain_float(model: Model) -> None:
    """An output that ONNX Runtime cannot hand out: numpy has no bfloat16 of its own."""
    cast = model.node("Cast", [model.input([1], "d", TensorProto.DOUBLE)], out="b", to=TensorProto.BFLOAT16)
    model.output(cast, TensorProto.BFLOAT16)


def test_a_neighbour_of_what_onnx_runtime_lacks_still_runs_there() -> None:
    """onnx.reference stacks the scalars that a Loop collects as rows of a matrix; ONNX Runtime as ONNX says."""
    model = Model(opset=22, ir_version=10)
    brain_float(model)
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Cast", ["i"], ["s"], to=FLOAT)],
        "body",
        [helper.make_tensor_value_info("i", INT, []), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []), helper.make_tensor_value_info("s", FLOAT, [])],
    )
    model.output(model.node("Loop", [model.input([], "n", INT), model.constant(True)], out="y", body=body))
    found = run_executable(executable_of(model), {"d": np.ones(1), "n": np.array(3)})
    assert found["y"].tolist() == [0, 1, 2]
    assert found["b"].tolist() == [1]


def test_an_empty_sequence_between_nodes_of_which_onnx_runtime_lacks_one_is_no_error() -> None:
    """Node by node nobody would know the sequence's type, so all of them run on onnx.reference."""
    model = Model(opset=22, ir_version=10)
    brain_float(model)
    built = model.node("SequenceConstruct", [model.input([2], "x")])
    erased = model.node("SequenceErase", [built, model.input([], "first", INT)])
    model.output(model.node("SequenceLength", [erased], out="y"), INT)
    feeds = {"d": np.ones(1), "x": np.zeros(2, np.float32), "first": np.array(0)}
    found = run_executable(executable_of(model), feeds)
    assert found["y"] == 0
