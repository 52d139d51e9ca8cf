"""The address tables of a tiled group's ops, and how their padding is read (ADDR-3 to ADDR-5)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.address.build import WindowRead, build_table
from compiler.address.lines import LinesTouched, lines_touched
from compiler.address.unit import CHANNELS, block_of, unit_read
from compiler.ir.layout import Layout, strides_of
from compiler.ops.base import Window
from compiler.ops.op_facts import OpFacts
from compiler.tiling.loads import table_reads
from compiler.tiling.stages import operand_lengths
from compiler.tiling.tiled import TiledGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTables:
    """The address tables of one op: together `core_bytes` in a core and `read_bytes` from DRAM.

    `block` is the box of output positions that a table is for [N, C, spatial...], `lengths` the longest box of the
    op's input in a core, `order` its axes from outermost to innermost in memory, `channels` those of the whole input.
    With `is_padded` positions at a border read by parts of the list of offsets (ADDR-3), which
    takes no memory and reads fewer lines, so that no buffer with a zero border could be cheaper.
    """

    op: int
    window: Window
    block: tuple[int, ...]
    lengths: tuple[int, ...]
    channels: int
    element_bytes: int
    order: tuple[int, ...]
    layout: Layout
    core_bytes: int
    read_bytes: int
    is_padded: bool
    line_bytes: int

    @property
    def read(self) -> WindowRead:
        """What a table is for, where the input's box lies by itself."""
        strides = strides_of(self.lengths, self.order, self.element_bytes)
        return unit_read(self.window, self.block, self.channels, strides, self.element_bytes)

    def lines(self) -> LinesTouched:
        """The lines of memory that the block's positions touch, each for all channels of the input's box (ADDR-4)."""
        read, channels = self.read, self.lengths[CHANNELS]
        strides = strides_of(self.lengths, self.order, self.element_bytes)
        every = replace(read, taps=(1, channels, *self.window.kernel), distances=strides)
        return lines_touched(build_table(every), self.line_bytes)


def op_tables(group: TiledGroup) -> tuple[OpTables, ...]:
    """The address tables of a group's ops with windows, in the order of its ops."""
    found, reads = [], table_reads(group)
    for step, op in enumerate(group.geometry.ops):
        if op.window is None or not group.table_bytes[step]:
            continue
        shape = group.geometry.facts.tensors[op.output].shape
        data = op.operands[0]
        tensor = group.geometry.facts.tensors[data.tensor]
        found.append(
            OpTables(
                op=op.index,
                window=op.window,
                block=block_of(shape),
                lengths=_lengths(group, step, op),
                channels=tensor.shape[CHANNELS],
                element_bytes=tensor.element_bytes,
                order=tensor.order,
                layout=group.geometry.facts.graph.layout,
                core_bytes=group.table_bytes[step],
                read_bytes=reads[op.index],
                is_padded=any(op.window.pads),
                line_bytes=group.profile.line_bytes,
            )
        )
    return tuple(found)


def _lengths(group: TiledGroup, step: int, op: OpFacts) -> tuple[int, ...]:
    """The longest box of an op's input in a core."""
    data = op.operands[0]
    stage = group.stage_of[step]
    if stage is None:
        return group.core_frustums.box_lengths(data.tensor)
    return operand_lengths(data.tensor, data.access, stage[1].extents, group.frustums)
