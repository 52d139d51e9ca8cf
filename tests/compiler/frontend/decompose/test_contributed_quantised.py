"""Quantised operators of com.microsoft under older operator sets of the standard (IMPORT-9)."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.compile import compile_model
from compiler.profile import builtin_profile
from tests.compiler.frontend.decompose.test_contributed_fused import Contributed
from tests.compiler.planning import BY_RULES
from tests.models import import_graph


def product(opset: int, *, bias: bool = True) -> bytes:
    """DynamicQuantizeMatMul by a matrix of int8 with one scale, and with a bias or none."""
    model = Contributed(opset=opset)
    matrix = model.constant(model.random.integers(-60, 60, (16, 12)).astype(np.int8))
    scale, zero = model.constant(np.array(0.02, np.float32)), model.constant(np.array(0, np.int8))
    inputs = [model.input([5, 16], "x"), matrix, scale, zero, *([model.weight(12)] if bias else [])]
    model.output(model.node("DynamicQuantizeMatMul", inputs, domain="com.microsoft"))
    return model.data()


@pytest.mark.parametrize("opset", [11, 12, 13])
def test_a_bias_of_a_product_needs_no_conversion_along_an_axis(opset: int) -> None:
    """Scales along an axis came with operator set 13; a bias is none of them."""
    assert not import_graph(product(opset)).host
    values = compile_model(product(opset), builtin_profile("edge4"), BY_RULES).report.values
    assert values.checked
    assert all(output.holds for output in values.outputs)


def test_a_product_that_quantises_stays_on_the_host_where_the_standard_cannot_yet() -> None:
    assert {node.op_type for node in import_graph(product(10, bias=False)).host.values()} == {"DynamicQuantizeMatMul"}
