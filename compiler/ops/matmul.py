"""Matrix products: MatMul (batched, broadcast) and Gemm."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Final

import numpy as np

from compiler.ir.box import WHOLE, AxisMap, same
from compiler.ir.symbol import ties_of
from compiler.ops.base import (
    FLOATS,
    Access,
    Array,
    Call,
    Inferred,
    MatrixShape,
    OpClass,
    Work,
    default_axes,
)
from compiler.ops.broadcasting import broadcast_access, broadcast_shapes, check_broadcasts
from compiler.ops.compute_types import Values, narrowed, summable
from compiler.ops.contraction import Product

# No matrix unit multiplies integers of 32 bits or more: the vector lanes do, one product and one sum per step.
_WIDE_INTEGERS: Final = ("int32", "int64")
_DTYPES: Final = (*FLOATS, *_WIDE_INTEGERS)


def _product_work(call: Call, inner: int) -> Work:
    if call.tensor(0).dtype in _WIDE_INTEGERS:
        return Work(vector_ops=Fraction(2 * inner))
    return Work(macs=Fraction(inner))


class MatMul(Product):
    """Matrix product as numpy.matmul: [..., M, K] × [..., K, N] -> [..., M, N]."""

    op_class = OpClass.MAIN
    is_local = True
    dtypes = _DTYPES

    def infer(self, call: Call) -> Inferred:
        left, right = call.tensor(0), call.tensor(1)
        a, b = left.shape, right.shape
        if not a or not b:
            call.fail("matrix product of a scalar", actual=f"{a} and {b}", limit="at least one axis each")
        if left.dtype != right.dtype:
            call.fail("inputs have different element types", actual=f"{left.dtype}, {right.dtype}")
        rows = a if len(a) > 1 else (1, *a)
        columns = b if len(b) > 1 else (*b, 1)
        if rows[-1] != columns[-2]:
            call.fail(
                "inner extents differ",
                actual=f"{a} and {b}",
                limit="last of the first = second-last of the second",
                ties=ties_of(rows[-1], columns[-2]),
            )
        batch = broadcast_shapes(call, (rows[:-2], columns[:-2]))
        shape = (*batch, *((rows[-2],) if len(a) > 1 else ()), *((columns[-1],) if len(b) > 1 else ()))
        return Inferred(shape=shape, dtype=left.dtype, axes=matmul_axes(len(shape)), kind=self.kind, inputs=(0, 1))

    def access(self, call: Call) -> Access:
        a, b = call.tensor(0).shape, call.tensor(1).shape
        rank = len(call.result.shape)
        batch = call.result.shape[: rank - (len(a) > 1) - (len(b) > 1)]
        left: tuple[AxisMap, ...] = (WHOLE,)
        if len(a) > 1:
            row = same(rank - 1 - (len(b) > 1))
            left = (*broadcast_access(a[:-2], batch), row, WHOLE)
        right: tuple[AxisMap, ...] = (WHOLE,)
        if len(b) > 1:
            right = (*broadcast_access(b[:-2], batch), WHOLE, same(rank - 1))
        return (left, right)

    def work(self, call: Call) -> Work:
        return _product_work(call, call.tensor(0).shape[-1])

    def matrix(self, call: Call) -> MatrixShape | None:
        if call.tensor(0).dtype in _WIDE_INTEGERS:
            return None
        b = call.tensor(1).shape
        return MatrixShape(
            groups=1, out_channels=b[-1] if len(b) > 1 else 1, in_channels=call.tensor(0).shape[-1], taps=1
        )

    def summed(self, call: Call) -> tuple[int, int]:
        return len(call.tensor(0).shape) - 1, max(0, len(call.tensor(1).shape) - 2)

    def sums(self, call: Call, given: Sequence[Array]) -> Values:
        del call
        data, weight = map(summable, given)
        return np.asarray(np.matmul(data, weight))

    def finished(self, call: Call, sums: Values, others: Sequence[Array | None]) -> Array:
        del others
        return narrowed(sums, call.result.dtype)


class Gemm(Product):
    """alpha·A'·B' + beta·C with A' [M, K], B' [K, N]; C broadcasts to [M, N]."""

    op_class = OpClass.MAIN
    is_local = True
    dtypes = _DTYPES

    def infer(self, call: Call) -> Inferred:
        a, b = call.tensor(0).shape, call.tensor(1).shape
        if len(a) != 2 or len(b) != 2:
            call.fail("both factors must be matrices", actual=f"{a} and {b}")
        dtypes = sorted({tensor.dtype for tensor in call.inputs if tensor is not None})
        if len(dtypes) > 1:
            call.fail("inputs have different element types", actual=", ".join(dtypes))
        transposed = (call.integer("transA", 0) != 0, call.integer("transB", 0) != 0)
        rows, inner = (a[1], a[0]) if transposed[0] else a
        inner_b, columns = (b[1], b[0]) if transposed[1] else b
        if inner != inner_b:
            call.fail(
                "inner extents differ",
                actual=f"{a} and {b}",
                limit="equal inner extents",
                ties=ties_of(inner, inner_b),
            )
        if call.has(2):
            check_broadcasts(call, 2, (rows, columns), "C does not broadcast to the product")
        return Inferred(
            shape=(rows, columns),
            dtype=call.tensor(0).dtype,
            axes=default_axes(2),
            kind=self.kind,
            inputs=(0, 1, 2) if call.has(2) else (0, 1),
            attributes={
                "transA": int(transposed[0]),
                "transB": int(transposed[1]),
                "alpha": call.number("alpha", 1.0),
                "beta": call.number("beta", 1.0),
            },
        )

    def access(self, call: Call) -> Access:
        left = (WHOLE, same(0)) if call.integer("transA", 0) else (same(0), WHOLE)
        right = (same(1), WHOLE) if call.integer("transB", 0) else (WHOLE, same(1))
        if not call.has(2):
            return (left, right)
        return (
            left,
            right,
            broadcast_access(call.tensor(2).shape, call.result.shape),
        )

    def work(self, call: Call) -> Work:
        return _product_work(call, _inner(call))

    def matrix(self, call: Call) -> MatrixShape | None:
        if call.tensor(0).dtype in _WIDE_INTEGERS:
            return None
        b = call.tensor(1)
        return MatrixShape(groups=1, out_channels=prod(b.shape) // _inner(call), in_channels=_inner(call), taps=1)

    def summed(self, call: Call) -> tuple[int, int]:
        return 0 if call.integer("transA", 0) else 1, 1 if call.integer("transB", 0) else 0

    def sums(self, call: Call, given: Sequence[Array]) -> Values:
        a, b = map(summable, given)
        return np.asarray(np.matmul(a.T if call.integer("transA", 0) else a, b.T if call.integer("transB", 0) else b))

    def finished(self, call: Call, sums: Values, others: Sequence[Array | None]) -> Array:
        alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
        result = sums if alpha == 1 else sums * np.float32(alpha)
        bias = others[0] if others else None
        if bias is not None:
            result = result + (summable(bias) if beta == 1 else summable(bias) * np.float32(beta))
        return narrowed(result, call.result.dtype)


def _inner(call: Call) -> int:
    return call.tensor(0).shape[0 if call.integer("transA", 0) else 1]


def matmul_axes(rank: int) -> tuple[str, ...]:
    """Rows are H (they tile freely), the last axis is C, leading axes are batches."""
    if rank <= 2:
        return default_axes(rank)
    return ("N", *(f"G{index}" if index else "G" for index in range(rank - 3)), "H", "C")
