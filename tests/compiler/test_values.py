"""Importing keeps the values: the graph, run op by op, gives what ONNX Runtime gives for the file (IMPORT-2).

Batch normalisations are folded, patterns recognised, large weights split: whatever a pass did wrong shows here.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from compiler.frontend.lower import LowerModel
from compiler.frontend.normalise import FoldBatchNorm
from compiler.frontend.patterns import RecognisePatterns
from compiler.frontend.read import ReadModel
from compiler.frontend.source import ModelSource
from compiler.frontend.validate import ValidateModel
from compiler.fusion.candidate import SegmentCompilers
from compiler.ir.graph import Graph
from compiler.ir.verify import verify_graph
from compiler.options import Options
from compiler.partition.weights import SplitWeights
from compiler.profile import builtin_profile
from tests.compiler.execute import execute
from tests.exported import ExportedModel, exported_models

Value = NDArray[Any]
MODELS = exported_models()
# CI runs one export of each of so many networks, chosen by this seed; all of them under marker `full`.
SEED, SAMPLED = 11, 10


def _parameters() -> list[object]:
    chooser = random.Random(SEED)
    networks = chooser.sample(sorted({model.network for model in MODELS}), SAMPLED)
    sample = {chooser.choice([m.file for m in MODELS if m.network == network]) for network in networks}
    return [
        pytest.param(model, id=model.file, marks=() if model.file in sample else pytest.mark.full) for model in MODELS
    ]


def graph_of(source: ModelSource, dims: dict[str, int]) -> Graph:
    """The graph as partition gets it, for the profile with the smallest weights per chip."""
    compilers = SegmentCompilers(builtin_profile("manycore2x64"), Options())
    graph = LowerModel(dims=dims).run(ValidateModel().run(ReadModel().run(source)))
    for step in (
        FoldBatchNorm(),
        RecognisePatterns(source=source),
        SplitWeights(profile=compilers.profile, candidates=compilers.of),
    ):
        graph = step.run(graph)
        verify_graph(graph)
    return graph


def relative_error(actual: Value, expected: Value) -> float:
    """max |a − b| over the tensor relative to the root mean square of b (SIM-1)."""
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    return float(np.abs(a - b).max() / (np.sqrt(np.square(b).mean()) + 1e-12)) if b.size else 0.0


@pytest.mark.parametrize("model", _parameters())
def test_the_graph_of_an_exported_network_computes_what_the_file_computes(model: ExportedModel) -> None:
    """Every output agrees with ONNX Runtime, and another input gives another output."""
    data = model.read()
    source = ModelSource.from_bytes(data)
    graph = graph_of(source, model.dims)
    options = onnxruntime.SessionOptions()
    # quantised networks: its fused integer kernels round elsewhere than the operators do
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    seen = []
    for seed in (1, 2):
        feeds = model.feeds(seed)
        expected = session.run(
            list(graph.output_names), {entry.name: feeds[entry.name] for entry in session.get_inputs()}
        )
        values = execute(graph, source, feeds)
        for value, reference in zip(values, expected, strict=True):
            assert value.shape == reference.shape
            assert relative_error(value, np.asarray(reference)) < 1e-4
        seen.append(values[0])
    assert relative_error(seen[0], seen[1]) > 1e-3


def test_a_disturbed_weight_is_seen_by_the_comparison() -> None:
    """SIM-1: a check has to be able to fail."""
    model = next(m for m in MODELS if m.network == "resnet")
    source = ModelSource.from_bytes(model.read())
    graph = graph_of(source, model.dims)
    feeds = model.feeds(1)
    before = execute(graph, source, feeds)[0]
    first = next(op for op in graph.ops if op.kind == "Conv")
    bias = graph.tensors[first.inputs[2]]
    assert bias.constant is not None
    other = next(
        t for t in graph.tensors.values() if t.constant is not None and t.shape == bias.shape and t.name != bias.name
    )
    disturbed = replace(graph, tensors={**graph.tensors, bias.name: replace(bias, constant=other.constant)})
    assert relative_error(execute(disturbed, source, feeds)[0], before) > 1e-3
