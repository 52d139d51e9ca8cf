"""Which boxes of its weights an op needs for a range of its channels, and in which slices they pass a core (TILE-6)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from compiler.errors import LimitError
from compiler.ops.op_facts import FACTORS, OpFacts
from compiler.program.context import Operand
from compiler.program.emitter import Box
from compiler.program.slots import Slot
from compiler.units import ceil_div

if TYPE_CHECKING:
    from compiler.program.group import GroupLowering


class WeightBoxes:
    """The weights and address tables of one group's ops, and the slots that cores have for them."""

    def __init__(self, lowering: GroupLowering) -> None:
        self.lowering = lowering
        self.group = lowering.group
        self.context = lowering.context
        # weights by step, unit and core; more than one slot where slices pass in turn
        self._slots: dict[tuple[int, int, int], list[Slot]] = {}
        self._constants = [self._constants_of(op) for op in self.group.geometry.ops]
        self._tables = [tuple(lowering.address_tables(op)) for op in self.group.geometry.ops]
        self._slices: dict[tuple[int, tuple[int, int]], list[tuple[int, int]]] = {}
        self._boxes: dict[tuple[object, ...], list[tuple[Operand, Box]]] = {}

    def _constants_of(self, op: OpFacts) -> tuple[Operand, ...]:
        """An op's weights, the widest elements first, so that each lies where its type may.

        Stationary weights that lie where they are used are not brought.
        """
        found = [] if self.group.weights_in_place else self._weights_of(op)
        return tuple(sorted(found, key=lambda o: -self.lowering.element(o.tensor)))

    def _weights_of(self, op: OpFacts) -> list[Operand]:
        return [o for o in self.context.operands(op.index) if o.constant and o.gathered is None]

    def slices(self, step: int, channels: tuple[int, int]) -> list[tuple[int, int]]:
        """A range of an op's output channels in slices whose weights fit the core's slot."""
        key = (step, channels)
        found = self._slices.get(key)
        if found is None:
            found = self._slices[key] = self._new_slices(step, channels)
        return found

    def _new_slices(self, step: int, channels: tuple[int, int]) -> list[tuple[int, int]]:
        slots = self._slots[step, 0, 0]
        if not slots or not self._constants[step]:
            return [channels]
        room, length = slots[0].size_bytes, channels[1] - channels[0]
        fixed = each = 0
        # what several operands read lies once; all read it alike
        for operand in {operand.tensor: operand for operand in self._constants[step]}.values():
            size = prod(self._shape(operand)) * self.lowering.element(operand.tensor)
            along = self.lowering.summed_axis(self.group.geometry.ops[step], operand)
            if along is not None and self.group.geometry.ops[step] is self.group.geometry.product:
                extent = self._shape(operand)[along]
                size = size // extent * ceil_div(extent, self.group.input_parts)
            axis = self._channel_axis(step, operand)
            if axis is None:
                fixed += size
            else:
                each += size // self._shape(operand)[axis]
        if fixed + each * length <= room or not each:
            return [channels]
        count = (room - fixed) // each
        if count < 1:
            raise LimitError(
                "the weights of one output channel do not fit the buffer that the plan has for them",
                code="weights_do_not_fit",
                stage="lower",
                node=self.context.graph.ops[self.group.geometry.ops[step].index].node,
                actual=fixed + each,
                limit=room,
                hint="Report this plan: what the planner called fitting is not what lowering achieved",
            )
        parts = ceil_div(length, count)
        size = ceil_div(length, parts)
        return [(low, min(channels[1], low + size)) for low in range(channels[0], channels[1], size)]

    def _shape(self, operand: Operand) -> tuple[int, ...]:
        return self.context.shape(operand.tensor)

    def _channel_axis(self, step: int, operand: Operand) -> int | None:
        """The axis of a weight that is the op's output channels."""
        channel = self.group.geometry.ops[step].channel_axis
        if channel is None:
            return None
        for axis, axis_map in enumerate(operand.access):
            if axis_map.axis == channel and axis_map.is_identity and self._shape(operand)[axis] > 1:
                return axis
        return None

    def boxes(
        self, step: int, channels: tuple[int, int], summed: tuple[int, int] | None = None
    ) -> list[tuple[Operand, Box]]:
        """Of each weight the box that a range of output channels needs, and a range of what is summed over."""
        key = (step, channels, summed)
        found = self._boxes.get(key)
        if found is None:
            found = self._boxes[key] = self._boxes_of(self._constants[step], step, channels, summed)
        return found

    def _boxes_of(
        self, constants: Sequence[Operand], step: int, channels: tuple[int, int], summed: tuple[int, int] | None
    ) -> list[tuple[Operand, Box]]:
        found = []
        for operand in constants:
            if summed is not None and operand.number >= FACTORS and summed[1] < self.group.geometry.summed_extent:
                # what is added to the sums comes with the last part of them
                continue
            axis = self._channel_axis(step, operand)
            box = [channels if i == axis else (0, e) for i, e in enumerate(self._shape(operand))]
            along = self.lowering.summed_axis(self.group.geometry.ops[step], operand)
            if summed is not None and along is not None:
                box[along] = summed
            found.append((operand, tuple(box)))
        return found
