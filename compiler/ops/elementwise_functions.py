"""Element-wise arithmetic in numpy, with ONNX's semantics where numpy's differ.

Arrays are already widened (16-bit floats as float32); parameters follow as keywords.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any

import numpy as np

from compiler.ops.compute_types import Values, error_function

Function = Callable[..., Any]


def variadic(function: Function) -> Function:
    """Applies a function of two arrays from left to right over any number of them."""

    def evaluate(*arrays: Values) -> Values:
        result = arrays[0]
        for array in arrays[1:]:
            result = function(result, array)
        return result

    return evaluate


def mean(*arrays: Values) -> Values:
    """The mean of the inputs."""
    result: Values = variadic(np.add)(*arrays) / arrays[0].dtype.type(len(arrays))
    return result


def divide(a: Values, b: Values) -> Values:
    """Quotient; integers truncate towards 0, and a divisor of 0 gives 0."""
    if a.dtype.kind not in "iu":
        return np.asarray(np.divide(a, b))
    safe = np.where(b == 0, np.ones_like(b), b)
    floor = np.floor_divide(a, safe)
    towards_zero = (floor < 0) & (floor * safe != a)
    return np.where(b == 0, np.zeros_like(floor), floor + towards_zero.astype(a.dtype))


def modulo(a: Values, b: Values, *, fmod: int) -> Values:
    """Remainder with the sign of the divisor; with `fmod`, that of the dividend."""
    return np.asarray(np.fmod(a, b) if fmod else np.mod(a, b))


def power(a: Values, b: Values) -> Values:
    """a to the power b, in the type of a.

    Whole numbers are raised as float64, and what an integer cannot hold becomes what the processor converts it to:
    ONNX leaves both open, ONNX Runtime does this. Squares and cubes are products, as there with a single exponent.
    """
    wide = np.float64 if a.dtype.kind in "iu" or np.float64 in (a.dtype, b.dtype) else np.float32
    raised = np.asarray(np.power(a.astype(wide), b.astype(wide)))
    if a.dtype.kind not in "iu":
        return raised
    return np.select([b == 2, b == 3], [a * a, a * a * a], raised.astype(a.dtype))


def relu(x: Values) -> Values:
    """x where it is positive, else 0."""
    return np.asarray(np.maximum(x, x.dtype.type(0)))


def leaky_relu(x: Values, *, alpha: float) -> Values:
    """x where it is not negative, else alpha·x."""
    return np.where(x >= 0, x, x * x.dtype.type(alpha))


def prelu(x: Values, slope: Values) -> Values:
    """x where it is not negative, else slope·x."""
    return np.where(x >= 0, x, x * slope)


def elu(x: Values, *, alpha: float) -> Values:
    """x where it is positive, else alpha·(exp(x) − 1)."""
    return np.where(x > 0, x, x.dtype.type(alpha) * np.expm1(np.minimum(x, 0)))


def celu(x: Values, *, alpha: float) -> Values:
    """max(0, x) + min(0, alpha·(exp(x / alpha) − 1))."""
    scale = x.dtype.type(alpha)
    return np.asarray(np.maximum(x, 0) + np.minimum(0, scale * np.expm1(x / scale)))


def selu(x: Values, *, alpha: float, gamma: float) -> Values:
    """gamma·x where x is positive, else gamma·alpha·(exp(x) − 1)."""
    return np.asarray(x.dtype.type(gamma) * elu(x, alpha=alpha))


def thresholded_relu(x: Values, *, alpha: float) -> Values:
    """x where it is above alpha, else 0."""
    return np.where(x > alpha, x, x.dtype.type(0))


def sigmoid(x: Values) -> Values:
    """1 / (1 + exp(−x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))


def hard_sigmoid(x: Values, *, alpha: float, beta: float) -> Values:
    """alpha·x + beta, within 0 and 1."""
    return np.asarray(np.clip(x.dtype.type(alpha) * x + x.dtype.type(beta), 0, 1))


def hard_swish(x: Values) -> Values:
    """x times the hard sigmoid of slope 1/6."""
    return np.asarray(x * np.clip(x / 6 + x.dtype.type(0.5), 0, 1))


def swish(x: Values, *, alpha: float) -> Values:
    """x·sigmoid(alpha·x); alpha 1 is SiLU."""
    return np.asarray(x * sigmoid(x.dtype.type(alpha) * x))


def softplus(x: Values) -> Values:
    """log(1 + exp(x)), without overflow."""
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def softsign(x: Values) -> Values:
    """x / (1 + |x|)."""
    return np.asarray(x / (1 + np.abs(x)))


def mish(x: Values) -> Values:
    """x·tanh(softplus(x))."""
    return np.asarray(x * np.tanh(softplus(x)))


def gelu(x: Values, *, approximate: str) -> Values:
    """x·Φ(x), Φ the normal distribution; with `approximate` "tanh" by a hyperbolic tangent."""
    if approximate == "tanh":
        inner = x.dtype.type(sqrt(2 / pi)) * (x + x.dtype.type(0.044715) * x * x * x)
        return np.asarray(x.dtype.type(0.5) * x * (1 + np.tanh(inner)))
    return np.asarray(x.dtype.type(0.5) * x * (1 + error_function(x / x.dtype.type(sqrt(2)))))


def is_infinite(x: Values, *, detect_negative: int, detect_positive: int) -> Values:
    """True at infinities of the signs to be detected."""
    return (np.isposinf(x) & bool(detect_positive)) | (np.isneginf(x) & bool(detect_negative))


def clip(x: Values, *, low: Any, high: Any) -> Values:
    """x within bounds, which may be None; if they cross, the upper bound."""
    if low is not None:
        x = np.maximum(x, np.asarray(low).astype(x.dtype))
    return x if high is None else np.minimum(x, np.asarray(high).astype(x.dtype))
