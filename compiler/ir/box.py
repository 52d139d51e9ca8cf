"""Boxes and axis maps: the box of an input that an op needs for a box of its output.

A box is a half-open range per axis. Maps between boxes work axis by axis, so no tile grid is ever enumerated: each axis
has one array of ranges, and a sum over all tiles is a product of sums over axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisMap:
    """The map from a range of one output axis to the range of one input axis that it needs.

    `axis` is the output axis (None: the whole input axis is needed, whatever the output range). The range
    [start, stop) becomes [floor((start·scale + low) / divisor)·block,
    floor(((stop−1)·scale + high) / divisor)·block + block), clipped to the input. One formula covers equal axes,
    windows (scale = stride, low = −pad, high = low + dilation·(kernel−1)), slices and concatenations (low = high =
    offset), resizing (divisor), grouped channels (divisor and block), depth-to-space and its inverse.
    """

    axis: int | None = None
    scale: int = 1
    low: int = 0
    high: int = 0
    divisor: int = 1
    block: int = 1
    # The two axes have equal extents and equal ranges: no arithmetic, no clipping.
    is_identity: bool = False

    @property
    def is_gapless(self) -> bool:
        """True if a range of outputs needs one unbroken range of inputs."""
        if self.axis is None:
            return True
        if self.block > 1 and self.scale > self.divisor:
            return False
        return self.scale <= self.divisor or self.high - self.low + 1 >= self.scale

    def longest(self, length: int) -> int:
        """The longest input range that any output range of `length` positions can need, unclipped; 0 for none."""
        if length < 1:
            return 0
        span = (length - 1) * self.scale + self.high - self.low
        return (span // self.divisor + 1 + (self.divisor > 1)) * self.block

    def project(self, starts: Ints, stops: Ints, extent: int) -> tuple[Ints, Ints]:
        """Input ranges for output ranges; empty ranges stay empty; clipped at [0, extent) (TILE-1)."""
        if self.axis is None:
            empty = stops <= starts
            return np.zeros_like(starts), np.where(empty, 0, extent)
        if self.is_identity:
            return starts, stops
        # in place: axes of millions of positions have hundreds of thousands of ranges
        begin, end = self.unclipped(starts, stops)
        np.maximum(begin, 0, out=begin)
        np.minimum(end, extent, out=end)
        empty = (stops <= starts) | (end <= begin)
        if np.count_nonzero(empty):  # at once, where `any` takes longer than all else
            begin[empty] = 0
            end[empty] = 0
        return begin, end

    def unclipped(self, starts: Ints, stops: Ints) -> tuple[Ints, Ints]:
        """Input ranges for output ranges of an axis that is mapped, before they are clipped to the input."""
        return self._first(starts), self._last(stops)

    def project_one(self, start: int, stop: int, extent: int) -> tuple[int, int]:
        """As `project`, for a single range."""
        if stop <= start:
            return 0, 0
        if self.axis is None:
            return 0, extent
        if self.is_identity:
            return start, stop
        begin, end = max(0, self._first(start)), min(extent, self._last(stop))
        return (begin, end) if begin < end else (0, 0)

    def _first(self, start: Any) -> Any:
        if self.divisor == self.block == 1:
            # the same formula without divisions, which cost time for thousands of ranges
            return start * self.scale + self.low if self.scale != 1 else start + self.low
        return (start * self.scale + self.low) // self.divisor * self.block

    def _last(self, stop: Any) -> Any:
        if self.divisor == self.block == 1:
            shift = self.high + 1 - self.scale
            return stop * self.scale + shift if self.scale != 1 else stop + shift
        return ((stop - 1) * self.scale + self.high) // self.divisor * self.block + self.block


WHOLE = AxisMap()


def same(axis: int) -> AxisMap:
    """The input axis equals output axis `axis`, with the same extent."""
    return AxisMap(axis=axis, is_identity=True)


def window(axis: int, *, kernel: int, stride: int, dilation: int, pad: int) -> AxisMap:
    """A sliding window of `kernel` taps along output axis `axis`, `pad` elements of padding before it."""
    return AxisMap(axis=axis, scale=stride, low=-pad, high=dilation * (kernel - 1) - pad)


def shifted(axis: int, offset: int) -> AxisMap:
    """Input position = output position + `offset` (slice: its begin; concatenation: minus the part's begin)."""
    return AxisMap(axis=axis, low=offset, high=offset)


def hull(a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """The smallest ranges that contain both, element by element; an empty range adds nothing."""
    starts, stops = np.minimum(a[0], b[0]), np.maximum(a[1], b[1])
    for one, other in ((b, a), (a, b)):
        empty = one[1] <= one[0]
        if np.count_nonzero(empty):
            np.copyto(starts, other[0], where=empty)
            np.copyto(stops, other[1], where=empty)
    return starts, stops
