"""Checks of an exported file in onnxruntime: values, and the multiply-accumulates at given shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from tests.export.network import Values

MATRIX_OPS = ("Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "Attention", "Einsum")


def run(data: bytes, inputs: Mapping[str, Values]) -> list[Values]:
    """The outputs of a model on the given inputs."""
    session = onnxruntime.InferenceSession(data, _options(), providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, dict(inputs))]


def _options() -> Any:
    """One thread, so that results repeat; no messages below errors."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return options


def relative_error(expected: Sequence[Values], actual: Sequence[Values]) -> float:
    """The largest difference of any output in proportion to that output's largest magnitude.

    Raises ValueError if the shapes differ or a value is not finite.
    """
    worst = 0.0
    for want, got in zip(expected, actual, strict=True):
        if want.shape != got.shape:
            raise ValueError(f"shape {got.shape} where {want.shape} is expected")
        if not np.isfinite(got).all():
            raise ValueError("values are not finite")
        if want.size:
            scale = float(np.abs(want).max()) or 1.0
            worst = max(worst, float(np.abs(want - got).max()) / scale)
    return worst


def multiply_accumulates(model: onnx.ModelProto, inputs: Mapping[str, Values]) -> int:
    """Multiply-accumulates of one run on the given inputs, from the shapes that occur while it runs.

    Counts convolutions, matrix products and recurrent cells, on padded positions too; nothing element-wise. An Einsum
    counts all combinations of its indices. Raises ValueError for a form of a node that has no count here.
    """
    nodes = [node for node in model.graph.node if node.op_type in MATRIX_OPS]
    known = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    names = sorted({name for node in nodes for name in (*node.input, *node.output) if name and name not in known})
    traced = onnx.ModelProto()
    traced.CopyFrom(model)
    del traced.graph.output[:]
    traced.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    options = _options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(traced.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = [output.name for output in session.get_outputs()]
    shapes = known | {
        name: np.asarray(value).shape for name, value in zip(found, session.run(found, dict(inputs)), strict=True)
    }
    return sum(_node_macs(node, shapes) for node in nodes)


def _node_macs(node: onnx.NodeProto, shapes: Mapping[str, Sequence[int]]) -> int:
    attributes: dict[str, Any] = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
    first, second = (shapes[name] for name in node.input[:2])
    if node.op_type == "Conv":
        return math.prod(shapes[node.output[0]]) * math.prod(second[1:])
    if node.op_type == "ConvTranspose":
        return math.prod(first) * math.prod(second[1:])
    if node.op_type == "MatMul":
        return math.prod(shapes[node.output[0]]) * first[-1]
    if node.op_type == "Gemm":
        return math.prod(shapes[node.output[0]]) * first[0 if attributes.get("transA") else 1]
    if node.op_type in ("LSTM", "GRU"):
        return math.prod(first[:2]) * (math.prod(second) + math.prod(shapes[node.input[2]]))
    if node.op_type == "Einsum":
        terms = attributes["equation"].decode().replace(" ", "").split("->")[0].split(",")
        pairs = zip(terms, node.input, strict=True)
        return math.prod(
            {index: size for term, name in pairs for index, size in zip(term, shapes[name], strict=True)}.values()
        )
    if node.op_type == "Attention":
        return _attention_macs(node, shapes, attributes)
    raise ValueError(f"node {node.name}: no count for {node.op_type}")


def _attention_macs(node: onnx.NodeProto, shapes: Mapping[str, Sequence[int]], attributes: Mapping[str, Any]) -> int:
    """Both products of Attention (opset 23) on queries, keys and values [batch, heads, tokens, width]."""
    query, key, value = (shapes[name] for name in node.input[:3])
    if len(query) != 4 or attributes.get("qk_matmul_output_mode"):
        raise ValueError(f"node {node.name}: no count for this form of Attention")
    past = shapes[node.input[4]][2] if len(node.input) > 4 and node.input[4] else 0
    return query[0] * query[1] * query[2] * (key[2] + past) * (query[3] + value[3])
