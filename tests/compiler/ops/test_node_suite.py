"""ONNX's own node tests: shapes, element types and values of every native kind against what they store (IMPORT-5)."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler.ops import OP_KINDS
from tests.compiler.ops.calls import Values, call_of_node, evaluated
from tests.compiler.ops.node_suite import Case, difference, node_cases

# What the definitions reach with the pinned onnx; a lower count means that something is no longer checked.
SINGLE_TESTS, SINGLE_KINDS = 564, 101
GRAPH_TESTS = 391
# Evaluated by ONNX's reference inside a graph: they make constants, or belong to the host.
_LEFT_OUT = ("If", "Loop", "Scan", "SequenceMap", "Optional", "OptionalGetElement", "RandomUniformLike")


def is_native(case: Case) -> bool:
    """True if the test is one node of a native kind."""
    (*_, node) = case.model.graph.node
    return len(case.model.graph.node) == 1 and node.op_type in OP_KINDS and not node.domain


def test_every_supported_node_test_agrees_in_shape_type_and_values() -> None:
    """IMPORT-5: infer and evaluate, kind by kind."""
    covered: Counter[str] = Counter()
    failures = []
    for case in filter(is_native, node_cases()):
        (node,) = case.model.graph.node
        call = call_of_node(node, case.feeds, case.opset)
        # what the accelerator does not run is still folded, if only its element type is in the way
        if OP_KINDS[node.op_type].unsupported(call, any_dtype=True) is not None:
            continue
        problem = difference(evaluated(node, call, case.feeds), case.expected[0], case)
        if problem is not None:
            failures.append(f"{case.name}: {problem}")
        covered[node.op_type] += OP_KINDS[node.op_type].unsupported(call) is None
    print(f"{covered.total()} node tests of {len(+covered)} kinds")
    assert not failures, "\n".join(failures)
    assert covered.total() >= SINGLE_TESTS
    assert len(+covered) >= SINGLE_KINDS


def test_operators_expanded_into_functions_agree_when_run_by_the_definitions() -> None:
    """The `_expanded` node tests: whole graphs, each native node by its definition, the rest by ONNX's reference."""
    native: Counter[str] = Counter()
    covered = 0
    failures = []
    for case in node_cases():
        nodes = case.model.graph.node
        if len(nodes) == 1 or any(node.op_type in _LEFT_OUT for node in nodes) or "training" in case.name:
            continue
        values = {**case.feeds, **{t.name: numpy_helper.to_array(t) for t in case.model.graph.initializer}}
        used = run(case, values)
        problems = [
            difference(values[output.name], expected, case)
            for output, expected in zip(case.model.graph.output, case.expected, strict=True)
        ]
        failures += [f"{case.name}: {problem}" for problem in problems if problem is not None]
        covered += 1
        native.update(used)
    print(f"{covered} graphs with {native.total()} native nodes of {len(native)} kinds")
    assert not failures, "\n".join(failures)
    assert covered >= GRAPH_TESTS


def run(case: Case, values: dict[str, Values]) -> list[str]:
    """Fill in the values of a graph, node by node; the kinds evaluated by their definitions."""
    used = []
    for node in case.model.graph.node:
        kind = OP_KINDS.get(node.op_type)
        call = call_of_node(node, values, case.opset) if kind and not node.domain else None
        if kind is None or call is None or any(node.output[1:]) or kind.unsupported(call, any_dtype=True):
            values.update(zip(node.output, by_reference(node, values, case.opset), strict=True))
            continue
        values[node.output[0]] = evaluated(node, call, values)
        used.append(node.op_type)
    return used


def by_reference(node: onnx.NodeProto, values: dict[str, Values], opset: int) -> list[Values]:
    """The outputs of one node by ONNX's reference evaluation."""
    names = [name for name in node.input if name]
    graph = onnx.helper.make_graph(
        [node],
        "one",
        [onnx.helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(names)],
        [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = iter(ReferenceEvaluator(model).run(None, {name: values[name] for name in names}))
    return [np.asarray(next(found)) if name else np.zeros(0) for name in node.output]
