"""Importing keeps the values: the graph, run op by op, gives what ONNX Runtime gives for the file (IMPORT-2).

Batch normalisations are folded, patterns recognised, large weights split: whatever a pass did wrong shows here.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

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
from compiler.simulator.compare import compare, limits_of, relative_error
from compiler.simulator.reference import run_reference
from tests.compiler.execute import execute
from tests.exported import ExportedModel, exported_models

MODELS = exported_models()


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


@pytest.mark.matrix(first=3, rest=6)
@pytest.mark.parametrize("model", MODELS, ids=[model.file for model in MODELS])
def test_the_graph_of_an_exported_network_computes_what_the_file_computes(model: ExportedModel) -> None:
    """Every output agrees with ONNX Runtime, and another input gives another output."""
    source = ModelSource.from_bytes(model.read())
    graph = graph_of(source, model.dims)
    limits = limits_of(graph)
    seen = []
    for seed in (1, 2):
        feeds = model.feeds(seed)
        reference = run_reference(source, feeds)
        assert reference.has_run, reference.reason
        assert reference.reason == ""
        values = execute(graph, source, feeds)
        for name, tensor, value in zip(graph.output_names, graph.output_tensors, values, strict=True):
            found = compare(name, value, reference.values[name], limit=limits[tensor])
            assert found.holds, found
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
