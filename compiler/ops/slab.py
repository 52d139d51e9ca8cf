"""Boxes of tensors with their values: inputs and results of box-by-box computation."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compiler.errors import InternalError

Range = tuple[int, int]
Box = tuple[Range, ...]


def lengths(box: Box) -> tuple[int, ...]:
    """The extents of a box."""
    return tuple([stop - start for start, stop in box])


def is_empty(box: Box) -> bool:
    """True if the box has no element."""
    return any(stop <= start for start, stop in box)


def contains(outer: Box, inner: Box) -> bool:
    """True if `outer` contains every element of `inner`."""
    return is_empty(inner) or all(a[0] <= b[0] and b[1] <= a[1] for a, b in zip(outer, inner, strict=True))


def inside(box: Box, origin: Box) -> tuple[slice, ...]:
    """The index of `box` in an array that holds the box `origin`."""
    return tuple(slice(b[0] - o[0], b[1] - o[0]) for b, o in zip(box, origin, strict=True))


@dataclass(frozen=True, slots=True)
class Slab:
    """A box of a tensor: `ranges` is its half-open position in the whole tensor, `values` are its elements.

    Raises InternalError if the shape of the values differs from the box.
    """

    ranges: Box
    values: NDArray[np.generic]

    def __post_init__(self) -> None:
        if self.values.shape != lengths(self.ranges):
            raise InternalError("a box and its values differ", actual=self.values.shape, limit=lengths(self.ranges))

    def cut(self, box: Box) -> NDArray[np.generic]:
        """The values of a box inside the slab, not copied; raises InternalError if part of it lies outside."""
        if box == self.ranges:
            return self.values
        if not contains(self.ranges, box):
            raise InternalError("values outside an operand's box are asked for", actual=box, limit=self.ranges)
        return self.values[inside(box, self.ranges)]

    def spread(self, box: Box) -> NDArray[np.generic]:
        """The values of any box, 0 outside the slab; not copied if the box lies inside."""
        if box == self.ranges or contains(self.ranges, box):
            return self.cut(box)
        result = np.zeros(lengths(box), dtype=self.values.dtype)
        common = tuple((max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(box, self.ranges, strict=True))
        if not is_empty(common):
            result[inside(common, box)] = self.values[inside(common, self.ranges)]
        return result


def whole_along(box: Box, shape: tuple[int, ...], axes: Container[int]) -> Box:
    """The box extended to the tensor's full extent along some axes."""
    return tuple((0, shape[axis]) if axis in axes else found for axis, found in enumerate(box))


def aligned(found: Range, step: int) -> Range:
    """The smallest range around `found` that begins and ends at multiples of `step`."""
    return found[0] // step * step, -(-found[1] // step) * step
