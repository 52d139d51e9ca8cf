"""Memory order of a tensor's elements in the accelerator's memories (option `layout`, ADDR-1)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final, Literal

# The order of a feature map's axes, outermost first.
Layout = Literal["NHWC", "NCHW", "CNHW"]
DEFAULT_LAYOUT: Final[Layout] = "NHWC"

_SPATIAL: Final = frozenset(("D", "H", "W"))


def memory_order(axes: Sequence[str], layout: Layout) -> tuple[int, ...]:
    """The axis positions from outermost to innermost in memory.

    A feature map has channels and spatial axes. A matrix has its channels behind the rows: its rows are packed in every
    layout. What has no channels or no spatial axes lies in the order of its axes.
    """
    spatial = [index for index, axis in enumerate(axes) if axis in _SPATIAL]
    if "C" not in axes or not spatial:
        return tuple(range(len(axes)))
    channel = list(axes).index("C")
    others = [index for index in range(len(axes)) if index != channel]
    if layout == "NHWC" or channel > spatial[-1]:
        return (*others, channel)
    return (channel, *others) if layout == "CNHW" else tuple(range(len(axes)))


def strides_of(lengths: Sequence[int], order: Sequence[int], element_bytes: int) -> tuple[int, ...]:
    """Byte strides of a dense box of these lengths, with its axes in `order`."""
    strides = [0] * len(lengths)
    step = element_bytes
    for axis in reversed(order):
        strides[axis] = step
        step *= max(1, lengths[axis])
    return tuple(strides)


def is_relabelling(
    shape: Sequence[int], order: Sequence[int], other_shape: Sequence[int], other_order: Sequence[int]
) -> bool:
    """True if two tensors of equal elements lie in the same order in memory, so that one is a view of the other."""
    if prod(shape) != prod(other_shape):
        return False
    return _is_row_major(shape, order) and _is_row_major(other_shape, other_order)


def _is_row_major(shape: Sequence[int], order: Sequence[int]) -> bool:
    """True if the memory order is the axis order, ignoring axes of extent 1."""
    long = [axis for axis in order if shape[axis] != 1]
    return long == sorted(long)
