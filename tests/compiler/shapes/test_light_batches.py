"""The light networks of the onnx package with their batch left open, at a batch between the ends (SHAPE-9, SIM-1).

They are stored for a batch of one: their inputs and the shapes that they reshape to are given another. All but one case
are marked `full`.
"""

from __future__ import annotations

from itertools import product

import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from compiler.frontend.source import ModelSource
from tests.compiler.shapes.dynamic import Compiled
from tests.models import LIGHT_NAMES, light_path

CHIPS = ("edge4", "cluster4x4")
LIGHTEST = ("squeezenet", "shufflenet")


def with_any_batch(name: str) -> ModelSource:
    """A light network whose first dimension is `n`."""
    model = onnx.load(light_path(name))
    graph = model.graph
    del graph.value_info[:]
    weights = {tensor.name for tensor in graph.initializer}
    for value in (*graph.input, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if value.name not in weights and dims:
            dims[0].Clear()
            dims[0].dim_param = "n"
    for tensor in reshaped_to(model):
        shape = numpy_helper.to_array(tensor).copy()
        if shape[0] == 1:
            shape[0] = -1
            tensor.CopyFrom(numpy_helper.from_array(shape, tensor.name))
    return ModelSource.from_bytes(model.SerializeToString())


def reshaped_to(model: ModelProto) -> list[TensorProto]:
    """The constants that say what is reshaped to."""
    shapes = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    constants = [node for node in model.graph.node if node.op_type == "Constant" and node.output[0] in shapes]
    found = [tensor for tensor in model.graph.initializer if tensor.name in shapes]
    return found + [node.attribute[0].t for node in constants]


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize(
    ("name", "chip"),
    [
        pytest.param(*case, marks=() if case[0] in LIGHTEST else pytest.mark.full, id="-".join(case))
        for case in product(LIGHT_NAMES, CHIPS)
    ],
)
def test_a_light_network_runs_at_any_batch(name: str, chip: str) -> None:
    compiled = Compiled(with_any_batch(name), {"n": (1, 4)}, chip, verify="none")
    assert not compiled.misses({"n": 3})
