"""Attention as one op: steps of scores, parts of the keys, rows without a key (SCHED-4)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from compiler.errors import TesseraError
from compiler.ir.graph import Attribute, Op, Tensor
from compiler.ops import FUSED_ATTENTION, definition
from compiler.ops.attention import FusedAttention
from compiler.ops.base import Call, default_axes
from compiler.ops.slab import Slab

INF = float("inf")


def tensor(name: str, array: np.ndarray[Any, Any]) -> Tensor:
    return Tensor(name=name, shape=array.shape, dtype=array.dtype.name, axes=default_axes(array.ndim))


def kind() -> FusedAttention:
    found = definition(Op(kind=FUSED_ATTENTION, inputs=(), output="y", origin=("n",)))
    assert isinstance(found, FusedAttention)
    return found


def call_of(arrays: list[np.ndarray[Any, Any]], steps: dict[str, float], *, nan_as_zero: bool = False) -> Call:
    attributes: dict[str, Attribute] = {
        "steps": tuple(steps),
        "numbers": tuple(steps.values()),
        "nan_as_zero": int(nan_as_zero),
    }
    inputs = tuple(tensor(str(number), array) for number, array in enumerate(arrays))
    call = Call(op_type=FUSED_ATTENTION, node="n", attributes=attributes, inputs=inputs, opset=23)
    found = kind().infer(call)
    output = Tensor(name="y", shape=found.shape, dtype=found.dtype, axes=found.axes)
    return Call(op_type=FUSED_ATTENTION, node="n", attributes=attributes, inputs=inputs, opset=23, output=output)


def in_parts(call: Call, arrays: list[np.ndarray[Any, Any]], size: int) -> np.ndarray[Any, Any]:
    """The whole result, made over parts of the keys one after another."""
    box = tuple((0, extent) for extent in call.result.shape)
    axes, keys = kind().summed(call), arrays[-1].shape[-2]
    assert axes is not None
    total: Any = None
    for begin in range(0, keys, size):
        part = (begin, min(keys, begin + size))
        slabs = []
        for array, axis in zip(arrays, axes, strict=True):
            ranges = tuple(part if own == axis else (0, extent) for own, extent in enumerate(array.shape))
            slabs.append(Slab(ranges, array[tuple(slice(*its) for its in ranges)]))
        sums = kind().compute_box(call, box, tuple(slabs), partial=True)
        assert sums.dtype == np.complex64
        total = sums if total is None else kind().joined(total, sums).astype(np.complex64)
    return kind().finish(call, box, total, ())


def at_once(call: Call, arrays: list[np.ndarray[Any, Any]]) -> Any:
    """The whole result from the definition."""
    return kind().evaluate(call, tuple(arrays))


def expected(scores: np.ndarray[Any, Any], value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True) @ value)


@pytest.mark.parametrize("size", [1, 3, 7, 64])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("low", [-1e4, -1e9, float(np.finfo(np.float32).min)])
def test_parts_of_the_keys_come_to_the_same_as_all_at_once(size: int, batch: tuple[int, ...], low: float) -> None:
    """Rows whose scores are all as low as a float gets weigh their keys like others."""
    random = np.random.default_rng(len(batch))
    query, key, value = (
        (3 * random.standard_normal((*batch, *shape))).astype(np.float32) for shape in ((5, 8), (8, 20), (20, 6))
    )
    mask = np.where(random.random((5, 20)) < 0.5, -INF, random.standard_normal((5, 20))).astype(np.float32)
    mask[2] = -INF
    mask[3, :9] = -INF
    mask[4], mask[1, 4:] = low, low
    mask[:, 11] = [0, 0, -INF, 0, 0]
    arrays = [query, mask, key, value]
    call = call_of(arrays, {"times": 0.25, "plus tensor": 0.0})
    want = expected((query @ key * np.float32(0.25) + mask).astype(np.float64), value)
    assert np.isnan(want[..., 2, :]).all()
    for found in (at_once(call, arrays), in_parts(call, arrays, size)):
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-6)
    as_zero = call_of(arrays, {"times": 0.25, "plus tensor": 0.0}, nan_as_zero=True)
    for found in (at_once(as_zero, arrays), in_parts(as_zero, arrays, size)):
        np.testing.assert_allclose(found, np.nan_to_num(want), rtol=2e-5, atol=2e-6)


def test_every_step_does_what_it_says() -> None:
    random = np.random.default_rng(0)
    query, key, value = (random.standard_normal(shape).astype(np.float32) for shape in ((4, 8), (8, 12), (12, 3)))
    chosen, other = random.random((4, 12)) < 0.7, random.random((1, 12)) < 0.3
    steps = {
        "over": 2.0,
        "tanh": 0.0,
        "times": 5.0,
        "least": -3.0,
        "rounded to float16": 0.0,
        "where tensor": -4.0,
        "unless tensor": -INF,
    }
    arrays = [query, chosen, other, key, value]
    call = call_of(arrays, steps)
    scores = np.maximum(np.tanh(query @ key / 2) * 5, -3).astype(np.float16).astype(np.float64)
    want = expected(np.where(other, -INF, np.where(chosen, scores, -4.0)), value)
    for found in (at_once(call, arrays), in_parts(call, arrays, 5)):
        np.testing.assert_allclose(found, want, rtol=2e-3, atol=1e-4)
    exact = at_once(call, arrays)
    np.testing.assert_allclose(in_parts(call, arrays, 5), exact, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("steps", "numbers"),
    [
        (("twice",), (1.0,)),
        (("times",), ()),
        ("times", (1.0,)),
        (("plus tensor",), (0.0,)),
        (("rounded to int8",), (0.0,)),
    ],
)
def test_what_is_no_step_is_refused(steps: Any, numbers: Any) -> None:
    arrays = [np.zeros(shape, np.float32) for shape in ((4, 8), (8, 12), (12, 3))]
    inputs = tuple(tensor(str(number), array) for number, array in enumerate(arrays))
    call = Call(
        op_type=FUSED_ATTENTION, node="n", attributes={"steps": steps, "numbers": numbers}, inputs=inputs, opset=23
    )
    with pytest.raises(TesseraError):
        kind().infer(call)
