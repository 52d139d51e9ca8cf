"""Fused operators of ONNX Runtime's optimiser: written out, with the values of ONNX Runtime (IMPORT-8)."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from compiler.compile import compile_model
from compiler.profile import builtin_profile
from tests.compiler.planning import BY_RULES
from tests.compiler.shapes.dynamic import misses
from tests.models import Model, import_graph

# Operands behind the data: "x" another input of its shape, "v" a vector of channels, "m" and "t" a matrix, "" none.
CASES: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("Gelu", (), {}),
    ("BiasGelu", ("v",), {}),
    ("FastGelu", ("v",), {}),
    ("FastGelu", (), {}),
    ("QuickGelu", (), {"alpha": 1.5}),
    ("FusedMatMul", ("t",), {"transB": 1, "alpha": 0.25}),
    ("FusedMatMul", ("m",), {}),
    ("TransposeMatMul", ("t",), {"transB": 1}),
    ("SkipLayerNormalization", ("x", "v", "v", "v"), {"epsilon": 1e-5}),
    ("SkipLayerNormalization", ("x", "v"), {}),
    ("SkipSimplifiedLayerNormalization", ("x", "v", "v"), {"epsilon": 1e-6}),
]


class Contributed(Model):
    """A model with operators of com.microsoft."""

    def proto(self) -> onnx.ModelProto:
        """The finished model."""
        proto = super().proto()
        proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        return proto


def fused(op_type: str, operands: tuple[str, ...], attributes: dict[str, Any], *, outputs: int = 1) -> bytes:
    """A model of the operator alone; with 4 outputs the first and the last one, the sum that is normalised."""
    model = Contributed(opset=14)
    kinds = {"v": (16,), "m": (16, 12), "t": (12, 16)}
    shape: list[int | str | None] = ["b", 6, 16]
    others = [model.input(shape, "skip") if k == "x" else model.weight(*kinds[k]) if k else "" for k in operands]
    inputs = [model.input(shape, "x"), *others]
    names = ["y", "", "", "sum"][:outputs]
    model.nodes.append(helper.make_node(op_type, inputs, names, domain="com.microsoft", name="fused", **attributes))
    for name in filter(None, names):
        model.output(name)
    return model.data()


def agrees(data: bytes, **dims: int) -> None:
    """Nothing is left to the host, and values are ONNX Runtime's."""
    assert not import_graph(data, dims).host
    values = compile_model(data, builtin_profile("edge4"), BY_RULES).report.values
    assert str(values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in values.outputs)


@pytest.mark.parametrize(("op_type", "operands", "attributes"), CASES)
def test_a_fused_operator_is_what_it_fuses(op_type: str, operands: tuple[str, ...], attributes: dict[str, Any]) -> None:
    agrees(fused(op_type, operands, attributes), b=2)


@pytest.mark.parametrize(
    ("op_type", "operands"),
    [("SkipLayerNormalization", ("x", "v", "", "v")), ("SkipSimplifiedLayerNormalization", ("x", "v"))],
)
def test_the_sum_that_is_normalised_is_an_output_too(op_type: str, operands: tuple[str, ...]) -> None:
    agrees(fused(op_type, operands, {}, outputs=4), b=2)


def test_what_the_operators_do_not_say_stays_on_the_host() -> None:
    graph = import_graph(fused("FusedMatMul", ("m",), {"transBatchB": 1}), {"b": 2})
    assert [host.op_type for host in graph.host.values()] == ["FusedMatMul"]


def test_a_graph_of_gelu_with_a_bias_is_recognised_as_one_op() -> None:
    plan = compile_model(fused("BiasGelu", ("v",), {}), builtin_profile("edge4"), BY_RULES).plan
    kinds = [op.kind for segment in plan.segments for group in segment.groups for op in group.ops]
    assert kinds == ["Add", "Gelu"]


def model_of(op_type: str, inputs: list[Any], outputs: int = 1, opset: int = 14, **attributes: Any) -> Model:
    """A model of one operator: inputs are shapes of floats (lists), shapes by type, weights (tuples), "" for none."""
    model, names = Contributed(opset=opset), []
    for given in inputs:
        if isinstance(given, list):
            names.append(model.input(given))
        elif isinstance(given, dict):
            names += [model.input(shape, dtype=dtype) for dtype, shape in given.items()]
        else:
            names.append(model.weight(*given) if given else "")
    results = [f"y{number}" for number in range(outputs)]
    model.nodes.append(helper.make_node(op_type, names, results, domain="com.microsoft", name="fused", **attributes))
    for name in results:
        model.output(name)
    return model


@pytest.mark.matrix(first=5, rest=5)
@pytest.mark.parametrize(
    ("activation", "params"),
    [
        ("Relu", []),
        ("Tanh", []),
        ("Sigmoid", []),
        ("LeakyRelu", [0.2]),
        ("HardSigmoid", [0.3, 0.4]),
        ("Clip", [-0.5, 0.5]),
    ],
)
@pytest.mark.parametrize("opset", [9, 14])
def test_a_convolution_with_a_sum_and_an_activation(activation: str, params: list[float], opset: int) -> None:
    inputs = [[2, 4, 9, 9], (6, 4, 3, 3), (6,), [2, 6, 5, 5]]
    given = {"activation_params": params} if params else {}
    shape: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
    agrees(model_of("FusedConv", inputs, 1, opset, activation=activation, **given, **shape).data())


@pytest.mark.parametrize(
    ("activation", "params"),
    [("Relu", {}), ("LeakyRelu", {"alpha": 0.2}), ("Selu", {"alpha": 1.5, "gamma": 1.1}), ("Softplus", {})],
)
def test_a_gemm_with_an_activation(activation: str, params: dict[str, float]) -> None:
    own = {f"activation_{name}": value for name, value in params.items()}
    attributes: dict[str, Any] = {"alpha": 0.5, "beta": 2.0, "transB": 1, "activation": activation, **own}
    agrees(model_of("FusedGemm", [[3, 8], (5, 8), (5,)], 1, **attributes).data())


INT = TensorProto.INT32
ATTENTIONS: list[tuple[str, list[Any], int, dict[str, Any]]] = [
    ("Attention", [[2, 5, 8], (8, 24), (24,)], 1, {}),
    ("Attention", [[2, 5, 8], (8, 20), (20,)], 1, {"qkv_hidden_sizes": [8, 8, 4], "scale": 0.3}),
    ("Attention", [[2, 5, 8], (8, 24), (24,), {INT: [2]}], 1, {}),
    ("Attention", [[2, 5, 8], (8, 24), (24,), {INT: [2, 5]}], 1, {"unidirectional": 1}),
    ("Attention", [[2, 5, 8], (8, 24), (24,), {INT: [2, 5, 5]}, "", [2, 2, 5, 5]], 1, {"mask_filter_value": -3.0}),
    ("Attention", [[2, 3, 8], (8, 24), (24,), {INT: [2, 7]}, [2, 2, 2, 4, 4]], 2, {"unidirectional": 1}),
    ("MultiHeadAttention", [[2, 3, 8], [2, 5, 8], [2, 5, 12], (28,)], 1, {}),
    ("MultiHeadAttention", [[2, 3, 8], [2, 5, 8], [2, 5, 8], "", {INT: [2, 5]}, [1, 2, 3, 5]], 1, {}),
    ("MultiHeadAttention", [*[[2, 3, 8]] * 3, "", "", "", *[[2, 2, 4, 4]] * 2], 3, {"unidirectional": 1}),
]


@pytest.mark.matrix(first=3, rest=3)
@pytest.mark.parametrize(("op_type", "inputs", "outputs", "attributes"), ATTENTIONS)
def test_attention_is_products_and_a_softmax(
    op_type: str, inputs: list[Any], outputs: int, attributes: dict[str, Any]
) -> None:
    agrees(model_of(op_type, inputs, outputs, num_heads=2, **attributes).data())


@pytest.mark.parametrize(
    "inputs",
    [[[2, 5, 8], (8, 24), (24,), {INT: [4]}], [[2, 5, 8], (8, 24), (24,), {INT: [2, 1, 5, 5]}]],
)
def test_a_mask_that_says_where_keys_begin_leaves_attention_to_the_host(inputs: list[Any]) -> None:
    graph = import_graph(model_of("Attention", inputs, num_heads=2).data())
    assert [host.op_type for host in graph.host.values()] == ["Attention"]


@pytest.mark.parametrize("has_mask", [True, False])
def test_embeddings_are_looked_up_added_and_normalised(has_mask: bool) -> None:
    words: dict[int, list[int]] = {INT: [2, 5]}
    mask = [words] if has_mask else []
    model = model_of("EmbedLayerNormalization", [words, words, (9, 8), (7, 8), (2, 8), (8,), (8,), *mask], 2)
    model.outputs[1].type.tensor_type.elem_type = TensorProto.INT32
    agrees(model.data())


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("shape", [[2, 5, 16], [2, 2, 5, 8]])
def test_a_rotation_is_the_one_of_the_standard(shape: list[int], interleaved: int) -> None:
    inputs = [shape, {TensorProto.INT64: [2, 5]}, (9, 4), (9, 4)]
    agrees(model_of("RotaryEmbedding", inputs, interleaved=interleaved).data())


VARYING: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Attention", [["n", "s", 8], (8, 24), (24,), {INT: ["n", "s"]}], {}),
    ("Attention", [["n", "s", 8], (8, 24), (24,), {INT: ["n"]}], {"unidirectional": 1}),
    ("MultiHeadAttention", [["n", 3, 8], ["n", "s", 8], ["n", "s", 8], (24,), {INT: ["n", "s"]}], {}),
]


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize(("op_type", "inputs", "attributes"), VARYING)
def test_attention_is_written_for_shapes_that_vary(op_type: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    model = model_of(op_type, inputs, num_heads=2, **attributes)
    assert not model.graph({"n": 3, "s": 6}).host
    assert not misses(model, {"n": (1, 3), "s": (1, 6)}, count=3)
