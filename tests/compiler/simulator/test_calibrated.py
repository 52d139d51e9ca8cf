"""The light models with meaningful weights: outputs depend on inputs and on every weight (SIM-1, FACTS)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from compiler.frontend.source import ModelSource
from compiler.simulator.compare import FLOOR, compare, limits_of, relative_error
from compiler.simulator.inputs import random_inputs
from compiler.simulator.reference import evaluated, run_reference
from tests.calibrate import calibrated, calibrated_file, logits_name, weight_names
from tests.compiler.test_values import graph_of
from tests.models import LIGHT_NAMES, light_path

Array = NDArray[Any]
# models whose weights are below 50 MB
SMALL = ("densenet121", "inception_v1", "inception_v2", "shufflenet", "squeezenet")
MODELS = [pytest.param(name, marks=() if name in SMALL else pytest.mark.full) for name in LIGHT_NAMES]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where calibrated models are kept for the session."""
    return tmp_path_factory.mktemp("calibrated")


def image(seed: int) -> Array:
    """A random image."""
    return np.random.default_rng(seed).standard_normal((1, 3, 224, 224)).astype(np.float32)


def logits(data: bytes, picture: Array) -> Array:
    """The values before the softmax, by ONNX Runtime."""
    model = onnx.load_from_string(data)
    name, given = logits_name(model), model.graph.input[0].name
    found = run_reference(ModelSource.from_bytes(data), {given: picture}, wanted=[name])
    assert found.reason == ""
    return np.asarray(found.values[name])


def disturbed(data: bytes, weight: str) -> bytes:
    """The model with each element of one weight changed by about 5 %."""
    model = onnx.load_from_string(data)
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == weight)
    values = numpy_helper.to_array(tensor)
    noise = np.random.default_rng(0).standard_normal(values.shape, dtype=np.float32)
    tensor.raw_data = (values * (1 + np.float32(0.05) * noise)).tobytes()
    return bytes(model.SerializeToString())


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("name", MODELS)
def test_two_inputs_give_outputs_that_differ_far_beyond_the_limit(name: str, folder: Path) -> None:
    """100 times the limit, before the softmax; with the models' own weights the difference is exactly 0."""
    data = calibrated_file(name, folder).read_bytes()
    assert relative_error(logits(data, image(100)), logits(data, image(101))) > 100 * FLOOR


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("name", MODELS)
def test_one_disturbed_weight_is_detected_wherever_it_is(name: str, folder: Path) -> None:
    """In the first, a middle and the last layer, far beyond the limit."""
    data = calibrated_file(name, folder).read_bytes()
    weights = weight_names(onnx.load_from_string(data))
    picture = image(100)
    expected = logits(data, picture)
    for weight in (weights[0], weights[len(weights) // 2], weights[-1]):
        assert relative_error(logits(disturbed(data, weight), picture), expected) > 20 * FLOOR, weight


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_of_the_graph_is_what_onnx_runtime_makes_of_the_file(name: str, folder: Path) -> None:
    """Networks are well conditioned: rounding stays within half of the limit, through all layers."""
    source = ModelSource.from_bytes(calibrated_file(name, folder).read_bytes())
    graph = graph_of(source, {})
    named = {output for node in onnx.load(light_path(name)).graph.node for output in node.output}
    made = [op.output for op in graph.ops if op.output in named]
    inputs = random_inputs(graph, 7)
    expected = run_reference(source, inputs, wanted=made)
    limits = limits_of(graph)
    found = [
        compare(tensor, value, expected.values[tensor], limit=limits[tensor])
        for tensor, value in evaluated(graph, source, inputs)
        if tensor in expected.values
    ]
    assert len(found) == len(made) > 20
    assert [c for c in found if c.max_error > c.limit / 2] == []


def test_the_graph_stays_what_it_was_apart_from_what_made_the_weights() -> None:
    before = onnx.load(light_path("squeezenet"))
    after = onnx.load_from_string(calibrated("squeezenet"))
    kept = [node for node in before.graph.node if node.op_type != "ConstantOfShape"]
    assert [node.SerializeToString() for node in after.graph.node] == [node.SerializeToString() for node in kept]
    assert after.opset_import == before.opset_import
    assert after.graph.output == before.graph.output
    assert [value.name for value in after.graph.input] == ["data_0"]
    onnx.checker.check_model(after, full_check=True)


def test_calibration_gives_the_same_bytes_every_time(folder: Path) -> None:
    path = calibrated_file("squeezenet", folder)
    assert path.read_bytes() == calibrated("squeezenet")
    assert sorted(other.suffix for other in folder.iterdir() if other.stem == path.stem) == [".onnx"]
