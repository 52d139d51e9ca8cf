"""What tests of decompositions share: the replacement of a node, run by the definitions."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler.frontend.decompose import decompose
from compiler.ops import OP_KINDS
from tests.compiler.ops.calls import Values, call_of_node, evaluated


def replacement(
    node: onnx.NodeProto, values: Mapping[str, Values], opset: int, constants: Sequence[int]
) -> tuple[onnx.NodeProto, ...] | None:
    """The nodes in place of one node; inputs at positions `constants` are known at compile time."""
    count = itertools.count()
    call = call_of_node(node, values, opset, constants=constants)
    found = decompose(node, call, lambda hint: f"{hint}#{next(count)}")
    return None if found is None else tuple(found.nodes)


def run(nodes: Sequence[onnx.NodeProto], values: dict[str, Values], opset: int, constants: set[str]) -> Counter[str]:
    """Fill in the values of a replacement by the definitions; what they cannot run is an error. The kinds used."""
    used: Counter[str] = Counter()
    for node in nodes:
        assert not set(node.output) & set(values), "a value is made twice"
        if node.op_type == "Constant":
            values[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
            assert values[node.output[0]].size <= 4096
            constants.add(node.output[0])
            continue
        if node.op_type == "Split":
            sizes = values[node.input[1]] if len(node.input) > 1 else np.array(node.attribute[1].ints)
            parts = np.split(values[node.input[0]], np.cumsum(sizes)[:-1], axis=node.attribute[0].i)
            values.update(zip(node.output, parts, strict=True))
            continue
        known = [i for i, name in enumerate(node.input) if name in constants]
        call = call_of_node(node, values, opset, constants=known)
        refusal = OP_KINDS[node.op_type].unsupported(call)
        assert refusal is None, f"{node.op_type}: {refusal}"
        values[node.output[0]] = evaluated(node, call, values)
        used[node.op_type] += 1
    return used


def results(
    node: onnx.NodeProto, feeds: Mapping[str, Values], opset: int, constants: Sequence[int] = ()
) -> tuple[dict[str, Values], Counter[str]]:
    """All values that a node's replacement makes, and the kinds that it uses."""
    nodes = replacement(node, feeds, opset, constants)
    assert nodes is not None
    values = dict(feeds)
    used = run(nodes, values, opset, {node.input[i] for i in constants})
    return values, used


def reference(node: onnx.NodeProto, feeds: Mapping[str, Values], opset: int) -> list[Values]:
    """The node's outputs by ONNX's reference."""
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return [np.asarray(value) for value in ReferenceEvaluator(model).run(None, dict(feeds))]


def single(array: Values) -> Values:
    """Double precision, which the accelerator lacks, as float32."""
    return array.astype(np.float32) if array.dtype == np.float64 else array


def agree(found: Values, expected: Values, tolerance: float = 1e-5) -> None:
    """Equal shapes and types, and values within a relative tolerance."""
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance)
