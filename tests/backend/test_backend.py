"""The ONNX backend test suite on simulated chips: models and stored outputs are ONNX's, test by test (SIM-1, IMPORT-5).

`make test` and `make test-sample` take seeded samples, `make backend` and `make test-all` the whole suite. The summary
at the end of a run says how many passed and in how many of them the chip computed an op; a run of the whole suite fails
below its minima.
"""

from __future__ import annotations

import unittest
import warnings
from collections.abc import Sequence
from inspect import signature
from typing import Any, Final

import pytest
from onnx.backend.test import BackendTest
from onnx.reference.ops.op_pool_common import pool

from tests.backend.backend import TesseraBackend
from tests.backend.skips import SKIPS
from tests.backend.summary import SUITE_TESTS

_SUFFIX: Final = "_cpu"
MATRIX: Final = pytest.mark.matrix(name="backend", first=20, rest=80)


class Suite(BackendTest):
    """The suite's runner; it compares sequences element by element, and downloads nothing."""

    @classmethod
    def assert_similar_outputs(
        cls, ref_outputs: Sequence[Any], outputs: Sequence[Any], rtol: float, atol: float, model_dir: str | None = None
    ) -> None:
        """The runner's own comparison takes an element of a sequence apart by rows, and a scalar has none."""
        assert len(ref_outputs) == len(outputs)
        for expected, got in zip(ref_outputs, outputs, strict=True):
            if isinstance(expected, list | tuple):
                assert isinstance(got, list | tuple)
                cls.assert_similar_outputs(expected, got, rtol, atol, model_dir)
            elif expected is None:
                assert got is None
            else:
                super().assert_similar_outputs([expected], [got], rtol, atol, model_dir)

    @classmethod
    def download_model(cls, model_test: Any, models_dir: str) -> None:
        """Refused: what the suite does not bring along is not tested."""
        raise unittest.SkipTest(f"{model_test.model_name} would have to be downloaded to {models_dir}")


class _Pooled:
    """What the suite's own reference makes of a pooling, once a test asks for it: it works window by window in Python.

    All of them took 5 s whenever the suite was collected.
    """

    def __init__(self, *words: Any, **names: Any) -> None:
        given = signature(pool).bind(*words, **names).arguments
        self.dtype, self.shape = given["padded"].dtype, (*given["x_shape"][:2], *given["out_shape"])
        self._given = given

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The values, in the shape that was promised."""
        values = pool(**self._given)
        assert (values.dtype, values.shape) == (self.dtype, self.shape)
        return values


def suite_cases() -> dict[str, type[unittest.TestCase]]:
    """The suite's test classes by name: skips with their reasons, the nine large networks marked `full`."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("onnx.reference.ops.op_pool_common.pool", _Pooled)
        # making the node tests divides by zero here and there
        warnings.simplefilter("ignore")
        cases: dict[str, type[unittest.TestCase]] = Suite(TesseraBackend, __name__).test_cases
    names = {name: case for case in cases.values() for name in vars(case) if name.startswith("test_")}
    for name, case in names.items():
        if not name.endswith(_SUFFIX):
            delattr(case, name)  # the twin on a device that there is not
    mine = sorted(name for name in names if name.endswith(_SUFFIX))
    for name in mine:
        function = getattr(names[name], name)
        reason = SKIPS.get(name.removesuffix(_SUFFIX))
        if reason is not None:
            function = unittest.skip(reason)(function)
        is_large = "RealModel" in names[name].__name__
        setattr(names[name], name, pytest.mark.full(function) if is_large else MATRIX(function))
    return cases


CASES = suite_cases()
globals().update(CASES)


def _names() -> set[str]:
    return {name.removesuffix(_SUFFIX) for case in CASES.values() for name in vars(case) if name.startswith("test_")}


def test_the_suite_is_whole() -> None:
    """Its tests are as many as the minima of the summary are stated for."""
    assert len(_names()) == SUITE_TESTS


def test_every_skip_names_a_test_of_the_suite() -> None:
    """What the suite no longer has, nobody skips; and the list stays short."""
    assert set(SKIPS) <= _names()
    assert len(SKIPS) <= 28
    assert all(SKIPS.values())
