"""Two ways to read padding: classes with shortened offsets, or a buffer with a border (ADDR-3).

The border has to be filled with what padding counts as: zero for sums, the lowest number for a maximum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from compiler.address.build import build_table
from compiler.address.layouts import Layout, strides_in
from compiler.address.lines import lines_touched
from compiler.address.read import WindowRead, piece_in
from compiler.address.table import AddressTable
from compiler.errors import InternalError


class Padding(StrEnum):
    """How padding is read."""

    CLASSES = "classes"
    BORDER = "border"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingCost:
    """What one way costs: bytes of its table, bytes added to the buffer and filled, lines read by all positions."""

    table_bytes: int
    border_bytes: int
    lines_touched: int
    line_bytes: int

    @property
    def memory_bytes(self) -> int:
        """Bytes on chip that the other operands do not have."""
        return self.table_bytes + self.border_bytes

    @property
    def total_bytes(self) -> int:
        """Bytes loaded (table), written (border) and read (lines) for one pass over the tile: what is compared."""
        return self.memory_bytes + self.lines_touched * self.line_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingChoice:
    """The cheaper way, the read and table that belong to it, both costs, and the reason in words for the plan."""

    chosen: Padding
    read: WindowRead
    table: AddressTable
    classes: PaddingCost
    border: PaddingCost
    reason: str


def bordered(read: WindowRead, layout: Layout, *, address: int = 0) -> WindowRead:
    """The same read from one buffer at `address` that holds the padding too, as elements (ADDR-3).

    Along each axis the buffer reaches from the first element that is read to the last. Raises InternalError on a read
    without positions, which needs no buffer.
    """
    if not all(read.positions):
        raise InternalError("a read without positions has no border", stage="address", actual=read.positions)
    starts = [axis.first for axis in read.axes]
    stops = [axis.first + axis.reach for axis in read.axes]
    axes = (replace(axis, valid=(start, stop)) for axis, start, stop in zip(read.axes, starts, stops, strict=True))
    piece = piece_in(layout, starts, stops, element_bytes=read.element_bytes, address=address)
    return replace(read, axes=tuple(axes), pieces=(piece,))


def cheaper(
    read: WindowRead, layout: Layout, *, line_bytes: int, address: int = 0, room_bytes: int | None = None
) -> PaddingChoice:
    """The cheaper of the two ways to read padding, and why (ADDR-3).

    Compared are table bytes plus border bytes plus lines touched times their size; equal costs leave the buffer as it
    is. With `room_bytes` a way whose table and border do not fit is out, unless neither fits. `address` is where the
    bordered buffer would lie. Both tables are built.
    """
    plain = build_table(read)
    plain_cost = _cost(read, plain, 0, line_bytes)
    other = bordered(read, layout, address=address)
    table = build_table(other)
    border_cost = _cost(other, table, _border_bytes(read, other, layout), line_bytes)
    fits = [room_bytes is None or cost.memory_bytes <= room_bytes for cost in (plain_cost, border_cost)]
    if fits[0] != fits[1]:
        is_bordered, why = fits[1], f"the other way does not fit in {room_bytes} bytes"
    else:
        is_bordered, why = border_cost.total_bytes < plain_cost.total_bytes, "fewer bytes are loaded, written and read"
        if border_cost.total_bytes == plain_cost.total_bytes:
            why = "both cost the same, and the buffer stays as it is"
    return PaddingChoice(
        chosen=Padding.BORDER if is_bordered else Padding.CLASSES,
        read=other if is_bordered else read,
        table=table if is_bordered else plain,
        classes=plain_cost,
        border=border_cost,
        reason=f"{why}: classes {_words(plain_cost)}; border {_words(border_cost)}",
    )


def _cost(read: WindowRead, table: AddressTable, border_bytes: int, line_bytes: int) -> PaddingCost:
    lines = lines_touched(table, line_bytes, anchor_address=read.anchor_address)
    return PaddingCost(
        table_bytes=table.size_bytes, border_bytes=border_bytes, lines_touched=lines.total, line_bytes=line_bytes
    )


def _border_bytes(read: WindowRead, other: WindowRead, layout: Layout) -> int:
    """What the bordered buffer has beyond a buffer of what is read without padding."""
    lengths = [stop - start for start, stop in read.needed]
    whole = [stop - start for start, stop in other.needed]
    inside = strides_in(layout, lengths, read.element_bytes).size_bytes if all(lengths) else 0
    return strides_in(layout, whole, read.element_bytes).size_bytes - inside


def _words(cost: PaddingCost) -> str:
    return (
        f"{cost.total_bytes} bytes (table {cost.table_bytes}, border {cost.border_bytes}, "
        f"{cost.lines_touched} lines of {cost.line_bytes})"
    )
