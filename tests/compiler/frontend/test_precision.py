"""Option precision: float tensors take the type asked for, biases 4 bytes, and no value is given (SPEC section 13)."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from onnx import TensorProto

from compiler.compile import compile_model
from compiler.errors import InternalError
from compiler.frontend.constant_values import materialise
from compiler.frontend.dequantised import scale_and_zero
from compiler.frontend.precision import SetPrecision
from compiler.frontend.source import ModelSource
from compiler.ir.constant import Constant
from compiler.ir.graph import Graph
from compiler.ir.verify import verify_graph
from compiler.ops.op_facts import graph_facts
from compiler.options import Options, parse_options
from compiler.partition.weights import _sliced
from compiler.pipeline import build_pipeline
from compiler.profile import builtin_profile
from compiler.units import element_bytes
from tests.exported import ExportedModel, exported_models
from tests.models import LIGHT_NAMES, Model, error_of, import_graph, light_path, light_source

TYPES = {"int8": (1, "int32"), "float16": (2, "float32")}
FLOATS = ("float32", "float16", "bfloat16", "float64")
EXPORTED = exported_models()


def retyped(graph: Graph, precision: str) -> Graph:
    """The graph in another precision, verified."""
    made = SetPrecision(precision=precision).run(graph)
    verify_graph(made)
    return made


def constant_of(graph: Graph, name: str) -> Constant:
    """A tensor's constant."""
    found = graph.tensors[name].constant
    assert found is not None
    return found


def classifier() -> Model:
    """A convolution and a Gemm, both with biases, and an Add of a constant."""
    model = Model(seed=1)
    x = model.conv(model.input([1, 3, 8, 8], "x"), 3, 4, bias=True, name="conv")
    x = model.node("Add", [model.relu(x), model.weight(4, 1, 1)], name="add")
    x = model.node("Flatten", [x], name="flat")
    model.output(model.node("Gemm", [x, model.weight(256, 10), model.weight(10)], name="gemm"))
    return model


def test_no_precision_leaves_the_graph_alone() -> None:
    graph = classifier().graph()
    assert SetPrecision().run(graph) is graph


@pytest.mark.parametrize("precision", TYPES)
def test_floats_take_the_type_and_biases_of_main_ops_four_bytes(precision: str) -> None:
    graph = classifier().graph()
    made = retyped(graph, precision)
    conv, gemm = made.ops[0], made.ops[-1]
    biases = {conv.inputs[2], gemm.inputs[2]}
    for name, tensor in made.tensors.items():
        assert tensor.dtype == (TYPES[precision][1] if name in biases else precision)
        assert tensor.stored_dtype == tensor.dtype
        assert tensor.size_bytes == tensor.elements * (4 if name in biases else TYPES[precision][0])
    assert [op.output for op in made.ops] == [op.output for op in graph.ops]


@pytest.mark.matrix(first=6, rest=6)
@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize("name", LIGHT_NAMES)
def test_the_planner_sees_a_light_model_in_the_new_type(name: str, precision: str) -> None:
    graph = import_graph(light_path(name).read_bytes())
    before, after = graph_facts(graph), graph_facts(retyped(graph, precision))
    for old, new in zip(before.ops, after.ops, strict=True):
        assert new.dtype == precision
        assert (new.kind, new.op_class, new.vector_ops) == (
            old.kind,
            old.op_class,
            old.vector_ops,
        ) or old.kind == "Gemm"
        if old.kind == "Conv":
            assert (new.macs, new.matrix) == (old.macs, old.matrix)
    biases = {n for op in graph.ops if op.kind in ("Conv", "Gemm") for n in op.inputs[2:]}
    everything = before.weights_of(range(len(graph.ops)))
    size = TYPES[precision][0]
    expected = sum(graph.tensors[n].elements * (4 if n in biases else size) for n in everything)
    assert after.weight_bytes(range(len(graph.ops))) == expected


@pytest.mark.parametrize("precision", TYPES)
def test_matrix_products_stay_on_the_matrix_unit(precision: str) -> None:
    model = Model(seed=1)
    x = model.node("Gemm", [model.input([2, 16], "x"), model.weight(16, 8)])
    model.output(model.node("MatMul", [x, model.weight(8, 4)]))
    graph = model.graph()
    before, after = graph_facts(graph), graph_facts(retyped(graph, precision))
    assert [(op.macs, op.matrix, op.vector_ops) for op in after.ops] == [
        (op.macs, op.matrix, op.vector_ops) for op in before.ops
    ]


def test_integers_and_bools_stay() -> None:
    model = Model(seed=1)
    table, indices = model.weight(10, 4), model.input([1, 3], "indices", TensorProto.INT64)
    rows = model.node("Gather", [table, indices])
    positive = model.node("Greater", [rows, model.weight(4)])
    model.output(model.node("Where", [positive, rows, model.weight(4)]))
    made = retyped(model.graph(), "int8")
    assert made.tensors["indices"].dtype == "int64"
    assert [made.tensors[op.output].dtype for op in made.ops] == ["int8", "bool", "int8"]


def test_a_cast_names_the_type_that_its_result_has() -> None:
    model = Model()
    x = model.node("Cast", [model.input([1, 3], "x", TensorProto.INT64)], to=TensorProto.FLOAT)
    model.output(model.node("Cast", [model.relu(x)], to=TensorProto.INT32))
    made = retyped(model.graph(), "float16")
    assert [dict(op.attributes).get("to") for op in made.ops] == ["float16", None, "int32"]


@pytest.mark.parametrize("precision", TYPES)
def test_a_dequantised_weight_keeps_the_integers_that_it_is_stored_in(precision: str) -> None:
    (found,) = [model for model in EXPORTED if model.network == "quantised_resnet"]
    graph = import_graph(found.read(), found.dims)
    made = retyped(graph, precision)
    stored = {n: t for n, t in graph.tensors.items() if t.constant is not None and t.stored_dtype != t.dtype}
    assert stored
    for name, tensor in stored.items():
        assert made.tensors[name].size_bytes == tensor.size_bytes
        assert made.tensors[name].dtype in (precision, TYPES[precision][1])
        assert isinstance(error_of(lambda name=name: _values(made, name)), InternalError)  # type: ignore[misc]
    integers = {n for n, t in graph.tensors.items() if t.dtype in ("int8", "uint8")}
    assert integers
    assert all(made.tensors[n].dtype == graph.tensors[n].dtype for n in integers)


def _values(graph: Graph, name: str) -> object:
    return materialise(constant_of(graph, name), light_source("squeezenet"))


def test_asking_for_a_value_is_an_internal_error_and_never_a_wrong_number() -> None:
    made = retyped(classifier().graph(), "int8")
    for name, tensor in made.tensors.items():
        if tensor.constant is not None:
            assert isinstance(error_of(lambda name=name: _values(made, name)), InternalError)  # type: ignore[misc]


@pytest.mark.parametrize("precision", TYPES)
def test_a_weight_that_a_chip_is_too_small_for_is_cut_in_its_new_type(precision: str) -> None:
    made = retyped(classifier().graph(), precision)
    weight = constant_of(made, made.ops[0].inputs[1])
    assert _sliced(weight, 0, 1, 2).stored_dtype == precision


@pytest.mark.matrix(first=18, rest=18)
@pytest.mark.parametrize("model", EXPORTED, ids=lambda model: model.file)
def test_no_float_of_an_exported_network_stays(model: ExportedModel) -> None:
    graph = import_graph(model.read(), model.dims)
    for precision, (size, bias) in TYPES.items():
        made = retyped(graph, precision)
        for name, tensor in graph.tensors.items():
            if tensor.dtype in FLOATS:
                assert made.tensors[name].dtype in (precision, bias)
                assert element_bytes(made.tensors[name].stored_dtype) in (size, 4, 1)
            else:
                assert made.tensors[name] is tensor
        assert len(graph_facts(made).ops) == len(graph.ops)


def test_a_bias_that_is_added_elsewhere_too_keeps_its_four_bytes() -> None:
    model = Model(seed=1)
    shared = model.weight(4)
    x = model.node("Gemm", [model.input([1, 8], "x"), model.weight(8, 4), shared])
    model.output(model.node("Add", [x, shared]))
    assert retyped(model.graph(), "int8").tensors[shared].dtype == "int32"


def test_half_precision_of_a_model_in_half_precision_changes_its_biases_alone() -> None:
    model = Model()
    half = {"dtype": np.float16}
    x = model.input([1, 8], "x", TensorProto.FLOAT16)
    weight, bias = model.constant(np.ones((8, 4)), "w", **half), model.constant(np.ones(4), "b", **half)
    model.output(model.node("Gemm", [x, weight, bias]), TensorProto.FLOAT16)
    graph = model.graph()
    made = retyped(graph, "float16")
    assert {name for name in made.tensors if made.tensors[name] is not graph.tensors[name]} == {"b"}


def test_the_option_takes_its_three_values_and_reaches_its_pass() -> None:
    assert Options().precision == "model"
    error = error_of(lambda: parse_options({"precision": "int4"}))
    assert error is not None
    assert (error.code, error.limit) == ("invalid_option", "float16, int8, model")
    for value, expected in (("model", None), ("int8", "int8"), ("float16", "float16")):
        options = parse_options({"precision": value})
        assert msgspec.to_builtins(options)["precision"] == value
        assert SetPrecision(precision=expected) in build_pipeline(
            light_source("squeezenet"), builtin_profile("edge4"), options
        )


def _product_of_a_quantised_weight() -> tuple[Model, str]:
    """A product by a weight that is stored in uint8, with scales and zero points by output channel, and transposed."""
    model = Model(seed=1)
    weight = model.constant(np.arange(80, 240, dtype=np.uint8).reshape(10, 16))
    scale, zero = model.constant(np.linspace(0.01, 0.02, 10), dtype=np.float32), model.constant(np.full(10, 128, "u1"))
    floats = model.node("Transpose", [model.node("DequantizeLinear", [weight, scale, zero], axis=0)], perm=[1, 0])
    model.output(model.node("MatMul", [model.input([2, 16], "x"), floats]))
    return model, floats


@pytest.mark.parametrize("precision", TYPES)
def test_a_dequantised_weight_keeps_its_scales(precision: str) -> None:
    model, name = _product_of_a_quantised_weight()
    source, graph = ModelSource(name="m", data=model.data(), sha256=""), model.graph()
    own, other = (scale_and_zero(constant_of(its, name), source) for its in (graph, retyped(graph, precision)))
    assert own[0].shape == (1, 10)
    assert all(map(np.array_equal, own, other))


@pytest.mark.parametrize("precision", TYPES)
def test_a_float_product_of_a_quantised_weight_is_planned_in_another_precision(precision: str) -> None:
    """Nothing is degraded (which fails a test): the weight stays in its integers in memory."""
    source = _product_of_a_quantised_weight()[0].data()
    plan = compile_model(source, builtin_profile("edge4"), parse_options({"precision": precision})).plan
    assert plan.arithmetic.weight_bytes == {"uint8": 160}
