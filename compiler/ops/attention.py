"""Attention as one op: the weighted sum of values by the softmax of scores, made in parts of the keys (SCHED-4)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction
from typing import Final

import numpy as np

from compiler.ir.box import WHOLE, AxisMap, same
from compiler.ops.base import (
    FLOATS,
    Access,
    Array,
    Call,
    Inferred,
    MatrixShape,
    OpClass,
    Work,
)
from compiler.ops.broadcasting import broadcast_access, broadcast_shapes
from compiler.ops.compute_types import Values, narrowed, summable, widened
from compiler.ops.contraction import Product
from compiler.ops.matmul import matmul_axes
from compiler.units import ceil_div

# A row of pairs has two numbers of its own: its largest score, and its sum of weights.
_COLUMNS_MIN: Final = 2
# Queries, keys and values.
_OPERANDS: Final = 3
# Of softmax: maximum, difference, exponential (four operations), sum; the quotient is taken of the results.
_SOFTMAX: Final = 7
# Two parts are joined by a weight for each (maximum, difference, exponential), two products and a sum.
_JOINING: Final = 9


class ScoreStep(StrEnum):
    """What may be done with scores before the softmax: with a number, or with a tensor that broadcasts to them."""

    TIMES = "times"
    OVER = "over"
    LEAST = "least"
    TANH = "tanh"
    ROUNDED = "rounded"  # to an element type, as "rounded to float16"
    PLUS = "plus tensor"
    WHERE = "where tensor"  # the number where the tensor is false
    UNLESS = "unless tensor"  # the number where the tensor is true


TENSOR_STEPS: Final = (ScoreStep.PLUS, ScoreStep.WHERE, ScoreStep.UNLESS)


class FusedAttention(Product):
    """softmax(steps(Q·K))·V: [..., M, D], [..., D, L], [..., L, E] -> [..., M, E]; a pass makes it.

    Inputs: Q, the tensors of the steps, which broadcast to the scores [..., M, L], K and V. Attributes: `steps`, and a
    number for each in `numbers`; with `nan_as_zero`, softmax's NaN count as 0 (of rows whose scores are all −∞).

    L is summed, and may be in parts where E is 2 at least. What waits for the next part are pairs of floats: sums of
    weighted values, and beside them the row's largest score and its sum of weights, relative to which the sums are. The
    rest of a row's second floats has room for the scores that the array makes at once, so these are not counted beside.
    """

    op_class = OpClass.MAIN
    is_local = True
    dtypes = FLOATS

    def infer(self, call: Call) -> Inferred:
        _steps(call)
        query, key, value = call.tensor(0), call.tensor(len(call.inputs) - 2), call.tensor(len(call.inputs) - 1)
        shapes = (query.shape, key.shape, value.shape)
        if min(map(len, shapes)) < 2 or query.shape[-1] != key.shape[-2] or key.shape[-1] != value.shape[-2]:
            call.fail("queries, keys and values do not fit each other", actual=shapes)
        batch = broadcast_shapes(call, tuple(shape[:-2] for shape in shapes))
        shape = (*batch, query.shape[-2], value.shape[-1])
        return Inferred(
            shape=shape,
            dtype=query.dtype,
            axes=matmul_axes(len(shape)),
            kind=self.kind,
            inputs=tuple(range(len(call.inputs))),
            attributes=dict(call.attributes),
        )

    def access(self, call: Call) -> Access:
        _steps(call)
        rank, last = len(call.result.shape), len(call.inputs) - 1
        rows = call.result.shape[:-1]
        maps: list[tuple[AxisMap, ...]] = []
        for number in range(last - 1):
            # queries, and what broadcasts to the scores: rows follow those of the result
            shape = call.tensor(number).shape
            maps.append((*broadcast_access(shape[:-1], rows), WHOLE) if shape else ())
        for number, columns in ((last - 1, WHOLE), (last, same(rank - 1))):
            maps.append((*broadcast_access(call.tensor(number).shape[:-2], rows[:-1]), WHOLE, columns))
        return tuple(maps)

    def work(self, call: Call) -> Work:
        keys, columns = self._keys(call), call.result.shape[-1]
        each = Fraction(keys, max(1, columns))
        summing = each * (_SOFTMAX + len(_steps(call)))
        return Work(
            macs=each * (call.tensor(0).shape[-1] + columns),
            vector_ops=summing + 1,
            summing=summing,
            joining=Fraction(_JOINING),
        )

    def matrix(self, call: Call) -> MatrixShape | None:
        # the scores of a key cost as much as so many more taps of the sum over keys
        inner, columns = call.tensor(0).shape[-1], max(1, call.result.shape[-1])
        return MatrixShape(
            groups=1, out_channels=columns, in_channels=self._keys(call), taps=ceil_div(inner + columns, columns)
        )

    def streamed(self, call: Call) -> tuple[int, ...]:
        return tuple(range(len(call.inputs)))

    def factors(self, call: Call) -> int:
        return len(call.inputs)

    def summed(self, call: Call) -> tuple[int | None, ...] | None:
        if call.tensor(len(call.inputs) - 1).shape[-1] < _COLUMNS_MIN:
            return None
        keys, last = self._keys(call), len(call.inputs) - 1
        shapes = [call.tensor(number).shape for number in range(last + 1)]
        of_steps = (
            len(shape) - 1 if shape and shape[-1] == keys and keys > 1 else None for shape in shapes[1 : last - 1]
        )
        return (None, *of_steps, len(shapes[-2]) - 1, len(shapes[-1]) - 2)

    def accumulator(self, call: Call) -> str:
        del call
        return "float32x2"

    def sums(self, call: Call, given: Sequence[Array]) -> Values:
        query, *tensors, key, value = given
        scores = _scores(call, np.matmul(summable(query), summable(key)), tensors)
        most = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        weights = summable(np.exp(scores - _finite(most)))
        return _pairs(np.matmul(weights, summable(value)), most, weights.sum(axis=-1, keepdims=True))

    def joined(self, before: Array, sums: Array) -> Values:
        parts = [(part.real.astype(np.float64), *_most_and_total(part)) for part in (before, sums)]
        most = np.maximum(parts[0][1], parts[1][1])
        shares = [np.exp(its - _finite(most)) for _, its, _ in parts]
        sums, total = (sum(part[at] * share for part, share in zip(parts, shares, strict=True)) for at in (0, 2))
        return _pairs(sums, most, total)

    def finished(self, call: Call, sums: Values, others: Sequence[Array | None]) -> Array:
        del others
        _, total = _most_and_total(sums)
        instead = 0.0 if call.integer("nan_as_zero", 0) else np.nan
        results = np.where(total > 0, sums.real / np.where(total > 0, total, 1), instead)
        return narrowed(results, call.result.dtype)

    @staticmethod
    def _keys(call: Call) -> int:
        return call.tensor(len(call.inputs) - 1).shape[-2]


def _pairs(sums: Values, most: Values, total: Values) -> Values:
    """Sums of weighted values, and beside a row's first one its largest score, beside the others its sum of weights."""
    found = np.empty(sums.shape, dtype=np.complex128)
    found.real, found.imag[..., :1], found.imag[..., 1:] = sums, most, total
    return found


def _most_and_total(pairs: Values) -> tuple[Values, Values]:
    """The largest score of each row, and its sum of weights."""
    if pairs.shape[-1] < _COLUMNS_MIN:
        raise ValueError("a row of pairs has no room for its largest score and its sum of weights")
    return pairs.imag[..., :1].astype(np.float64), pairs.imag[..., 1:2].astype(np.float64)


def _finite(most: Values) -> Values:
    """What is taken off scores: nothing where there is no score but -∞."""
    return np.where(most == -np.inf, 0, most)


def _scores(call: Call, products: Values, tensors: Sequence[Array]) -> Values:
    """The scores that softmax gets: every step rounds to the element type that scores have there."""
    dtype, left = call.result.dtype, iter(tensors)
    scores = widened(narrowed(products, dtype))
    for step, name, number in _steps(call):
        dtype = name or dtype
        tensor = next(left) if step in TENSOR_STEPS else None
        scores = widened(narrowed(_after(step, scores, scores.dtype.type(number), tensor), dtype))
    return scores


def _steps(call: Call) -> list[tuple[ScoreStep, str, float]]:
    """The steps, each with the element type that it rounds to ("" for none) and its number."""
    steps, numbers = call.attributes.get("steps", ()), call.attributes.get("numbers", ())
    if not isinstance(steps, tuple) or not isinstance(numbers, tuple) or len(steps) != len(numbers):
        call.fail("every step of the scores has a number", actual=f"{steps} and {numbers}")
    found = []
    for step, number in zip(steps, numbers, strict=True):
        kind, _, name = str(step).partition(" to ")
        if kind not in tuple(ScoreStep) or (kind == ScoreStep.ROUNDED) != (name in FLOATS):
            call.fail("an unknown step of the scores", actual=str(step), limit=", ".join(ScoreStep))
        if not isinstance(number, float):
            call.fail("numbers of steps are floats", actual=str(number))
        found.append((ScoreStep(kind), name, number))
    if len(call.inputs) != _OPERANDS + sum(step in TENSOR_STEPS for step, _, _ in found):
        call.fail("inputs are Q, a tensor for each step that has one, K and V", actual=len(call.inputs))
    return found


def _after(step: ScoreStep, scores: Values, number: Values, tensor: Array | None) -> Values:
    match step:
        case ScoreStep.TIMES:
            found = scores * number
        case ScoreStep.OVER:
            found = scores / number
        case ScoreStep.LEAST:
            found = np.maximum(scores, number)
        case ScoreStep.TANH:
            found = np.tanh(scores)
        case ScoreStep.ROUNDED:
            found = scores
        case ScoreStep.PLUS:
            found = scores + widened(np.asarray(tensor))
        case ScoreStep.WHERE:
            found = np.where(np.asarray(tensor), scores, number)
        case ScoreStep.UNLESS:
            found = np.where(np.asarray(tensor), number, scores)
    return np.asarray(found)
