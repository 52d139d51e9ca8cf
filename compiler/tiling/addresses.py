"""The address tables of a tiled group's ops, and how their padding is read (ADDR-3 to ADDR-5)."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.address.build import build_table
from compiler.address.lines import LinesTouched, lines_touched
from compiler.address.unit import block_of, unit_read
from compiler.ir.layout import memory_order, strides_of
from compiler.ops.base import Window
from compiler.ops.op_facts import OpFacts
from compiler.tiling.loads import table_reads
from compiler.tiling.stages import operand_lengths
from compiler.tiling.tiled import TiledGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTables:
    """The address tables of one op: together `core_bytes` in a core and `read_bytes` from DRAM.

    `block` is the box of output positions that a table is for [N, C, spatial...], `lengths` the longest box of the
    op's input in a core. With `is_padded` positions at a border read by parts of the list of offsets (ADDR-3), which
    takes no memory and reads fewer lines, so that no buffer with a zero border could be cheaper.
    """

    op: int
    window: Window
    block: tuple[int, ...]
    lengths: tuple[int, ...]
    element_bytes: int
    axes: tuple[str, ...]
    core_bytes: int
    read_bytes: int
    is_padded: bool
    line_bytes: int

    def lines(self) -> LinesTouched:
        """The lines of memory that the block's positions touch, where the input's box lies by itself (ADDR-4)."""
        strides = strides_of(self.lengths, memory_order(self.axes), self.element_bytes)
        read = unit_read(self.window, self.block, strides, self.element_bytes)
        # of each element all channels are read: runs of them, of which the table knows the beginning
        return lines_touched(build_table(read), self.line_bytes)


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
                element_bytes=tensor.element_bytes,
                axes=tensor.axes,
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
