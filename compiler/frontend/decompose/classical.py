"""Operators of ai.onnx.ml that are arithmetic, as operators of the standard: what stands before and behind networks.

Converters of pipelines write them for scaling, filling gaps, choosing columns and linear models. ONNX infers no shapes
for some of them, so that with one on the host nothing behind it could be planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx

from compiler.frontend.decompose.node_builder import Fresh, NodeList
from compiler.ops.base import Call

CLASSICAL_DOMAIN: Final = "ai.onnx.ml"
# The first operator set of the standard with Where and IsNaN.
_SELECTS: Final = 9
# From this operator set on floats compare as equal.
_COMPARES: Final = 11
_NUMBERS: Final = ("float32", "int64", "int32")
_ROWS: Final = 2
_Writer = Callable[[onnx.NodeProto, Call, NodeList], bool]


def classical_nodes(node: onnx.NodeProto, call: Call, fresh: Fresh) -> list[onnx.NodeProto] | None:
    """The nodes that replace a node of ai.onnx.ml; None if it stays. `call` has the operator set of the standard."""
    write = CLASSICAL_FORMS.get(node.op_type) if node.domain == CLASSICAL_DOMAIN else None
    known = all(tensor is None or (tensor.is_known and tensor.dtype in _NUMBERS) for tensor in call.inputs)
    nodes = NodeList(call=call, fresh=fresh)
    if write is None or not known or call.opset < _SELECTS or not write(node, call, nodes):
        return None
    return nodes.nodes


def _floats(node: onnx.NodeProto, call: Call, nodes: NodeList, index: int = 0) -> str:
    name: str = node.input[index]
    return name if call.tensor(index).dtype == "float32" else nodes.cast(name, "float32")


def _numbers(call: Call, name: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """A list of floats; empty if the node does not have it."""
    given = call.attributes.get(name, ())
    return np.array(given if isinstance(given, tuple) else (), dtype=np.float32)


def _fit(values: np.ndarray[tuple[int], np.dtype[np.float32]], call: Call) -> bool:
    """True for one value for all columns, or one for each."""
    shape = call.tensor(0).shape
    return bool(shape) and len(values) in (1, int(shape[-1]))


def _scaler(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """Scaler: (x - offset) · scale by column."""
    offset, scale = _numbers(call, "offset"), _numbers(call, "scale")
    if not (_fit(offset, call) and _fit(scale, call)):
        return False
    moved = nodes.add("Sub", _floats(node, call, nodes), nodes.constant(offset))
    nodes.add("Mul", moved, nodes.constant(scale), out=node.output[0])
    return True


def _binarizer(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """Binarizer: 1 above the threshold, else 0."""
    dtype = call.tensor(0).dtype
    if dtype != "float32":
        return False
    above = nodes.add("Greater", node.input[0], nodes.number(call.number("threshold", 0.0), dtype))
    nodes.cast(above, dtype, out=node.output[0])
    return True


def _imputer(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """Imputer of floats: values of its own, by column, in place of one that stands for gaps."""
    values, dtype = _numbers(call, "imputed_value_floats"), call.tensor(0).dtype
    if dtype != "float32" or not _fit(values, call):
        return False
    gap = call.number("replaced_value_float", 0.0)
    inputs = [node.input[0]] if np.isnan(gap) else [node.input[0], nodes.number(gap, dtype)]
    if len(inputs) > 1 and nodes.opset < _COMPARES:
        return False
    missing = nodes.add("IsNaN" if len(inputs) == 1 else "Equal", *inputs)
    nodes.add("Where", missing, nodes.constant(values), node.input[0], out=node.output[0])
    return True


def _normalizer(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """Normalizer: rows divided by their largest value, or the sum or root of the sum of squares; 0 divides nothing."""
    reduction = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}.get(str(call.attributes.get("norm", "MAX")))
    if reduction is None or len(call.tensor(0).shape) != _ROWS or nodes.opset < _COMPARES:
        return False
    data = _floats(node, call, nodes)
    size = nodes.reduce(reduction, data, 1)
    nothing = nodes.add("Equal", size, nodes.number(0, "float32"))
    nodes.add("Div", data, nodes.add("Where", nothing, nodes.number(1, "float32"), size), out=node.output[0])
    return True


def _columns(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """ArrayFeatureExtractor: the positions of the last axis that the second operand names; a list gets a first axis."""
    rank = len(call.tensor(0).shape)
    if rank == 0 or call.tensor(1).dtype != "int64":
        return False
    places = nodes.reshape(node.input[1], (-1,))
    found = nodes.add("Gather", node.input[0], places, out=None if rank == 1 else node.output[0], axis=rank - 1)
    if rank == 1:
        nodes.reshape(found, (1, -1), out=node.output[0])
    return True


def _vectorizer(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """FeatureVectorizer: columns side by side, as floats."""
    tensors = [call.tensor(index) for index in range(len(node.input))]
    widths = call.integers("inputdimensions") or ()
    if any(len(t.shape) != _ROWS for t in tensors) or [t.shape[1] for t in tensors] != list(widths):
        return False
    parts = [_floats(node, call, nodes, index) for index in range(len(tensors))]
    nodes.add("Concat", *parts, out=node.output[0], axis=1)
    return True


def _product(node: onnx.NodeProto, call: Call, nodes: NodeList, results: int, out: str | None = None) -> str | None:
    """Rows times coefficients, plus intercepts, for so many results; None if the numbers do not fit."""
    shape = call.tensor(0).shape
    weights, bias = _numbers(call, "coefficients"), _numbers(call, "intercepts")
    if len(shape) != _ROWS or len(weights) != results * shape[1] or len(bias) not in (0, results):
        return None
    matrix = nodes.constant(weights.reshape(results, int(shape[1])).T)
    data = _floats(node, call, nodes)
    if not len(bias):
        return nodes.add("MatMul", data, matrix, out=out)
    return nodes.add("Add", nodes.add("MatMul", data, matrix), nodes.constant(bias), out=out)


def _regressor(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """LinearRegressor without a transform of its result."""
    if call.attributes.get("post_transform", "NONE") != "NONE":
        return False
    return _product(node, call, nodes, call.integer("targets", 1), node.output[0]) is not None


def _classifier(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """LinearClassifier of three or more classes with integers for labels: the label of the best score, and scores."""
    labels, post = call.integers("classlabels_ints") or (), call.attributes.get("post_transform", "NONE")
    forms = {"NONE": "Identity", "LOGISTIC": "Sigmoid", "SOFTMAX": "Softmax"}
    if len(labels) <= _ROWS or post not in forms:
        return False
    scores = _product(node, call, nodes, len(labels))
    if scores is None:
        return False
    best = nodes.add("ArgMax", scores, axis=1, keepdims=0)
    nodes.add("Gather", nodes.integers(labels), best, out=node.output[0], axis=0)
    if len(node.output) > 1 and node.output[1]:
        axis = {"axis": 1} if post == "SOFTMAX" else {}
        nodes.add(forms[str(post)], scores, out=node.output[1], **axis)
    return True


CLASSICAL_FORMS: Final[Mapping[str, _Writer]] = MappingProxyType(
    {
        "ArrayFeatureExtractor": _columns,
        "Binarizer": _binarizer,
        "FeatureVectorizer": _vectorizer,
        "Imputer": _imputer,
        "LinearClassifier": _classifier,
        "LinearRegressor": _regressor,
        "Normalizer": _normalizer,
        "Scaler": _scaler,
    }
)
