"""Lowering of one group: its tiles round by round, from DRAM to the cores and back (PROG-1).

What is the same for all kinds of groups stands here: inputs come into the unit's memory, what later tiles need is kept
there, results leave. What the cores do with a tile is said by the sub-classes: a core that holds the tile itself
(`flat.py`), cores that pass over it stage by stage (`staged.py`), or core tile by core tile (`nested.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

from compiler.errors import InternalError, LimitError
from compiler.ir.layout import memory_order, strides_of
from compiler.ops import call_of, definition
from compiler.ops.base import FLOATS
from compiler.ops.facts import OpFacts
from compiler.ops.product import Product
from compiler.program.buffers import Buffers, in_slot, inputs_in, pieces_of
from compiler.program.context import Context, Operand
from compiler.program.emitter import Box, Held, Slot, is_empty, overlap
from compiler.program.program import OUTPUT, Level, Opcode
from compiler.program.rounds import Job, owners, rounds_of
from compiler.program.tiles import Index, Tiles
from compiler.program.weights import GroupWeights
from compiler.tiling.memory import KEPT, TILE, memory_of, taken_over
from compiler.tiling.tile import HaloMode, Spread
from compiler.tiling.tiled import TiledGroup
from compiler.units import ceil_div, element_bytes

# Operands of a product that are multiplied; a third one is added when the sum ends.
FACTORS: Final = 2
_SPARE_ALIGNMENT: Final = 64


@dataclass(frozen=True, slots=True)
class Part:
    """A part of what a product sums over: its range (None: all of it), and whether the sum begins and ends here."""

    range: tuple[int, int] | None
    begins: bool
    ends: bool


class GroupLowering(ABC):
    """One group on its way to commands."""

    def __init__(
        self, context: Context, group: TiledGroup, steps: Mapping[int, int], before: dict[int, list[Slot]]
    ) -> None:
        """`steps`: the number of each op's step in the program; `before`: slots of the group before, by place."""
        self.context = context
        self.emitter = context.emitter
        self.machine = context.machine
        self.group = group
        self.geometry = group.geometry
        self.configuration = group.configuration
        self.profile = group.profile
        self.step_of = steps
        self.tiles = Tiles(group.frustums)
        self.tensors = self.geometry.facts.tensors
        self.units = 1 if self.configuration.spread is Spread.SINGLE else self.configuration.units
        self.level = Level.NRAM if self.profile.sram is None else Level.SRAM
        self.buffers = Buffers(self.machine, memory_of(group), before)
        self.gathered = {o.gathered for op in self.geometry.ops for o in context.operands(op.index) if o.gathered}
        self.takes_over = self.taken_over()
        self._strides: dict[str, tuple[int, ...]] = {}
        self._wanted: dict[tuple[object, ...], Box | None] = {}
        self.rounds = rounds_of(group, self.tiles)
        # which of an input's two buffers a tile uses, and which one a unit used last
        self._turns: dict[tuple[int, str, tuple[int, ...]], int] = {}
        self._last_turn: dict[tuple[int, str], int] = {}
        self._parts_held: dict[tuple[int, str], tuple[tuple[int, int], int]] = {}
        self._refuse_what_has_no_commands()
        self.weights = GroupWeights(self)
        for unit in range(self.units):
            self.lay_out(unit)
        self.weights.lay_out()
        self.buffers.finish()

    def _refuse_what_has_no_commands(self) -> None:
        """Raises LimitError for tilings that only a pinned schedule can ask for, and that are not lowered."""
        kept = [name for name in self.group.reduced if self.tiles.stores(name)]
        staged = self.profile.sram is not None and not self.group.is_nested
        if self.group.input_parts > 1 and (kept or staged):
            raise LimitError(
                "sums in parts are not lowered with kept halos of what is summed, nor breadth-first under an SRAM",
                code="not_lowered",
                stage="lower",
                node=self.context.graph.ops[self.geometry.ops[0].index].node,
                actual=f"{self.group.input_parts} parts",
                limit="1 part, or halo recompute and order depth-first",
            )

    # --- memory ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def lay_out(self, unit: int) -> None:
        """Make the slots of a unit and its cores."""

    def taken_over(self) -> dict[str, str]:
        """Results that are written over an operand where tensors' tiles lie."""
        return taken_over(self.group, self.group.volumes(self.group.frustums))

    def place(self, unit: int) -> int:
        """The place that holds a unit's tiles."""
        return self.buffers.place(self.level, unit)

    def core_place(self, unit: int, core: int) -> int:
        """The activation memory of a unit's core."""
        return self.buffers.place(Level.NRAM, self.core_number(unit, core))

    def core_number(self, unit: int, core: int) -> int:
        """The number of a unit's core on the chip."""
        return unit if self.profile.sram is None else unit * self.profile.cores_per_cluster + core

    def queue(self, engine: str, number: int) -> int:
        """The queue of an engine."""
        return self.machine.queue_of[engine, number]

    def spare_bytes(self, level: Level) -> int:
        """How much may pass through a memory at once on its way to the cores: what no buffer of the group takes."""
        return self.machine.places[self.buffers.place(level, 0)].capacity_bytes - self._spare_at(level)

    def _spare_at(self, level: Level) -> int:
        found = self.buffers.levels.get(level.value)
        return -(-found.allocation.peak_bytes // _SPARE_ALIGNMENT) * _SPARE_ALIGNMENT if found is not None else 0

    def spare(self, level: Level, unit: int, size_bytes: int) -> Slot:
        """Bytes of a memory for what only passes it, beside the group's buffers."""
        place = self.buffers.place(level, unit)
        return self.buffers.insert(place, self._spare_at(level), size_bytes)

    def element(self, name: str) -> int:
        """Bytes of one element of a tensor as it lies on the chip."""
        return self.tensors[name].element_bytes

    def unit_tensors(self, unit: int, names: tuple[str, ...]) -> None:
        """Slots for the tiles and stores of tensors in a unit's memory."""
        place, level = self.place(unit), self.level.value
        sizes = {name: self.buffers.size(level, TILE + name) for name in self.geometry.inputs if name in names}
        inputs_in(self.buffers, place, level, sizes, TILE)
        for name in names:
            size = self.buffers.size(level, TILE + name)
            if name not in sizes and size:
                source = self.takes_over.get(name)
                self.buffers.take(place, level, TILE + name, ("tile", name, 0))
                if source is not None and (place, ("tile", source, 1)) in self.buffers.slots:
                    other = self.buffers.slots[place, ("tile", source, 1)]
                    self.buffers.add(place, ("tile", name, 1), other.address, min(size, other.size_bytes))
            if self.buffers.size(level, KEPT + name):
                self.buffers.stores(self.tiles, name, self.tiles.stores(name), place, level)

    # --- tiles in the unit's memory ---------------------------------------------------------------------------------

    def first_slice(self, name: str, index: Index) -> bool:
        """False for a tensor that all slices of the channels share, at the slices after the first of a unit."""
        if "C" not in self.tiles.counts or self.configuration.slices_outer or self._follows_channels(name):
            return True
        return index["C"] % self._slice_count == 0

    @property
    def _slice_count(self) -> int:
        units = self.units if self.configuration.spread is Spread.CHANNELS else 1
        return ceil_div(self.tiles.counts["C"], units)

    def last_slice(self, name: str, index: Index) -> bool:
        """True where a tile is the last one of its unit that reads what slices of the channels share."""
        if "C" not in self.tiles.counts or self.configuration.slices_outer or self._follows_channels(name):
            return True
        return index["C"] % self._slice_count == self._slice_count - 1 or index["C"] == self.tiles.counts["C"] - 1

    def _follows_channels(self, name: str) -> bool:
        return any(dim.axis == "C" for dim in self.tiles.dims(name))

    def made(self, name: str, index: Index) -> Box:
        """What a tile makes anew of a tensor."""
        return self.tiles.fresh(name, index)

    def tile(self, name: str, unit: int, index: Index, parity: int) -> Held | None:
        """Where a tile's new part of a tensor lies in its unit's memory; None if it makes none."""
        box = self.made(name, index)
        if name in self.group.reduced:
            box, parity = self._part_box(name, unit, box, parity)
        if is_empty(box):
            return None
        place = self.place(unit)
        if name not in self.group.reduced:
            root = self.turn_root(name)
            parity = self._turns.get((unit, root, self._turn_key(root, index)), 0)
        slot = self.buffers.slots.get((place, ("tile", name, parity))) or self.buffers.slots[place, ("tile", name, 0)]
        return self._in_slot(name, slot, box)

    def turn_root(self, name: str) -> str:
        """The input of the group in whose buffer a tensor's tiles lie, if they do; else the tensor itself."""
        return self._root(name)

    def _turn_key(self, name: str, index: Index) -> tuple[int, ...]:
        """What names a tile of an input: slices of the channels share what does not follow these."""
        skip = "C" in index and not self.configuration.slices_outer and not self._follows_channels(name)
        return tuple(number for axis, number in index.items() if not (skip and axis == "C"))

    def _in_slot(self, name: str, slot: Slot, box: Box) -> Held:
        strides = self._strides.get(name)
        if strides is None:
            strides = self._strides[name] = self.strides(name)
        return in_slot(slot, strides, box)

    def strides(self, name: str) -> tuple[int, ...]:
        """Bytes between positions of a tensor's tiles in the unit's memory; of one that lies over another, that one's."""
        if name in self.group.reduced:
            return strides_of(self._part_lengths(name), memory_order(self.tensors[name].axes), self.element(name))
        basis = self._root(name)
        lengths = self.group.frustums.lengths(basis)
        return strides_of(lengths, memory_order(self.tensors[name].axes), self.element(basis))

    def _part_box(self, name: str, unit: int, box: Box, parity: int) -> tuple[Box, int]:
        """The part of a reduced input's box that is at hand, and which of its two buffers holds it."""
        found, turn = self._parts_held.get((unit, name), ((0, 0), parity))
        axis = self._reduced_axis(name)
        return (*box[:axis], found, *box[axis + 1 :]), turn

    def _reduced_axis(self, name: str) -> int:
        product = self.geometry.product
        operands = () if product is None else self.context.operands(product.index)
        for operand in operands:
            axis = self.summed_axis(product, operand) if product is not None and operand.tensor == name else None
            if axis is not None:
                return axis
        raise InternalError("an input that is summed in parts has no summed axis", stage="lower", node=name)

    def _part_lengths(self, name: str) -> tuple[int, ...]:
        lengths, axis = list(self.group.frustums.lengths(name)), self._reduced_axis(name)
        lengths[axis] = ceil_div(self.group.summed_extent, self.group.input_parts)
        return tuple(lengths)

    def _root(self, name: str) -> str:
        while name in self.takes_over:
            name = self.takes_over[name]
        return name

    def pieces(self, name: str, unit: int, index: Index, box: Box, parity: int) -> list[Held]:
        """Where a box of a tensor lies in a unit's memory."""
        stores = [
            s for shape in self.tiles.stores(name) if (s := self.buffers.store(self.place(unit), name, shape.axis))
        ]
        return pieces_of(self.tiles, name, index, box, self.tile(name, unit, index, parity), stores)

    # --- the rounds ---------------------------------------------------------------------------------------------------

    def lower(self) -> None:
        """Emit the commands of all rounds: the next round's inputs load while this one's tiles are worked on."""
        buffered = self.group.is_buffered
        ahead: list[Job] | None = None
        for number, jobs in enumerate(self.rounds):
            if ahead is not jobs:
                self._load(jobs, number)
            if buffered and number + 1 < len(self.rounds):
                ahead = self.rounds[number + 1]
                self._load(ahead, number + 1)
            for unit, index in jobs:
                for name in self.geometry.inputs:
                    self.pass_on(name, unit, index, number % 2)
            self.work(jobs, number % 2)
            self._store(jobs, number % 2)
            for unit, index in jobs:
                for name in self.geometry.inputs:
                    self.keep(name, unit, index, number % 2)

    @abstractmethod
    def work(self, jobs: list[Job], parity: int) -> None:
        """What the cores do with the tiles of a round."""

    def dying(self, steps: Sequence[int]) -> list[str]:
        """Results that no op after these steps reads: what later tiles need of them has to be kept now."""
        return [name for name in self.geometry.made if self._last_step[name] in steps]

    @cached_property
    def _last_step(self) -> dict[str, int]:
        last = {op.output: step for step, op in enumerate(self.geometry.ops)}
        for step, op in enumerate(self.geometry.ops):
            for operand in op.operands:
                if operand.tensor in last:
                    last[operand.tensor] = max(last[operand.tensor], step)
        return last

    def _load(self, jobs: list[Job], number: int) -> None:
        """Inputs from DRAM; what several units need at once is read once where they are connected."""
        for name in self.geometry.inputs:
            if name in self.gathered or name in self.group.reduced:
                continue
            self.emitter.step = self.step_of[self._first_reader(name)]
            wanted: dict[Box, list[Held]] = {}
            units: dict[Box, list[int]] = {}
            for unit, index in jobs:
                held = None
                if self.first_slice(name, index):
                    self._last_turn[unit, name] = turn = 1 - self._last_turn.get((unit, name), 1)
                    self._turns[unit, name, self._turn_key(name, index)] = turn
                    held = self.tile(name, unit, index, 0)
                if held is not None:
                    held.slot.begin()
                    wanted.setdefault(held.box, []).append(held)
                    units.setdefault(held.box, []).append(unit)
            region = self.context.region(name)
            for box, targets in wanted.items():
                self.deliver(region, targets, units[box], box, self.element(name))

    def _first_reader(self, name: str) -> int:
        return next(op.index for op in self.geometry.ops for o in op.operands if o.tensor == name)

    def deliver(self, region: Held, targets: list[Held], units: list[int], box: Box, element: int) -> None:
        """Load a box for several units: by multicast, or to the first and from there to the others, or each alone."""
        engine = "gdma" if self.level is Level.SRAM else "iodma"
        engine = engine if self.machine.has(engine) else "iodma"
        between = "cdma" if self.level is Level.SRAM else "link"
        first, *rest = targets
        queue = self.queue(engine, units[0])
        consecutive = all(b.slot.place - a.slot.place == 1 for a, b in zip(targets, rest, strict=False))
        if rest and self.profile.dram.multicast and consecutive:
            self.emitter.copy(Opcode.LOAD, queue, region, first, box, element, [held.slot for held in rest])
            return
        self.emitter.copy(Opcode.LOAD, queue, region, first, box, element)
        for held, unit in zip(rest, units[1:], strict=True):
            if self.machine.has(between):
                self.emitter.copy(Opcode.EXCHANGE, self.queue(between, units[0]), first, held, box, element)
            else:
                self.emitter.copy(Opcode.LOAD, self.queue(engine, unit), region, held, box, element)

    # --- what later tiles need ----------------------------------------------------------------------------------------

    def pass_on(self, name: str, unit: int, index: Index, parity: int) -> None:
        """Send what a tile made, and later tiles of other units need, to these units (TILE-3)."""
        if self.group.exchanges:
            for axis in reversed(self.tiles.order):
                later = self.tiles.successor(axis, index)
                if later is not None:
                    for other in owners(self.group, self.tiles, dict(later)):
                        if other != unit:
                            self._save(name, unit, index, later, other, axis, parity)

    def keep(self, name: str, unit: int, index: Index, parity: int) -> None:
        """Put what a tile made, and later tiles of its unit need, into the unit's stores: innermost axis first."""
        if not self.last_slice(name, index):
            return
        for axis in reversed(self.tiles.order):
            later = self.tiles.successor(axis, index)
            if later is not None and unit in owners(self.group, self.tiles, dict(later)):
                self._save(name, unit, index, later, unit, axis, parity)

    def _save(self, name: str, unit: int, index: Index, later: Index, other: int, axis: str, parity: int) -> None:
        store = self.buffers.store(self.place(other), name, axis)
        box = saved_box(self.tiles, name, index, later, axis, whole=other != unit) if store is not None else None
        if store is None or box is None:
            return
        targets = store.pieces(self.tiles, name, index, box)
        for source in self.pieces(name, unit, index, box, parity):
            for target in targets:
                part = overlap(source.box, target.box)
                if part is not None:
                    self._move_between(source, target, part, unit, other, self.element(name))

    def _move_between(self, source: Held, target: Held, box: Box, unit: int, other: int, element: int) -> None:
        if unit != other:
            engine = "cdma" if self.level is Level.SRAM else "link"
            self.emitter.copy(Opcode.EXCHANGE, self.queue(engine, unit), source, target, box, element)
            return
        queue = self.local_queue(unit)
        if self.level is Level.SRAM and source.slot.place != target.slot.place:
            queue = self.queue("mvdma", self.core_number(unit, 0))
        self.emitter.copy(Opcode.MOVE, queue, source, target, box, element)

    def local_queue(self, unit: int) -> int:
        """The queue that moves bytes inside a unit's memory: without SRAM the core itself."""
        if self.level is Level.NRAM:
            return self.queue("core", unit)
        return self.queue("cdma" if self.machine.has("cdma") else "gdma", unit)

    # --- results ------------------------------------------------------------------------------------------------------

    def stored_box(self, name: str, index: Index) -> Box | None:
        """The part of an output that a tile hands out: every position of it is in exactly one tile's."""
        tensor = self.tensors[name]
        primary = self.geometry.output
        dims = self.tiles.dims(name)
        followed = {dim.axis for dim in dims}
        if any(index[axis] for axis in self.tiles.order if axis not in followed):
            return None
        box: list[tuple[int, int]] = []
        for axis, extent, dim in zip(tensor.axes, tensor.shape, dims, strict=True):
            if dim.axis is None:
                box.append((0, extent))
                continue
            tiles, number = self.group.frustums.tiles[dim.axis], index[dim.axis]
            if tiles.mode is not HaloMode.RECOMPUTE:
                box.append((dim.firsts[number], dim.stops[number]))
                continue
            if axis != dim.axis:
                # what the next tile begins with is the next tile's
                if any(b < a for a, b in pairwise(dim.starts)):
                    raise InternalError("tiles of an output do not rise", stage="lower", node=name)
                box.append((dim.starts[number], (*dim.starts[1:], dim.stops[-1])[number]))
                continue
            basis = primary.shape[primary.axes.index(axis)]
            start, stop = int(tiles.starts[number]), int(tiles.stops[number])
            box.append((start * extent // basis, stop * extent // basis))
        return None if is_empty(tuple(box)) else tuple(box)

    def _store(self, jobs: list[Job], parity: int) -> None:
        """Outputs to DRAM."""
        engine = "gdma" if self.level is Level.SRAM and self.machine.has("gdma") else "iodma"
        for name in self.geometry.outputs:
            self.emitter.step = self.step_of[self.context.graph.producer[name]]
            region = self.context.region(name)
            for unit, index in self.workers(self.op_of(name), jobs, after=True):
                box = self.stored_box(name, index)
                held = self.tile(name, unit, index, parity) if box is not None else None
                if box is None or held is None:
                    continue
                part = overlap(box, held.box)
                if not self.hands_out(self.op_of(name), unit, 0):
                    continue
                mine = self.unit_part(self.op_of(name), unit, part) if part is not None else None
                if mine is not None and not is_empty(mine):
                    self.emitter.copy(Opcode.STORE, self.queue(engine, unit), held, region, mine, self.element(name))

    def op_of(self, name: str) -> OpFacts:
        """The op of the group that makes a tensor."""
        return next(op for op in self.geometry.ops if op.output == name)

    # --- parts of the channels ----------------------------------------------------------------------------------------

    def hands_out(self, op: OpFacts, unit: int, core: int) -> bool:
        """False where all units or cores make a result whole, since it has no channels to share out, for all but one."""
        if op.channel_axis is not None or self.group.channels_are_free:
            return True
        alone = unit == 0 or self.configuration.spread is not Spread.CHANNELS
        return alone and (core == 0 or self.configuration.core_spread is not Spread.CHANNELS)

    def unit_part(self, op: OpFacts, unit: int, box: Box) -> Box:
        """The part of an op's box that a unit makes where units share out the channels of a common tile."""
        if self.configuration.spread is not Spread.CHANNELS or self.group.channels_are_free:
            return box
        return channel_part(op, box, unit, self.units)

    def share_channels(self, step: int, op: OpFacts, unit: int, index: Index, parity: int, engine: str) -> None:
        """Where units make parts of the channels, send this unit's part to those that need it for a later op."""
        if self.configuration.spread is not Spread.CHANNELS or self.group.channels_are_free:
            return
        held = self.tile(op.output, unit, index, parity)
        if held is None:
            return
        mine = self.unit_part(op, unit, held.box)
        found: list[tuple[Held, Box]] = []
        for other in range(self.units):
            target = self.tile(op.output, other, index, parity)
            if other == unit or target is None or is_empty(mine):
                continue
            key = (step, other, *index.values())
            if key not in self._wanted:
                self._wanted[key] = self.wanted(
                    step,
                    op.output,
                    lambda name: self.made(name, index),
                    lambda reader, box, other=other: self.unit_part(reader, other, box),  # type: ignore[misc]
                )
            wanted = self._wanted[key]
            if self.tiles.stores(op.output):
                wanted = held.box
            part = overlap(mine, wanted) if wanted is not None else None
            if part is not None:
                found.append((target, part))
        self.send(held, found, self.queue(engine, unit), self.element(op.output))

    def send(self, source: Held, targets: list[tuple[Held, Box]], queue: int, element: int) -> None:
        """From one memory to others: neighbours that need the same box at the same address get it at once."""
        number = 0
        while number < len(targets):
            first, box = targets[number]
            also: list[Slot] = []
            while number + 1 < len(targets):
                held, other = targets[number + 1]
                follows = held.slot.place == first.slot.place + len(also) + 1
                if not follows or other != box or held.at(box) != first.at(box) or held.strides != first.strides:
                    break
                also.append(held.slot)
                number += 1
            opcode = Opcode.BROADCAST if also else Opcode.EXCHANGE
            self.emitter.copy(opcode, queue, source, first, box, element, also)
            number += 1

    def between_cores(self, sender: int, receiver: int) -> int | None:
        """The queue that moves bytes from one core to another: its link, its engine in a cluster, or the cluster's."""
        if self.machine.has("link"):
            return self.queue("link", sender)
        per = self.profile.cores_per_cluster
        if self.profile.sram is not None and sender // per == receiver // per and self.machine.has("mvdma"):
            return self.queue("mvdma", sender)
        return self.queue("cdma", sender // per) if self.machine.has("cdma") else None

    def wanted(
        self, step: int, name: str, made: Callable[[str], Box], part: Callable[[OpFacts, Box], Box]
    ) -> Box | None:
        """What ops after `step` need of a tensor for their parts of what they make: one box that holds it all."""
        found: Box | None = None
        for op in self.geometry.ops[step + 1 :]:
            box = made(op.output)
            box = part(op, box) if not is_empty(box) else box
            for operand in () if is_empty(box) else self.context.operands(op.index):
                if operand.tensor == name:
                    need = self.need(op, operand, box)
                    pairs = zip(found or need, need, strict=True)
                    found = tuple((min(a[0], b[0]), max(a[1], b[1])) for a, b in pairs)
        return found

    def need(self, op: OpFacts, operand: Operand, box: Box) -> Box:
        """The box of an operand that an op needs to make a box."""
        shape = self.context.graph.tensors[operand.tensor].shape if operand.gathered is None else None
        if shape is None:
            return box
        return tuple(
            axis_map.project_one(*(box[axis_map.axis] if axis_map.axis is not None else (0, 1)), extent)
            for axis_map, extent in zip(operand.access, shape, strict=True)
        )

    def gather(self, op: OpFacts, core: int, box: Box, at_hand: dict[int, list[Held]], result: Held) -> bool:
        """An op that reads rows of a table in DRAM through indices: its rows come to the core; False for other ops.

        `at_hand`: where the boxes of its other operands lie in the core; those that lie in DRAM are read there.
        """
        operands = self.context.operands(op.index)
        if not any(operand.gathered for operand in operands):
            return False
        bound: list[tuple[int, Held]] = []
        for operand in operands:
            if operand.gathered is not None:
                bound.append((operand.number, self.context.region(operand.tensor)))
            elif operand.constant or operand.tensor in self.geometry.inputs:
                bound.append((operand.number, self.context.region(operand.tensor).part(self.need(op, operand, box))))
            else:
                bound += [(operand.number, piece) for piece in at_hand.get(operand.number, [])]
        if not self.machine.has("iodma"):
            raise LimitError(
                "no engine of the profile brings rows of a table from DRAM to a core",
                code="no_engine",
                stage="lower",
                node=self.context.graph.ops[op.index].node,
                op_type=op.kind,
                limit="iodma",
            )
        table = self.context.table(op.index)
        entry = self.context.entry(table, box)
        reads = [piece.slot for _, piece in bound]
        self.emitter.step = self.step_of[op.index]
        queue = self.queue("iodma", core)
        self.emitter.call(
            queue, table, entry, [*bound, (OUTPUT, result.part(box))], reads, (result.slot,), Opcode.GATHER
        )
        return True

    def need_of_part(self, op: OpFacts, operand: Operand, box: Box, part: Part | None) -> Box:
        """As `need`, of what is summed over only a part."""
        need = self.need(op, operand, box)
        axis = self.summed_axis(op, operand) if part is not None and part.range is not None else None
        if axis is None or part is None or part.range is None:
            return need
        return (*need[:axis], part.range, *need[axis + 1 :])

    # --- sums in parts ------------------------------------------------------------------------------------------------

    def summed_axis(self, op: OpFacts, operand: Operand) -> int | None:
        """The axis of an operand that a product sums over; None for other operands and ops."""
        node = self.context.graph.ops[op.index]
        kind = definition(node)
        axes = kind.summed(call_of(self.context.graph, node)) if isinstance(kind, Product) else None
        return None if axes is None or operand.number >= len(axes) else axes[operand.number]

    def parts(self, unit: int) -> list[Part]:
        """The parts of the summed axis that a unit works on, one after another."""
        count = self.group.input_parts
        if count == 1:
            return [Part(None, True, True)]
        extent, slices = self.group.summed_extent, self.configuration.input_slices
        size = ceil_div(extent, count)
        mine = range(unit * slices, (unit + 1) * slices) if self.shares_sums else range(slices)
        ranges = [(k, (min(extent, k * size), min(extent, (k + 1) * size))) for k in mine]
        last = ceil_div(extent, size) - 1
        return [Part(found, k == 0, k == last) for k, found in ranges if found[0] < found[1]]

    @property
    def shares_sums(self) -> bool:
        """True if each unit adds up its part of what is summed over."""
        return self.configuration.spread is Spread.INPUT_CHANNELS

    @property
    def summing_units(self) -> int:
        """How many units have a part of what is summed over."""
        if not self.shares_sums:
            return 1
        return sum(1 for unit in range(self.units) if self.parts(unit))

    def workers(self, op: OpFacts, jobs: list[Job], *, after: bool = False) -> list[Job]:
        """Who works on an op; of sums in parts (and `after` them) only the last unit has the result."""
        if not self.shares_sums or (op is self.geometry.product and not after):
            return jobs
        return [(unit, index) for unit, index in jobs if unit == self.summing_units - 1]

    def pass_sums(self, source: Held, target: Held, box: Box, unit: int, queue: int, op: OpFacts) -> None:
        """Unfinished sums from where one unit made them to where another takes them up."""
        del unit
        dtype = "float32" if self.context.graph.tensors[op.output].dtype in FLOATS else ""
        width = element_bytes(dtype) if dtype else self.element(op.output)
        scale = width // self.element(op.output)
        wide = [Held(h.slot, h.address, h.origin, tuple(s * scale for s in h.strides), h.box) for h in (source, target)]
        self.emitter.copy(Opcode.EXCHANGE, queue, wide[0], wide[1], box, width)

    def load_part(self, op: OpFacts, unit: int, index: Index, part: Part, turn: int) -> None:
        """Load what an op reads of a part of the summed axis into the unit's memory."""
        for operand in self.context.operands(op.index):
            if operand.tensor in self.group.reduced and part.range is not None:
                self._parts_held[unit, operand.tensor] = (part.range, turn % 2)
                held = self.tile(operand.tensor, unit, index, turn % 2)
                if held is None or held.slot.content == (part.range, held.box):
                    continue
                held.slot.begin((part.range, held.box))
                region = self.context.region(operand.tensor)
                self.deliver(region, [held], [unit], held.box, self.element(operand.tensor))

    def call(
        self,
        op: OpFacts,
        queue: int,
        box: Box,
        operands: list[tuple[int, Held]],
        result: Held,
        part: Part | None = None,
    ) -> None:
        """Emit the call that makes a box of an op's output, or adds a part of its sums."""
        table = self.context.table(op.index)
        self.emitter.step = self.step_of[op.index]
        if part is None or part.range is None:
            entry = self.context.entry(table, box)
            bound = [*operands, (OUTPUT, result.part(box))]
        else:
            entry = self.context.entry(table, box, part.range, begins=part.begins, ends=part.ends)
            # sums are wider than results: they lie at the same places of a wider box, hence all of it is bound
            bound = [*operands, (OUTPUT, result)]
        reads = [held.slot for _, held in operands]
        if part is not None and not part.begins:
            reads.append(result.slot)
        self.emitter.call(queue, table, entry, bound, reads, (result.slot,))


def channel_part(op: OpFacts, box: Box, number: int, parts: int) -> Box:
    """Part `number` of `parts` of a box's channels; all of a box without channels."""
    if op.channel_axis is None or parts == 1:
        return box
    start, stop = box[op.channel_axis]
    size = ceil_div(stop - start, parts)
    low = min(stop, start + number * size)
    part = (low, min(stop, low + size))
    return (*box[: op.channel_axis], part, *box[op.channel_axis + 1 :])


def saved_box(tiles: Tiles, name: str, index: Index, later: Index, axis: str, *, whole: bool) -> Box | None:
    """What the store of an axis has to take in when a tile is done, for the next tile along it; None if nothing.

    With `whole` all that the next tile finds waiting, since it is another unit's; else what is new of it.
    """
    old = tiles.old_along(name, axis, later)
    if old is None:
        return None
    rank = tiles.order.index(axis)
    box = []
    for dim in tiles.dims(name):
        if dim.axis is None:
            box.append((dim.starts[0], dim.stops[0]))
        elif dim.axis == axis:
            first = dim.starts[index[axis]] if whole else dim.firsts[index[axis]]
            box.append((max(old[0], first), old[1]))
        else:
            number = index[dim.axis]
            inside = tiles.order.index(dim.axis) > rank
            box.append((dim.firsts[number] if inside else dim.starts[number], dim.stops[number]))
    follows = any(dim.axis == axis for dim in tiles.dims(name))
    if not follows and not whole and tiles.waits_whole(axis, index):
        return None
    for other in tiles.order[rank + 1 :]:
        if all(dim.axis != other for dim in tiles.dims(name)) and tiles.waits_whole(other, index):
            return None
    return None if is_empty(tuple(box)) else tuple(box)
