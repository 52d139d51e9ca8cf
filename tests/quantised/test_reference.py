"""Checks the reference of quantised networks by fractions, the standard's cases and ONNX Runtime (IMPORT-9)."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

from tests.quantised.graphs import OPS, QuantisedGraph, quantised_graph
from tests.quantised.reference import Array, Product, run
from tests.quantised.runtime import mixed_signs_saturate, processor_features, run_unfused

_GRAPHS = 200
_FLOAT32 = np.dtype(np.float32)
_scales = st.floats(2.0**-20, 2.0**4, width=32)
_sums = st.integers(-(2**31), 2**31 - 1)


def _product(sums: int, scale: float, bias: float | None = None) -> Product:
    return Product(
        sums=np.array([sums]),
        scale=np.array([scale]),
        bias=None if bias is None else np.array([bias]),
        kind=_FLOAT32,
    )


def _quantised(product: Product, step: float) -> int:
    return int(product.quantised(np.array(step, np.float32), np.array([0], np.int16), np.dtype(np.int16))[0])


def _rounded(value: Fraction) -> int:
    return max(-(2**15), min(2**15 - 1, round(value)))


@given(st.integers(-(2**15), 2**15), _scales, _scales, st.none() | st.floats(-4, 4, width=32), _scales)
def test_a_product_rounds_once_to_integers(sums: int, a: float, b: float, bias: float | None, step: float) -> None:
    """IMPORT-9: bit for bit the rounding of the exact quotient."""
    exact = (sums * Fraction(a) * Fraction(b) + Fraction(bias or 0)) / Fraction(step)
    assert _quantised(_product(sums, a * b, bias), step) == _rounded(exact)


@given(st.integers(1, 2**20), _scales, _scales, st.integers(0, 2**14))
def test_quotients_next_to_a_tie_round_to_the_right_side(sums: int, a: float, b: float, below: int) -> None:
    step = float(np.float32(2 * sums * a * b / (2 * below + 1)))
    if step > 0:
        exact = sums * Fraction(a) * Fraction(b) / Fraction(step)
        assert _quantised(_product(sums, a * b), step) == _rounded(exact)


@pytest.mark.parametrize(("sums", "expected"), [(1, 0), (3, 2), (5, 2), (7, 4), (-1, 0), (-3, -2), (-5, -2)])
def test_ties_round_to_even(sums: int, expected: int) -> None:
    assert _quantised(_product(sums, 0.25), 0.5) == expected


def test_a_tie_that_only_the_bias_breaks_is_seen() -> None:
    tiny = 2.0**-100
    assert [_quantised(_product(5, 0.5, bias), 1.0) for bias in (-tiny, 0.0, tiny)] == [2, 2, 3]


@given(_sums, _scales, _scales, st.none() | st.floats(-4, 4, width=32))
def test_a_product_rounds_once_to_a_float(sums: int, a: float, b: float, bias: float | None) -> None:
    exact = sums * Fraction(a) * Fraction(b) + Fraction(bias or 0)
    found = _product(sums, a * b, bias).array()[0]
    beside = [np.nextafter(found, np.float32(sign * np.inf)) for sign in (-1, 1)]
    assert all(abs(Fraction(float(found)) - exact) <= abs(Fraction(float(other)) - exact) for other in beside)


def test_float_ties_keep_the_even_last_bit() -> None:
    found = [int(_product(2**24 + odd, 1.0).array()[0]) - 2**24 for odd in (1, 3)]
    assert found == [0, 4]


def _gemm(
    *, bias_scale: float, relu: bool = False, second_reader: bool = False, y_scale: float = 0.06
) -> onnx.ModelProto:
    """One product of x and w with an int32 bias, rounded to int8; `second_reader` reads it as a float too."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wf"]),
        helper.make_node("DequantizeLinear", ["b", "b_scale"], ["bf"]),
        helper.make_node("Gemm", ["xf", "wf", "bf"], ["product"]),
        *([helper.make_node("Relu", ["product"], ["active"])] if relu else []),
        helper.make_node("QuantizeLinear", ["active" if relu else "product", "y_scale", "y_zero"], ["y"]),
        *([helper.make_node("Identity", ["product"], ["copy"])] if second_reader else []),
    ]
    constants: dict[str, Any] = {
        "x_scale": np.float32(0.1),
        "x_zero": np.int8(3),
        "w": np.array([[7], [-5]], np.int8),
        "w_scale": np.float32(0.3),
        "w_zero": np.int8(-2),
        "b": np.array([11], np.int32),
        "b_scale": np.float32(bias_scale),
        "y_scale": np.float32(y_scale),
        "y_zero": np.int8(-9),
    }
    graph = helper.make_graph(
        nodes,
        "gemm",
        [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 2])],
        [helper.make_tensor_value_info("y", TensorProto.INT8, [1, 1])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("relu", [False, True])
def test_zero_points_and_an_int32_bias_enter_the_sum(relu: bool) -> None:
    scale = float(np.float32(0.1)) * float(np.float32(0.3))
    x = np.array([[20, -30]], np.int8)
    sums = (20 - 3) * (7 + 2) + (-30 - 3) * (-5 + 2) + 11
    exact = round(Fraction(sums) * Fraction(scale) / Fraction(float(np.float32(0.06)))) - 9
    assert run(_gemm(bias_scale=0.03, relu=relu), {"x": x})["y"].tolist() == [[min(exact, 127)]]
    if relu:
        negative = run(_gemm(bias_scale=0.03, relu=True), {"x": -x})["y"]
        assert negative.tolist() == [[-9]]


def test_a_bias_of_another_scale_is_a_real_number() -> None:
    x = np.array([[3, 3]], np.int8)
    assert run(_gemm(bias_scale=0.06), {"x": x})["y"].tolist() == [[11 - 9]]


def test_a_product_with_two_readers_is_a_float_for_both() -> None:
    """One that a single node rounds is never a float: next to a tie the two ways differ."""
    x = np.array([[20, 30]], np.int8)
    sums = (20 - 3) * (7 + 2) + (30 - 3) * (-5 + 2) + 11
    scale = Fraction(float(np.float32(0.1))) * Fraction(float(np.float32(0.3)))
    differing = 0
    for steps in range(1, 40):
        y_scale = float(np.float32(sums * float(scale) / (steps + 0.5)))
        alone = run(_gemm(bias_scale=0.03, y_scale=y_scale), {"x": x})["y"]
        assert int(alone[0, 0]) == round(sums * scale / Fraction(y_scale)) - 9
        shared = run(_gemm(bias_scale=0.03, y_scale=y_scale, second_reader=True), {"x": x}, outputs=["copy", "y"])
        assert shared["copy"].dtype == _FLOAT32
        assert shared["y"] == np.rint(shared["copy"] / np.float32(y_scale)) - 9
        differing += int(shared["y"][0, 0]) != int(alone[0, 0])
    assert differing > 0


def test_given_values_replace_what_nodes_compute() -> None:
    model = _gemm(bias_scale=0.03)
    x = np.array([[5, 9]], np.int8)
    assert run(model, {"x": x}, given={"y": np.array([[42]], np.int8)})["y"].tolist() == [[42]]


@pytest.mark.slow
def test_the_cases_of_the_standard_hold() -> None:
    """All node tests of the onnx package for conversions to and from integers and for ops on integers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    stems = ("quantizelinear", "qlinear", "matmulinteger", "convinteger")
    others = ("e4m3fn", "e5m2", "float4e2m1", "expanded")
    checked = 0
    for case in cases:
        if not any(stem in case.name for stem in stems) or any(other in case.name for other in others):
            continue
        assert case.model is not None
        assert case.data_sets is not None
        names = [value.name for value in case.model.graph.input]
        for inputs, outputs in case.data_sets:
            feeds = {name: _tensor(item) for name, item in zip(names, inputs, strict=True)}
            for found, expected in zip(run(case.model, feeds).values(), map(_tensor, outputs), strict=True):
                assert found.dtype == expected.dtype, case.name
                assert np.array_equal(found, expected), case.name
            checked += 1
    assert checked >= 30


def _tensor(item: Any) -> Array:
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else np.asarray(item)


@pytest.mark.matrix(first=60, rest=70)
@pytest.mark.parametrize("seed", range(_GRAPHS))
def test_random_graphs_are_within_a_step_of_onnx_runtime(seed: int, record_property: Callable[..., None]) -> None:
    """IMPORT-9: every value that a node rounds, and the outputs, with ONNX Runtime's QDQ fusions off."""
    features = processor_features()
    record_property("processor_features", " ".join(features))
    graph = quantised_graph(seed)
    if graph.needs_vnni and mixed_signs_saturate(features):
        pytest.skip(f"ONNX Runtime saturates uint8 x int8 on this processor ({' '.join(features)})")
    names = list(dict.fromkeys([*graph.quantised, *(value.name for value in graph.model.graph.output)]))
    expected = run_unfused(graph.model, graph.inputs, names)
    found = run(graph.model, graph.inputs, outputs=names)
    steps = {name: _steps(found[name], expected[name]) for name in graph.quantised}
    assert max(steps.values(), default=0) <= 1, (graph.ops, steps)
    # a step more or less in an operand shows in later floats
    tolerance = 1e-2 if any(steps.values()) else 1e-5
    for name in names:
        assert found[name].dtype == expected[name].dtype
        largest = max(1, float(np.abs(expected[name].astype(np.float64)).max()))
        if name not in steps:
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=tolerance * largest)


def _steps(a: Array, b: Array) -> int:
    return int(np.abs(a.astype(np.int64) - b.astype(np.int64)).max())


@pytest.fixture(scope="module")
def graphs() -> list[QuantisedGraph]:
    """The graphs of the first seeds."""
    return [quantised_graph(seed) for seed in range(_GRAPHS)]


def test_a_seed_gives_the_same_graph(graphs: list[QuantisedGraph]) -> None:
    again = quantised_graph(7)
    assert again.model.SerializeToString(deterministic=True) == graphs[7].model.SerializeToString(deterministic=True)
    assert {name: array.tolist() for name, array in again.inputs.items()} == {
        name: array.tolist() for name, array in graphs[7].inputs.items()
    }
    assert quantised_graph(8).ops != again.ops


def test_graphs_are_valid_and_of_all_kinds(graphs: list[QuantisedGraph]) -> None:
    drawn = Counter(op for graph in graphs for op in graph.ops)
    assert {op.name for op in OPS} <= set(drawn)
    assert 50 <= sum(graph.is_exact for graph in graphs) <= 150
    assert any(graph.needs_vnni for graph in graphs)
    for graph in graphs:
        onnx.checker.check_model(graph.model)


def test_graphs_have_all_forms_of_quantisation(graphs: list[QuantisedGraph]) -> None:
    kinds: Counter[str] = Counter()
    for graph in graphs:
        constants = graph.constants
        for node in graph.model.graph.node:
            if node.op_type not in ("DequantizeLinear", "QuantizeLinear"):
                continue
            zero = constants[node.input[2]] if len(node.input) > 2 else None
            form = "per axis" if constants[node.input[1]].ndim else "per tensor"
            kinds[f"{node.op_type} {'plain' if zero is None else zero.dtype} {form}"] += 1
            if zero is not None and zero.any():
                kinds[f"{node.op_type} asymmetric {form}"] += 1
    for kind in ("int8", "uint8", "int4", "uint4", "int32", "plain", "asymmetric"):
        for form in ("per axis", "per tensor"):
            assert kinds[f"DequantizeLinear {kind} {form}"], (kind, form)
    assert kinds["QuantizeLinear int8 per axis"], "weights that a node rounds"
    for kind in ("int8", "uint8", "int16", "uint16", "plain", "asymmetric"):
        assert kinds[f"QuantizeLinear {kind} per tensor"], kind


def test_graphs_have_values_with_several_readers(graphs: list[QuantisedGraph]) -> None:
    shared: Counter[str] = Counter()
    for graph in graphs:
        outputs = {value.name for value in graph.model.graph.output}
        readers = Counter(name for node in graph.model.graph.node for name in node.input)
        for node in graph.model.graph.node:
            shared[f"{node.op_type} read by several"] += readers[node.output[0]] > 1
            shared[f"{node.op_type} read and returned"] += readers[node.output[0]] > 0 and node.output[0] in outputs
    for kind in ("QuantizeLinear", "DequantizeLinear"):
        assert shared[f"{kind} read by several"] >= 5
    assert shared["QuantizeLinear read and returned"] >= 5
    assert shared["Conv read and returned"] + shared["MatMul read and returned"] >= 5


def test_results_seldom_saturate(graphs: list[QuantisedGraph]) -> None:
    """In at most one map of thirty 30 % of the values are more than a step outside the type's range."""
    saturated, count = 0, 0
    for graph in graphs:
        constants = graph.constants
        nodes = [node for node in graph.model.graph.node if node.op_type == "QuantizeLinear"]
        values = run(
            graph.model, graph.inputs, outputs=[name for node in nodes for name in (*node.input, *node.output)]
        )
        for node in nodes:
            floats, integers = values[node.input[0]], values[node.output[0]]
            if node.input[0] in constants or integers.size < 8:
                continue
            zero = int(values[node.input[2]]) if len(node.input) > 2 else 0
            limits = np.iinfo(integers.dtype)
            steps = floats / values[node.input[1]] + zero
            count += 1
            saturated += bool(np.mean((steps < limits.min - 1) | (steps > limits.max + 1)) > 0.3)
    assert count > 300
    assert saturated <= count / 30, (saturated, count)
