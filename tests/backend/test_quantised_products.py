"""The suite's products of quantised operators run on the int8 array; factors and scales are inputs there (IMPORT-9)."""

from __future__ import annotations

import warnings
from typing import Any, Final

import numpy as np
import pytest
from onnx.backend.test.case.node import collect_testcases

from compiler.compile import compile_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.simulator.run import run_executable

_PRODUCTS: Final = ("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger")


def _cases() -> list[Any]:
    with warnings.catch_warnings():
        # making the node tests divides by zero here and there
        warnings.simplefilter("ignore")
        cases: list[Any] = collect_testcases(None)
    found = [case for case in cases if any(node.op_type in _PRODUCTS for node in case.model.graph.node)]
    assert len(found) == 12
    return [pytest.param(case, id=case.name) for case in found]


@pytest.mark.matrix(first=8, rest=8)
@pytest.mark.parametrize("case", _cases())
@pytest.mark.parametrize("chip", ["edge4", "polar4x4"])
def test_products_of_quantised_operators_sum_integers(case: Any, chip: str) -> None:
    options = parse_options({"fusion": "rules", "verify": "none"})
    made = compile_model(case.model.SerializeToString(), builtin_profile(chip), options)
    assert set(made.plan.arithmetic.macs) == {"int8"}
    assert [segment.kind for segment in made.plan.segments if segment.kind == "host"] == []
    assert made.executable is not None
    ((inputs, outputs),) = case.data_sets
    graph = case.model.graph
    feeds = {value.name: np.asarray(array) for value, array in zip(graph.input, inputs, strict=True)}
    found = run_executable(made.executable, feeds)
    for value, expected in zip(graph.output, outputs, strict=True):
        np.testing.assert_array_equal(found[value.name], expected)
