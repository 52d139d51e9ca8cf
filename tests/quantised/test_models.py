"""Checks that networks by ONNX Runtime's quantiser and the reference fit together (IMPORT-9)."""

from __future__ import annotations

from collections import Counter
from math import sqrt
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.calibrate import logits_name
from tests.quantised import four_bits
from tests.quantised.models import FORMS, NETWORKS, Form, feeds, float_model, quantised_file
from tests.quantised.reference import Array, run, run_from
from tests.quantised.runtime import mixed_signs_saturate, processor_features, run_unfused

_ROUNDING = ("QuantizeLinear", "DynamicQuantizeLinear")
_SEED = 99  # none of those that calibrate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this module's networks lie."""
    return tmp_path_factory.mktemp("quantised")


def _check(network: str, form: Form, folder: Path) -> None:
    """Every rounding node is within a step of ONNX Runtime's result for the same operands; the outputs make sense.

    From node to node a step would grow: in a deep network to dozens.
    """
    features = processor_features()
    if form.startswith("dynamic") and mixed_signs_saturate(features):
        pytest.skip(f"ONNX Runtime saturates uint8 x int8 on this processor ({' '.join(features)})")
    model, inputs = onnx.load(quantised_file(network, form, folder)), feeds(network, _SEED)
    floats = float_model(network)
    # steps of 1/255 leave nothing of a thousand like probabilities, so a classifier counts before its softmax
    results = [value.name for value in floats.graph.output]
    results = [logits_name(floats)] if len(results) == 1 else results
    rounded = [node.output[0] for node in model.graph.node if node.op_type in _ROUNDING]
    values = run_unfused(model, inputs, list(dict.fromkeys([*results, *rounded])))
    found = run_from(model, inputs, {name: values[name] for name in rounded})
    assert set(found) == set(rounded)
    steps = {name: np.abs(found[name].astype(np.int64) - values[name].astype(np.int64)) for name in rounded}
    assert max(int(step.max()) for step in steps.values()) <= 1, network
    assert sum(int(step.sum()) for step in steps.values()) <= 1e-5 * sum(step.size for step in steps.values()) + 1
    for name, array in run_unfused(floats, inputs, results).items():
        assert _ratio(array, values[name] - array) > 2, (network, name)


def _ratio(signal: Array, noise: Array) -> float:
    """Root mean squares, one over the other."""
    squares = [float(np.square(x, dtype=np.float64).sum()) for x in (signal, noise)]
    return sqrt(squares[0] / max(squares[1], 1e-60))


@pytest.mark.matrix(first=2, rest=8)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("network", [name for name in NETWORKS if name != "light_resnet50"])
def test_networks_are_within_a_step_of_onnx_runtime(network: str, form: Form, folder: Path) -> None:
    _check(network, form, folder)


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("form", ["dynamic", "uint8"])
def test_resnet50_is_within_a_step_of_onnx_runtime(form: Form, folder: Path) -> None:
    _check("light_resnet50", form, folder)


@pytest.mark.parametrize(("form", "kind"), [("int8", TensorProto.INT8), ("uint8", TensorProto.UINT8)])
def test_static_forms_have_activations_of_their_type_and_weights_per_channel(
    form: Form, kind: int, folder: Path
) -> None:
    model = onnx.load(quantised_file("mobilenet_v2_dynamo", form, folder))
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    makers = {node.output[0]: node for node in model.graph.node}
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    assert len(convolutions) > 30
    for node in convolutions:
        data, weight = (makers[name] for name in node.input[:2])
        assert data.op_type == weight.op_type == "DequantizeLinear"
        assert tensors[data.input[2]].data_type == kind
        assert tensors[weight.input[0]].data_type == TensorProto.INT8
        assert list(tensors[weight.input[1]].dims) == [tensors[weight.input[0]].dims[0]]


def test_the_dynamic_form_has_integer_products(folder: Path) -> None:
    model = onnx.load(quantised_file("bert_dynamo", "dynamic", folder))
    counts = Counter(node.op_type for node in model.graph.node)
    assert counts["MatMulInteger"] > 10
    assert counts["DynamicQuantizeLinear"] > 5


def test_a_made_file_is_kept(folder: Path) -> None:
    first = quantised_file("resnet_dynamo", "int8", folder)
    written = first.stat().st_mtime_ns
    assert quantised_file("resnet_dynamo", "int8", folder) == first
    assert first.stat().st_mtime_ns == written
    assert quantised_file("resnet_dynamo", "uint8", folder) != first


@pytest.fixture(scope="module")
def decoder_inputs() -> dict[str, Array]:
    """One input for all forms of the 4-bit decoder."""
    return four_bits.decoder().feeds(_SEED)


@pytest.mark.parametrize("form", four_bits.FORMS)
def test_the_decoder_of_four_bits_is_near_the_float_one(form: str, decoder_inputs: dict[str, Array]) -> None:
    floats = run_unfused(onnx.load_from_string(four_bits.decoder().read()), decoder_inputs)
    found = run(onnx.load(four_bits.four_bit_file(form)), decoder_inputs)
    for name, array in floats.items():
        assert 2 < _ratio(array, found[name] - array) < 1000, name


def test_both_writings_of_four_bits_mean_the_same(decoder_inputs: dict[str, Array]) -> None:
    blocks = onnx.load(four_bits.four_bit_file("qdq_uint4"))
    contrib = onnx.load(four_bits.four_bit_file("matmul_nbits"))
    assert sum(node.op_type == "MatMulNBits" for node in contrib.graph.node) == sum(
        node.op_type == "DequantizeLinear" and any(item.name == "block_size" for item in node.attribute)
        for node in blocks.graph.node
    )
    expected = run(blocks, decoder_inputs)
    for name, array in run(contrib, decoder_inputs).items():
        np.testing.assert_allclose(array, expected[name], rtol=0, atol=1e-4 * float(np.abs(expected[name]).max()))
