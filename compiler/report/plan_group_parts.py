"""Parts of a plan's groups: address tables, and tensors that stay on the chip between groups."""

from __future__ import annotations

from typing import Literal

from compiler.ir.layout import Layout
from compiler.report.execution import Part


class HandedDoc(Part, frozen=True, kw_only=True):
    """A tensor that stays on the chip between groups: units hold parts of `share` positions along `axis` of it.

    They do so `before_end` bytes before the end of what a unit's memory has for tiles.
    """

    tensor: str
    axis: str
    share: int
    before_end: int


class HandoverDoc(Part, frozen=True, kw_only=True):
    """What stays on the chip between this group and others, so that none of it goes to DRAM (TILE-4).

    `hands`: the result that the group leaves there for later ones; `takes`: inputs that earlier groups left there.
    `held_bytes`: what all that is held while the group runs takes of each unit's memory, also of tensors that it
    neither makes nor reads.
    """

    hands: HandedDoc | None
    takes: tuple[HandedDoc, ...]
    held_bytes: int


class AddressTables(Part, frozen=True, kw_only=True):
    """The address tables of an op with a window (ADDR-1 to ADDR-5).

    Each is for a block of `positions` and the window's `taps` in each of `channels` (1 where they lie side by side). A
    core holds one per kind of buffer, `bytes` together. `read_bytes`: from DRAM. `lines_per_position`: its operands'.
    """

    positions: int
    taps: int
    channels: int
    layout: Layout
    bytes: int
    read_bytes: int
    lines_per_position: float
    padding: Literal["none", "classes"]
