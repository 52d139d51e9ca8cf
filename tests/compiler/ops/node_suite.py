"""ONNX's node tests as values: what several test files compare with."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from compiler.units import DTYPE_NAMES
from tests.compiler.ops.calls import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One node test: its model, inputs and expected outputs."""

    name: str
    model: onnx.ModelProto
    opset: int
    feeds: dict[str, Values]
    expected: list[Values]
    rtol: float
    atol: float


@cache
def node_cases() -> tuple[Case, ...]:
    """All node tests whose inputs and outputs are tensors of known element types."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = load_model_tests(kind="node")
    return tuple(case for test in loaded for case in _cases(test))


def _cases(test: Any) -> Iterator[Case]:
    names = [value.name for value in test.model.graph.input]
    for inputs, outputs in test.data_sets:
        given, expected = _arrays(inputs), _arrays(outputs)
        versions = [entry.version for entry in test.model.opset_import if entry.domain in ("", "ai.onnx")]
        if given is None or expected is None or not versions:
            continue
        yield Case(
            name=test.name,
            model=test.model,
            opset=versions[0],
            feeds=dict(zip(names, given, strict=False)),
            expected=expected,
            rtol=test.rtol,
            atol=test.atol,
        )


def _arrays(given: list[Any]) -> list[Values] | None:
    result = []
    for item in given:
        array = numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item
        # an array, or what makes one when it is asked for (tests/backend/test_backend.py)
        if not isinstance(array, int | float) and not hasattr(array, "__array__"):
            return None
        result.append(np.asarray(array))
    return result if all(array.dtype.name in DTYPE_NAMES for array in result) else None


def difference(found: Values, expected: Values, case: Case) -> str | None:
    """How values differ, None if they agree; 16-bit types within their own rounding."""
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return f"{found.dtype}{found.shape} for {expected.dtype}{expected.shape}"
    short = {"float16": 4e-3, "bfloat16": 2e-2}.get(expected.dtype.name, 0)
    try:
        np.testing.assert_allclose(
            found.astype(np.float64),
            expected.astype(np.float64),
            rtol=max(case.rtol, short),
            atol=max(case.atol, short / 10, 1e-6),
        )
    except AssertionError as error:
        return " ".join(str(error).split())
    return None
