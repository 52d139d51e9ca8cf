"""What units or cores share of one tile: parts of the channels, and parts of a sum (FUSE-S1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from compiler.ops.op_facts import OpFacts
from compiler.program.emitter import Box, Held, Machine, is_empty, overlap
from compiler.program.inputs import bring, receivers_in_turn
from compiler.program.iteration import At
from compiler.program.known import Known
from compiler.program.located import Located
from compiler.program.peers import others_of, send_to_runs
from compiler.program.program import Opcode
from compiler.program.rounds import Job
from compiler.program.tiles import Index
from compiler.program.unit_calls import OperandBoxes, Part
from compiler.program.unit_tiles import HeldTiles
from compiler.tiling.stationary import part_of
from compiler.tiling.tile import Spread
from compiler.units import ceil_div, element_bytes


class ChannelParts:
    """Parts of the channels of a common tile, which units make and send each other."""

    def __init__(self, located: Located, operands: OperandBoxes, held: HeldTiles) -> None:
        self._located = located
        self._operands = operands
        self._held = held
        # units share out the channels of a common tile
        self.are_of_units = located.configuration.spread is Spread.CHANNELS and not located.group.channels_are_free

    def hands_out(self, op: OpFacts, unit: int, core: int) -> bool:
        """False, for all but one, where all units or cores make a result whole since it has no channels."""
        if op.channel_axis is not None or self._located.group.channels_are_free:
            return True
        alone = unit == 0 or self._located.configuration.spread is not Spread.CHANNELS
        return alone and (core == 0 or self._located.configuration.core_spread is not Spread.CHANNELS)

    def of_unit(self, op: OpFacts, unit: int, box: Box) -> Box:
        """The part of an op's box that a unit makes where units share out the channels of a common tile."""
        return channel_part(op, box, unit, self._located.units) if self.are_of_units else box

    def share(self, step: int, op: OpFacts, engine: str, at: At) -> None:
        """Send the parts of the channels that units make to those that need them for a later op."""
        # all units work on the same tile
        index = self._located.rounds[at[0]][0][1]
        workers = [(unit, self._held.tile(op.output, unit, index)) for unit in range(self._located.units)]
        receivers = self._operands.receivers(step, op.output, self._located.tiles, index, workers, self.of_unit)
        runs = list[_Run]()
        for other, target, wanted in receivers:
            last = runs[-1] if runs else None
            if last is None or not last.goes_on_with(target, wanted):
                last = _Run(wanted)
                runs.append(last)
            last.places[other] = len(last.held)
            last.held.append(target)
        if not runs:
            return
        channels = [channels_of(op, run.wanted) for run in runs]
        element, tiles, machine = self._located.element(op.output), dict(workers), self._located.machine
        for unit, _ in self._located.rounds[at[0]]:
            held = tiles[unit]
            mine = self.of_unit(op, unit, held.box) if held is not None else None
            if held is None or mine is None or is_empty(mine):
                continue
            low, high = channels_of(op, mine)
            found = list[tuple[Sequence[Held], Box]]()
            for run, (first, end) in zip(runs, channels, strict=True):
                # of many units most make channels that a receiver does not need
                part = overlap(mine, run.wanted) if first < high and end > low else None
                if part is not None:
                    found += [(others, part) for others in run.without(unit, machine, part)]
            in_turn = receivers_in_turn(self._located, unit, found)
            send_to_runs(self._located.emitter, held, in_turn, self._located.queue(engine, unit), element)


@dataclass(slots=True, eq=False)
class _Run:
    """Units with neighbouring memories that need the same box of a result, which lies at the same address in all."""

    wanted: Box
    held: list[Held] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)

    def goes_on_with(self, held: Held, wanted: Box) -> bool:
        """True if a memory is the next one of the run."""
        last = self.held[-1]
        return wanted == self.wanted and held.slot.place == last.slot.place + 1 and held[1:4] == last[1:4]

    def without(self, unit: int, machine: Machine, box: Box) -> Sequence[Sequence[Held]]:
        """The run as a unit sends a box to it: all of it, or what stands before and after the unit."""
        place = self.places.get(unit)
        return [self.held] if place is None else others_of(machine, self.held, place, box)


class SumParts:
    """Parts of what a product sums over, which units or cores add up one after another."""

    def __init__(self, located: Located, operands: OperandBoxes, held: HeldTiles) -> None:
        self._located = located
        self._operands = operands
        self._held = held
        self._parts_of = Known(self._new_parts)

    def of_unit(self, unit: int) -> list[Part]:
        """The parts of the summed axis that a unit works on, one after another."""
        return self._parts_of[unit]

    def _new_parts(self, unit: int) -> list[Part]:
        count = self._located.group.input_parts
        if count == 1:
            return [Part(None, True, True)]
        extent, slices = self._located.geometry.summed_extent, self._located.configuration.input_slices
        size = ceil_div(extent, count)
        mine = range(unit * slices, (unit + 1) * slices) if self._located.shares_sums else range(slices)
        ranges = [(k, (min(extent, k * size), min(extent, (k + 1) * size))) for k in mine]
        last = ceil_div(extent, size) - 1
        filled = [(k, found) for k, found in ranges if found[0] < found[1]]
        return [Part(found, k == 0, k == last, turn, len(filled)) for turn, (k, found) in enumerate(filled)]

    @cached_property
    def summing_units(self) -> int:
        """How many units have a part of what is summed over."""
        if not self._located.shares_sums:
            return 1
        return sum(1 for unit in range(self._located.units) if self.of_unit(unit))

    def workers(self, op: OpFacts, jobs: list[Job], *, after: bool = False) -> list[Job]:
        """Who works on an op; of sums in parts (and `after` them) only the last unit has the result."""
        if not self._located.shares_sums or (op is self._located.geometry.product and not after):
            return jobs
        return [(unit, index) for unit, index in jobs if unit == self.summing_units - 1]

    def pass_sums(self, source: Held, target: Held, box: Box, queue: int, op: OpFacts) -> None:
        """Unfinished sums from where one unit made them to where another takes them up."""
        width = element_bytes(self._located.context.accumulator(op.index))
        scale = width // self._located.element(op.output)
        wide = [Held(h.slot, h.address, h.origin, tuple(s * scale for s in h.strides), h.box) for h in (source, target)]
        self._located.emitter.copy(Opcode.EXCHANGE, queue, wide[0], wide[1], box, width)

    def load_part(self, op: OpFacts, jobs: Sequence[tuple[int, Index]], part: Part, turn: int) -> None:
        """Load what an op reads of a part of the summed axis into units: at once for all that need the same.

        The only part of a unit stays there for all slices of the channels.
        """
        for operand in self._located.context.operands(op.index):
            if operand.tensor not in self._located.group.reduced or part.range is None:
                continue
            its = (
                (unit, self._held.tile(operand.tensor, unit, index, part))
                for unit, index in jobs
                if len(self.of_unit(unit)) > 1 or self._located.first_slice(operand.tensor, index)
            )
            bring(self._located, operand.tensor, its, turn)


def channels_of(op: OpFacts, box: Box) -> tuple[int, int]:
    """The channels of an op's box; (0, 1) without channels."""
    return (0, 1) if op.channel_axis is None else box[op.channel_axis]


def channel_part(op: OpFacts, box: Box, number: int, parts: int) -> Box:
    """Part `number` of `parts` of a box's channels; all of a box without channels."""
    if op.channel_axis is None or parts == 1:
        return box
    part = part_of(box[op.channel_axis], number, parts)
    return (*box[: op.channel_axis], part, *box[op.channel_axis + 1 :])
