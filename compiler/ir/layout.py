"""Memory order of a tensor's elements in the accelerator's memories: NHWC on chip."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

_SPATIAL: Final = frozenset(("D", "H", "W"))


def memory_order(axes: Sequence[str]) -> tuple[int, ...]:
    """The axis positions from outermost to innermost in memory; feature maps are channels last."""
    if "C" in axes and _SPATIAL.intersection(axes):
        channel = list(axes).index("C")
        return (*(index for index in range(len(axes)) if index != channel), channel)
    return tuple(range(len(axes)))


def strides_of(lengths: Sequence[int], order: Sequence[int], element_bytes: int) -> tuple[int, ...]:
    """Byte strides of a dense box of these lengths, with its axes in `order`."""
    strides = [0] * len(lengths)
    step = element_bytes
    for axis in reversed(order):
        strides[axis] = step
        step *= max(1, lengths[axis])
    return tuple(strides)


def is_relabelling(
    shape: Sequence[int], axes: Sequence[str], other_shape: Sequence[int], other_axes: Sequence[str]
) -> bool:
    """True if two tensors of equal elements have the same memory layout, so that one is a view of the other."""
    if prod(shape) != prod(other_shape):
        return False
    return _is_row_major(shape, memory_order(axes)) and _is_row_major(other_shape, memory_order(other_axes))


def _is_row_major(shape: Sequence[int], order: Sequence[int]) -> bool:
    """True if the memory order is the axis order, ignoring axes of extent 1."""
    long = [axis for axis in order if shape[axis] != 1]
    return long == sorted(long)
