"""Exact sums of products of integers: matrix products, convolutions, transposed convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Attributes = Mapping[str, Any]
# int64 sums are computed by float64 matrix products below this bound: every partial sum is an integer that float64 has.
_EXACT_IN_FLOAT64: Final = 2**53


def matrix_sums(a: Array, b: Array) -> Array:
    """The matrix product of int64 arrays, exactly."""
    kind = _kind_of_sums(a, b, a.shape[-1])
    return np.asarray(a.astype(kind) @ b.astype(kind)).astype(np.int64)


def conv_sums(x: Array, w: Array, attributes: Attributes) -> Array:
    """The convolution of int64 arrays, exactly: x of batch, channels, space; w of filters, channels per group, kernel.

    One matrix product per group and position of the kernel; what lies outside the data is 0, that is the zero point.
    """
    kernel, space = w.shape[2:], x.shape[2:]
    rank, groups = len(kernel), attributes.get("group", 1)
    strides = attributes.get("strides") or [1] * rank
    dilations = attributes.get("dilations") or [1] * rank
    spans = [(extent - 1) * dilation + 1 for extent, dilation in zip(kernel, dilations, strict=True)]
    begins, ends = _conv_pads(space, spans, strides, attributes)
    x = np.pad(x, [(0, 0), (0, 0), *zip(begins, ends, strict=True)])
    out = [(extent - span) // stride + 1 for extent, span, stride in zip(x.shape[2:], spans, strides, strict=True)]
    kind = _kind_of_sums(x, w, prod(w.shape[1:]))
    x = x.astype(kind).reshape(x.shape[0], groups, w.shape[1], *x.shape[2:])
    w = w.astype(kind).reshape(groups, w.shape[0] // groups, *w.shape[1:])
    sums: Array = np.zeros((x.shape[0], groups, w.shape[1], prod(out)), kind)
    for position in product(*map(range, kernel)):
        taken = _taken(position, dilations, strides, out)
        sums += _at(w, position) @ _at(x, taken).reshape(*x.shape[:3], -1)
    return sums.astype(np.int64).reshape(x.shape[0], -1, *out)


def _conv_pads(
    space: Sequence[int], spans: Sequence[int], strides: Sequence[int], attributes: Attributes
) -> tuple[list[int], list[int]]:
    """The padding before and behind each axis of a convolution."""
    mode = attributes.get("auto_pad", b"NOTSET").decode()
    if mode in ("NOTSET", "VALID"):
        pads = attributes.get("pads") if mode == "NOTSET" else None
        pads = list(pads or [0] * (2 * len(space)))
        return pads[: len(space)], pads[len(space) :]
    totals = [
        max((-(-extent // stride) - 1) * stride + span - extent, 0)
        for extent, span, stride in zip(space, spans, strides, strict=True)
    ]
    small, large = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return (small, large) if mode == "SAME_UPPER" else (large, small)


def conv_transpose_sums(x: Array, w: Array, attributes: Attributes) -> Array:
    """The transposed convolution of int64 arrays, exactly: w of channels, filters per group, kernel."""
    kernel, space = w.shape[2:], x.shape[2:]
    rank, groups = len(kernel), attributes.get("group", 1)
    strides = attributes.get("strides") or [1] * rank
    dilations = attributes.get("dilations") or [1] * rank
    extra = attributes.get("output_padding") or [0] * rank
    whole = [
        stride * (extent - 1) + (taps - 1) * dilation + 1 + more
        for extent, taps, stride, dilation, more in zip(space, kernel, strides, dilations, extra, strict=True)
    ]
    begins, out = _conv_transpose_pads(space, whole, strides, attributes)
    kind = _kind_of_sums(x, w, w.shape[0] // groups * prod(kernel))
    x = x.astype(kind).reshape(x.shape[0], groups, w.shape[0] // groups, -1)
    w = w.astype(kind).reshape(groups, w.shape[0] // groups, *w.shape[1:])
    # the crop may ask for more than the taps reach
    room = [max(extent, begin + wanted) for extent, begin, wanted in zip(whole, begins, out, strict=True)]
    sums: Array = np.zeros((x.shape[0], groups, w.shape[2], *room), kind)
    for position in product(*map(range, kernel)):
        tap = _at(w, position).swapaxes(-1, -2) @ x
        met = _at(sums, _taken(position, dilations, strides, space))
        met += tap.reshape(met.shape)
    crop = [slice(begin, begin + extent) for begin, extent in zip(begins, out, strict=True)]
    return _at(sums, crop).astype(np.int64).reshape(sums.shape[0], -1, *out)


def _conv_transpose_pads(
    space: Sequence[int], whole: Sequence[int], strides: Sequence[int], attributes: Attributes
) -> tuple[list[int], list[int]]:
    """What is cut off before each axis of a transposed convolution, and the extents that remain."""
    rank = len(space)
    mode = attributes.get("auto_pad", b"NOTSET").decode()
    out = attributes.get("output_shape")
    if out is None and mode.startswith("SAME"):
        out = [extent * stride for extent, stride in zip(space, strides, strict=True)]
    if out is None:
        pads = list(attributes.get("pads") or [0] * (2 * rank)) if mode == "NOTSET" else [0] * (2 * rank)
        return pads[:rank], [extent - pads[axis] - pads[rank + axis] for axis, extent in enumerate(whole)]
    totals = [extent - wanted for extent, wanted in zip(whole, out[-rank:], strict=True)]
    begins = [max(total // 2 if mode == "SAME_UPPER" else total - total // 2, 0) for total in totals]
    return begins, list(out[-rank:])


def _taken(
    position: Sequence[int], dilations: Sequence[int], strides: Sequence[int], extents: Sequence[int]
) -> list[slice]:
    """Where a position of the kernel meets the larger of the two maps, for all positions of the smaller one."""
    return [
        slice(at * dilation, at * dilation + stride * (extent - 1) + 1, stride)
        for at, dilation, stride, extent in zip(position, dilations, strides, extents, strict=True)
    ]


def _at(x: Array, index: Sequence[int | slice]) -> Array:
    """A view of the last axes at an index."""
    whole: tuple[Any, ...] = (..., *index)
    view: Array = x[whole]
    return view


def _kind_of_sums(x: Array, w: Array, depth: int) -> type[np.float64] | type[np.int64]:
    """The type in which sums of so many products are exact: float64, whose matrix products are quick, or int64."""
    bound = largest(x) * largest(w) * max(depth, 1)
    if bound >= 2**63:
        raise NotImplementedError(f"sums of {depth} products may reach {bound}, beyond int64")
    return np.float64 if bound < _EXACT_IN_FLOAT64 else np.int64


def largest(x: Array) -> int:
    """The largest magnitude."""
    return max(abs(int(x.min())), abs(int(x.max()))) if x.size else 0
