"""What all evaluations share: the types they compute in, and the error function, which numpy lacks."""

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
    """The array in the type that it is computed in: 16-bit floats in float32, all others in their own."""
    if array.dtype.kind not in "biuf" or array.dtype == np.float16:  # bfloat16 is of a kind of its own
        return array.astype(np.float32)
    return array


def summable(array: Array) -> Values:
    """The array in the type that products of it are summed in: floats in float64, all others in their own.

    In float32 the order of a sum shows in its last digits, and a matrix product orders the sums of a block's last
    columns otherwise than the rest: channels of equal weights would differ. In float64 such sums differ by 1e-16 and
    are rounded to the same float32. Chips sum in float32 or wider, in orders of their own.
    """
    return array if array.dtype.kind in "biu" else array.astype(np.float64, copy=False)


def narrowed(result: Any, dtype: str) -> Array:
    """A computed result in the element type `dtype`."""
    with np.errstate(all="ignore"):
        return np.asarray(result).astype(numpy_dtype(dtype), copy=False)


def rounded_into(values: Values, dtype: str) -> Array:
    """Values rounded half to even and brought into the range of an integer type."""
    target = numpy_dtype(dtype)
    bounds: Any = np.iinfo(target)
    return np.clip(np.rint(values), bounds.min, bounds.max).astype(target)


def taken(data: Array, positions: Sequence[NDArray[np.int64]]) -> Array:
    """The elements at all combinations of the positions given per axis; axis by axis, for runs are copied faster."""
    for axis, found in enumerate(positions):
        if len(found) != data.shape[axis] or (found != np.arange(len(found))).any():
            data = np.take(data, found, axis=axis)
    return data


_STEP: Final = 1 / 128
_LAST: Final = 6.0  # beyond, the error function is 1 in double precision
_KNOTS: Final[Values] = np.arange(int(_LAST / _STEP) + 1) * _STEP
_AT_KNOTS: Final[Values] = np.array([erf(float(knot)) for knot in _KNOTS])
_KNOTS.setflags(write=False)
_AT_KNOTS.setflags(write=False)


# Elements whose intermediate values stay in a core's cache.
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
    # the derivatives of exp(−x²) are Hermite polynomials times itself
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
