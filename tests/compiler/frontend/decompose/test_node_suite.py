"""Decompositions against the values that ONNX's node tests store (IMPORT-5)."""

from __future__ import annotations

from collections import Counter

import numpy as np
from onnx import helper

from compiler.frontend.decompose import DECOMPOSED
from tests.compiler.frontend.decompose.replacing import replacement, run, single
from tests.compiler.ops.node_suite import difference, node_cases

# Node tests that the decompositions cover with the pinned onnx.
NODE_TESTS = 185
CONSTANT_POSITIONS = {
    **dict.fromkeys(("Trilu", "OneHot", "TopK", "GatherND", "GatherElements", "ScatterND", "ScatterElements"), (1,)),
    "ReverseSequence": (1,),
    "AffineGrid": (1,),
    "Col2Im": (1, 2),
    "DFT": (1, 2),
    "STFT": (1, 2, 3),
}


def test_every_node_test_of_a_decomposed_op_keeps_its_values() -> None:
    """IMPORT-5: Attention, RotaryEmbedding, Einsum, quantised and integer products, Trilu, OneHot."""
    covered: Counter[str] = Counter()
    left: list[str] = []
    failures: list[str] = []
    for case in node_cases():
        node = case.model.graph.node[0]
        if len(case.model.graph.node) > 1 or node.op_type not in DECOMPOSED:
            continue
        constants = [i for i in CONSTANT_POSITIONS.get(node.op_type, ()) if i < len(node.input) and node.input[i]]
        feeds = {name: single(array) for name, array in case.feeds.items()}
        nodes = replacement(node, feeds, case.opset, constants)
        if nodes is None:
            left.append(case.name)
            continue
        values = dict(feeds)
        run(nodes, values, case.opset, {node.input[i] for i in constants})
        for name, expected in zip((n for n in node.output if n), case.expected, strict=True):
            problem = difference(single(values[name]), single(expected), case)
            failures += [f"{case.name}: {problem}"] if problem else []
        covered[node.op_type] += 1
    print(f"{covered.total()} node tests: {dict(covered)}; not replaced: {left}")
    assert not failures, "\n".join(failures)
    assert covered.total() >= NODE_TESTS
    # ONNX has no node test of this one (see test_lp_pool.py)
    assert set(DECOMPOSED) - set(covered) == {"GlobalLpPool"}


def test_an_op_that_has_a_definition_is_not_replaced() -> None:
    feeds = {"x": np.ones(3, np.float32)}
    assert replacement(helper.make_node("Relu", ["x"], ["y"]), feeds, 14, ()) is None
