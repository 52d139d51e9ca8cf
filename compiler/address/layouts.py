"""Layouts: the order in which a buffer's axes lie in memory, and the byte strides that follow (ADDR-1, ADDR-2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from compiler.errors import InternalError
from compiler.units import ceil_div

# The number of the channel axis among a tensor's axes: N, C, then the spatial ones.
CHANNEL: Final = 1
# The first spatial axis.
SPATIAL: Final = 2
# The spatial axes of tensors of one, two and three.
_SPATIAL: Final = (("W",), ("H", "W"), ("D", "H", "W"))
_BLOCKED: Final = "c"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Axes in memory order, outermost first: NCHW, NHWC, CNHW, and with `channel_block` > 1 NCHWc.

    In a blocked layout C counts blocks of `channel_block` channels, and the channels of a block lie innermost.
    """

    axes: tuple[str, ...]
    channel_block: int = 1

    @property
    def name(self) -> str:
        """As in the documents: the axes one after another."""
        return "".join(self.axes) + (_BLOCKED if self.channel_block > 1 else "")

    @property
    def order(self) -> tuple[int, ...]:
        """The numbers of the tensor's axes (N, C, spatial ones) in memory order."""
        tensor = ("N", "C", *_SPATIAL[len(self.axes) - 3])
        return tuple(tensor.index(axis) for axis in self.axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strides:
    """Bytes from one position to the next along each of a tensor's axes (N, C, spatial ones), and of the whole buffer.

    With `channel_block` > 1 the channel's stride holds inside a block, and `block_bytes` leads from block to block.
    """

    axes: tuple[int, ...]
    size_bytes: int
    channel_block: int = 1
    block_bytes: int = 0


def layout_named(name: str, *, channel_block: int = 1) -> Layout:
    """The layout of that name, over one to three spatial axes (NCW, NHWC, NCDHWc...).

    Raises InternalError if the letters are not N, C and the spatial axes, each once, or if a trailing `c` and
    `channel_block` > 1 do not come together.
    """
    is_blocked = name.endswith(_BLOCKED)
    axes = tuple(name.removesuffix(_BLOCKED))
    if not any(sorted(axes) == sorted(("N", "C", *spatial)) for spatial in _SPATIAL):
        raise InternalError(
            "a layout names N, C and one to three spatial axes once each", stage="address", actual=name, limit="NCHW"
        )
    if is_blocked != (channel_block > 1) or channel_block < 1:
        raise InternalError(
            "a layout has blocks of several channels if its name ends in c, and only then",
            stage="address",
            actual=f"{name} with blocks of {channel_block}",
        )
    return Layout(axes=axes, channel_block=channel_block)


def strides_in(
    layout: Layout, lengths: Sequence[int], element_bytes: int, *, row_pitch_bytes: int | None = None
) -> Strides:
    """The strides of a buffer of `lengths` (N, C, spatial ones) in a layout (ADDR-2).

    A row is the last spatial axis with all that lies inside it; `row_pitch_bytes` sets the distance from row to row.
    The last block of channels is filled up. Raises InternalError on a pitch that is shorter than a row.
    """
    if len(lengths) != len(layout.axes) or min(lengths) < 1 or element_bytes < 1:
        raise InternalError("a buffer has a positive length per axis", stage="address", actual=tuple(lengths))
    block = layout.channel_block
    counts = [ceil_div(length, block) if axis == CHANNEL else length for axis, length in enumerate(lengths)]
    result = [0] * len(lengths)
    step = element_bytes * block
    for axis in reversed(layout.order):
        result[axis] = step
        step *= counts[axis]
        if axis == len(lengths) - 1 and row_pitch_bytes is not None:
            if row_pitch_bytes < step:
                raise InternalError(
                    "the row pitch is shorter than a row", stage="address", actual=row_pitch_bytes, limit=step
                )
            step = row_pitch_bytes
    if block == 1:
        return Strides(axes=tuple(result), size_bytes=step)
    block_bytes, result[CHANNEL] = result[CHANNEL], element_bytes
    return Strides(axes=tuple(result), size_bytes=step, channel_block=block, block_bytes=block_bytes)
