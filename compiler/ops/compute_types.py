"""Shared by all evaluations: the types they compute in, and the error function, which numpy lacks."""

from __future__ import annotations

from collections.abc import Sequence
from math import erf, pi, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.ops.base import Array
from compiler.units import numpy_dtype

Values = NDArray[Any]


def widened(array: Array) -> Values:
    """The array in its computation type: float32 for 16-bit floats, unchanged for others."""
    if array.dtype.kind not in "biuf" or array.dtype == np.float16:  # bfloat16 has another kind letter
        return array.astype(np.float32)
    return array


def summable(array: Array) -> Values:
    """The array in the type that sums its products: float64 for floats, unchanged for others.

    In float32 the order of summation shows in the last digits. A matrix product sums the last columns of a block in
    another order than the rest, so channels of equal weights would differ. In float64 such sums differ by 1e-16 and
    round to the same float32. Chips sum in float32 or wider, in their own order.
    """
    return array if array.dtype.kind in "biu" else array.astype(np.float64, copy=False)


def narrowed(result: Any, dtype: str) -> Array:
    """A computed result in the element type `dtype`."""
    with np.errstate(all="ignore"):
        return np.asarray(result).astype(numpy_dtype(dtype), copy=False)


def rounded_into(values: Values, dtype: str) -> Array:
    """Values rounded half to even and saturated to an integer type."""
    target = numpy_dtype(dtype)
    bounds: Any = np.iinfo(target)
    return np.clip(np.rint(values), bounds.min, bounds.max).astype(target)


def taken(data: Array, positions: Sequence[NDArray[np.int64]]) -> Array:
    """The elements at all combinations of the positions per axis; copied axis by axis, which is faster."""
    for axis, found in enumerate(positions):
        if len(found) != data.shape[axis] or (found != np.arange(len(found))).any():
            data = np.take(data, found, axis=axis)
    return data


_STEP: Final = 1 / 128
_LAST: Final = 6.0  # the error function is 1 beyond this in double precision
_KNOTS: Final[Values] = np.arange(int(_LAST / _STEP) + 1) * _STEP
_AT_KNOTS: Final[Values] = np.array([erf(float(knot)) for knot in _KNOTS])
_KNOTS.setflags(write=False)
_AT_KNOTS.setflags(write=False)


# Number of elements whose intermediate values stay in a core's cache.
_CACHED: Final = 2**13


def error_function(x: Values) -> Values:
    """The Gauss error function, by its Taylor polynomial around the nearest knot; error below 1e-15."""
    flat: Values = x.reshape(-1)
    result = np.empty_like(flat)
    for start in range(0, flat.size, _CACHED):
        result[start : start + _CACHED] = _error_function(flat[start : start + _CACHED])
    return result.reshape(x.shape)


def _error_function(x: Values) -> Values:
    magnitude: Values = np.minimum(np.abs(x.astype(np.float64)), _LAST)
    index = np.rint(np.nan_to_num(magnitude) / _STEP).astype(np.int64)
    knot: Values = _KNOTS[index]
    d = magnitude - knot
    slope = 2 / sqrt(pi) * np.exp(-knot * knot)
    square = knot * knot
    # each derivative of exp(−x²) is a Hermite polynomial times exp(−x²)
    polynomial = 1 + d * (
        -knot
        + d
        * (
            (4 * square - 2) / 6
            + d * ((12 * knot - 8 * knot * square) / 24 + d * (16 * square * square - 48 * square + 12) / 120)
        )
    )
    result = np.minimum(_AT_KNOTS[index] + slope * d * polynomial, 1.0)
    return np.asarray(np.copysign(result, x), dtype=x.dtype)
