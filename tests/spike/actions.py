"""What the cores of a chip without SRAM do with one tile, as a function of the tile's counters alone (SCHED-3).

Where tiles, kept halos and weights lie is asked of today's lowering, which places them before it emits anything. What
it decides by history (which buffer, which sender, whether weights are brought) is replaced by rules over counters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any

from compiler.ops.op_facts import GraphFacts, OpFacts
from compiler.ops.slab import lengths
from compiler.program.context import Context
from compiler.program.decode import Decoders
from compiler.program.emitter import Box, Held, Machine, is_empty, machine_of
from compiler.program.flat import FlatLowering, _Entry
from compiler.program.moves import moves_of
from compiler.program.program import OUTPUT, Opcode
from compiler.program.rounds import Job
from compiler.program.slots import Slot
from compiler.tiling.tiled import TiledGroup

# Byte offset of the second buffer, and the counter that chooses between the two: a coefficient per axis, a constant.
Ring = tuple[int, tuple[int, ...], int]
# Counts and byte strides, bytes one after another among them.
Dims = tuple[tuple[int, int], ...]
# Place, whether it is written, the first byte, and the other bytes.
Touch = tuple[int, bool, int, Dims]


class UnsupportedError(Exception):
    """A kind of group that the spike leaves out."""


@dataclass(frozen=True, slots=True)
class Action:
    """One command of one tile: `key` stays the same from tile to tile, `numbers` are addresses and positions."""

    queue: int
    key: tuple[Any, ...]
    numbers: tuple[int, ...]
    touches: tuple[Touch, ...]


@dataclass(slots=True)
class Recorder:
    """Stands in for the emitter: takes down what it is told, without waits and marks."""

    machine: Machine
    tables: Callable[[int, int], tuple[Any, ...]]
    rings: dict[Slot, tuple[Slot, Ring]] = field(default_factory=dict)
    step: int = 0
    actions: list[Action] = field(default_factory=list)

    def copy(
        self,
        opcode: Opcode,
        queue: int,
        source: Held,
        target: Held,
        box: Box,
        element_bytes: int,
        also: Sequence[Slot] = (),
        *,
        is_ahead: bool = False,
    ) -> None:
        """A transfer, as `Emitter.copy` has it."""
        del is_ahead
        start, read_ring = self._address(source.slot, source.at(box))
        to, write_ring = self._address(target.slot, target.at(box))
        for runs, skip, jump in moves_of(lengths(box), source.strides, target.strides, element_bytes):
            places = (source.slot.place, target.slot.place, 1 + len(also))
            key = ("copy", int(opcode), queue, self.step, *places, runs, read_ring, write_ring)
            run, counts, strides, jumps = runs
            first, second = source.at(box) + skip, target.at(box) + jump
            dims = _dims((*counts, run), (*jumps, 1))
            touches = [(slot.place, True, second, dims) for slot in (target.slot, *also)]
            touches.append((source.slot.place, False, first, _dims((*counts, run), (*strides, 1))))
            self.actions.append(Action(queue, key, (start + skip, to + jump), _on_chip(touches)))

    def call(
        self,
        queue: int,
        table: int,
        entry: int,
        operands: Sequence[tuple[int, Held]],
        reads: Sequence[Slot],
        writes: Sequence[Slot],
        opcode: Opcode = Opcode.COMPUTE,
    ) -> None:
        """A call, as `Emitter.call` has it."""
        del reads, writes
        box, rest = self.tables(table, entry)
        numbers, bound, touches = [start for start, _ in box], [], []
        for operand, held in operands:
            address, ring = self._address(held.slot, held.at(held.box))
            numbers += [address, *(start for start, _ in held.box)]
            bound.append((operand, held.slot.place, lengths(held.box), held.strides, ring))
            element = min((stride for stride in held.strides if stride > 0), default=1)
            dims = _dims((*lengths(held.box), element), (*held.strides, 1))
            touches.append((held.slot.place, operand == OUTPUT, held.at(held.box), dims))
        key = ("call", int(opcode), queue, self.step, table, lengths(box), rest, tuple(bound))
        self.actions.append(Action(queue, key, tuple(numbers), _on_chip(touches)))

    def _address(self, slot: Slot, address: int) -> tuple[int, Ring | None]:
        """The address in the first of two buffers, and which counter chooses between them."""
        known = self.rings.get(slot)
        if known is None:
            return address, None
        first, ring = known
        return address - slot.address + first.address, ring


def _dims(counts: Sequence[int], strides: Sequence[int]) -> Dims:
    return tuple((c, s) for c, s in zip(counts, strides, strict=True) if c > 1)


def _on_chip(touches: Sequence[Touch]) -> tuple[Touch, ...]:
    return tuple(touch for touch in dict.fromkeys(touches) if touch[0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """What is done once for a tile: bring an operand, an op, send, keep, store. `number`: its place in a tile's order.

    `before`: it is done once, before all tiles. `ahead`: it may be done for the next tile while this one is worked on.
    """

    name: str
    number: int
    emit: Callable[[list[Job]], None]
    before: bool = False
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Unit:
    """A core's tiles: along each axis of the walk the first one and how many; the round of its first tile."""

    firsts: tuple[int, ...]
    counts: tuple[int, ...]
    lag: int

    def number(self, local: Sequence[int]) -> int:
        """The number of a tile in the core's own order."""
        found = 0
        for index, count in zip(local, self.counts, strict=True):
            found = found * count + index
        return found

    def local(self, number: int) -> tuple[int, ...]:
        """The counters of a tile."""
        found = []
        for count in reversed(self.counts):
            number, index = divmod(number, count)
            found.append(index)
        return tuple(reversed(found))

    def strides(self, left_out: Sequence[int] = ()) -> tuple[int, ...]:
        """By axis how many tiles lie between neighbours; axes left out do not count."""
        found, step = [0] * len(self.counts), 1
        for axis in reversed(range(len(self.counts))):
            if axis not in left_out:
                found[axis] = step
                step *= self.counts[axis]
        return tuple(found)


class FlatActions:
    """One group of a chip without SRAM: its cores' tiles, and what each family does with the tiles of a round."""

    def __init__(
        self, facts: GraphFacts, group: TiledGroup, outputs: frozenset[str], decoders: Decoders | None = None
    ) -> None:
        """Raises UnsupportedError for sums in parts, tables read through indices and dealt tiles without runs."""
        profile = group.profile
        if profile.sram is not None or group.input_parts > 1 or group.weights_in_place or group.reduced:
            raise UnsupportedError("SRAM, sums in parts or stationary weights")
        machine = machine_of(profile)
        made = frozenset(op.output for op in group.geometry.ops)
        self.group = group
        self.context = Context(facts, machine, made, outputs, decoders)
        self.recorder = Recorder(machine, self._entry)
        self.context.emitter = self.recorder  # type: ignore[assignment]
        numbers = {op.index: step for step, op in enumerate(group.geometry.ops)}
        self.lowering = lowering = FlatLowering(self.context, group, numbers, {})
        if lowering.gathered:
            raise UnsupportedError("rows of a table")
        self.axes = lowering.tiles.order
        self.channels = self.axes.index("C") if "C" in self.axes else -1
        self.rounds: list[list[Job]] = lowering.rounds
        self.units = self._units()
        lowering.emitter = self.recorder  # type: ignore[assignment]
        lowering.weights.emitter = self.recorder  # type: ignore[assignment]
        self._enter_rings()
        self._known: dict[tuple[int, int], list[Action]] = {}
        self.families = self._families()

    def _entry(self, table: int, entry: int) -> tuple[Any, ...]:
        found = self.context.tables[table]
        starts, sides, *rest = found.entries[entry]
        pairs = zip(starts, sides, strict=True)  # type: ignore[call-overload]
        return tuple((start, start + side) for start, side in list(pairs)[: found.rank]), tuple(rest)

    def _units(self) -> dict[int, Unit]:
        tiles: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        for number, jobs in enumerate(self.rounds):
            for unit, index in jobs:
                tiles.setdefault(unit, []).append((number, tuple(index.values())))
        found = {}
        for unit, its in sorted(tiles.items()):
            columns = list(zip(*(index for _, index in its), strict=True))
            firsts = tuple(min(column) for column in columns)
            counts = tuple(max(column) - first + 1 for column, first in zip(columns, firsts, strict=True))
            known = found[unit] = Unit(firsts, counts, its[0][0])
            for number, (turn, place) in enumerate(its):
                local = tuple(i - first for i, first in zip(place, firsts, strict=True))
                if turn != known.lag + number or prod(counts) != len(its) or known.local(number) != local:
                    raise UnsupportedError("tiles that are not dealt in runs")
        return found

    def index(self, unit: int, local: Sequence[int]) -> Mapping[str, int]:
        """A tile's number along each axis of the walk."""
        firsts = self.units[unit].firsts
        return dict(zip(self.axes, (f + i for f, i in zip(firsts, local, strict=True)), strict=True))

    # --- double buffers -----------------------------------------------------------------------------------------------

    def turns_of(self, root: str) -> tuple[int, ...] | None:
        """The buffers that a tensor's tiles use in turn; None for one that has a single one."""
        lowering = self.lowering
        if root in lowering.geometry.inputs:
            has_two = (lowering.place(0), ("tile", root, 1)) in lowering.buffers.slots
            return (0, 1) if has_two else None
        return lowering._output_turns.get(root)

    def tile_ring(self, unit: int, root: str) -> Ring:
        """The counter of a tensor's tiles: slices of the channels share what does not follow these."""
        shared = not self.lowering.configuration.slices_outer and not self.lowering._follows_channels(root)
        left_out = (self.channels,) if shared and self.channels >= 0 else ()
        return 0, self.units[unit].strides(left_out), 0

    def _enter_rings(self) -> None:
        slots = self.lowering.buffers.slots
        for (place, key), second in slots.items():
            if key[0] != "tile" or key[2] != 1:
                continue
            root = self.lowering.turn_root(str(key[1]))
            unit = next((unit for unit in self.units if self.lowering.place(unit) == place), None)
            if unit is None or self.turns_of(root) != (0, 1):
                continue
            first = slots[place, ("tile", key[1], 0)]
            _, coefficients, _ = self.tile_ring(unit, root)
            self._ring(first, second, coefficients, 0)

    def _ring(self, first: Slot, second: Slot, coefficients: tuple[int, ...], base: int) -> None:
        ring = (second.address - first.address, tuple(c % 2 for c in coefficients), base % 2)
        for slot in (first, second):
            self.recorder.rings[slot] = first, ring

    # --- weights ------------------------------------------------------------------------------------------------------

    def contents(self, step: int, unit: int, index: Mapping[str, int]) -> list[tuple[tuple[int, int], Box]]:
        """The slices of its channels in which an op makes a tile: channels and box of each."""
        lowering, op = self.lowering, self.lowering.geometry.ops[step]
        held = lowering.tile(op.output, unit, index)
        if held is None or not lowering.first_slice(op.output, index):
            return []
        box = lowering.unit_part(op, unit, held.box)
        if is_empty(box):
            return []
        channels = (0, 1) if op.channel_axis is None else box[op.channel_axis]
        slices = lowering.weights.slices(step, channels)
        if len(slices) == 1 or op.channel_axis is None:
            return [(found, box) for found in slices]
        axis = op.channel_axis
        return [(found, (*box[:axis], found, *box[axis + 1 :])) for found in slices]

    def is_alone(self, slots: Sequence[Slot]) -> bool:
        """True if nothing else of the group ever lies in these slots."""
        for slot in slots:
            for other in self.lowering.buffers._by_place[slot.place]:
                apart = (
                    other.address >= slot.address + slot.size_bytes or slot.address >= other.address + other.size_bytes
                )
                if other not in slots and not apart:
                    return False
        return True

    # --- families -----------------------------------------------------------------------------------------------------

    def _families(self) -> list[Family]:
        found: list[Family] = []
        lowering = self.lowering

        def add(name: str, emit: Callable[[list[Job]], None], *, before: bool = False, ahead: bool = False) -> None:
            found.append(Family(name=name, number=len(found), emit=emit, before=before, ahead=ahead))

        def each(emit: Callable[[int, Mapping[str, int]], None]) -> Callable[[list[Job]], None]:
            def every(jobs: list[Job]) -> None:
                for unit, index in jobs:
                    emit(unit, index)

            return every

        for name in lowering.geometry.inputs:
            add(f"bring {name}", lambda jobs, name=name: self._bring(name, jobs), ahead=True)  # type: ignore[misc]
        for name in lowering.geometry.inputs:
            add(f"send {name}", each(lambda u, i, name=name: lowering.pass_on(name, u, i)))  # type: ignore[misc]
        for step, op in enumerate(lowering.geometry.ops):
            weights = _WeightsPlan(self, step)
            if weights.has_tables:
                before = weights.tables_stay
                add(f"tables {step}", weights.bring_tables, before=before, ahead=not before)
            for part in range(weights.parts):
                if weights.slots and weights.has_weights:
                    bring = lambda jobs, w=weights, part=part: w.bring(jobs, part)  # noqa: E731
                    add(f"weights {step}.{part}", bring, before=weights.stays, ahead=not weights.stays)
                add(f"op {step}.{part}", lambda jobs, w=weights, part=part: w.compute(jobs, part))  # type: ignore[misc]
            share = each(
                lambda u, i, step=step, op=op: lowering.share_channels(step, op, "link", u, i)  # type: ignore[misc]
            )
            add(f"share {step}", share)
            add(f"send {op.output}", each(lambda u, i, op=op: lowering.pass_on(op.output, u, i)))  # type: ignore[misc]
            for name in lowering.dying((step,)):
                add(f"keep {name}", each(lambda u, i, name=name: lowering.keep(name, u, i)))  # type: ignore[misc]
        for name in lowering.geometry.outputs:
            add(f"store {name}", lambda _, name=name: lowering._store(name, (self._number,)))  # type: ignore[misc]
        for name in lowering.geometry.inputs:
            add(f"keep {name}", each(lambda u, i, name=name: lowering.keep(name, u, i)))  # type: ignore[misc]
        return found

    def at(self, family: Family, number: int) -> list[Action]:
        """What a family does in a round; -1 is before the first one."""
        if family.before != (number < 0) or number >= len(self.rounds):
            return []
        key = (family.number, number)
        found = self._known.get(key)
        if found is None:
            self.recorder.actions = []
            self.recorder.step = 0
            self._number, self.dealt = number, family.number + self._sharing * self._turn(number)
            jobs = (
                self.rounds[number]
                if number >= 0
                else [(u, dict(self.index(u, (0,) * len(self.axes)))) for u in self.units]
            )
            family.emit(jobs)
            found = self._known[key] = self.recorder.actions
        return found

    @property
    def _sharing(self) -> int:
        """How many cores load parts of what several need."""
        profile = self.lowering.profile
        engine = profile.engines.iodma
        return (
            1 if engine is None else min(len(self.units), ceil(profile.dram_bytes_per_cycle / engine.bytes_per_cycle))
        )

    def _turn(self, number: int) -> int:
        """The innermost counter of a round's tiles: by it cores take turns at loading and sending what several need."""
        if number < 0:
            return 0
        unit, index = self.rounds[number][0]
        its = self.units[unit]
        locals_ = [i - first for i, first in zip(index.values(), its.firsts, strict=True)]
        return next((i for i, count in reversed(list(zip(locals_, its.counts, strict=True))) if count > 1), 0)

    def _bring(self, name: str, jobs: list[Job]) -> None:
        lowering = self.lowering
        self.recorder.step = lowering.step_of[lowering._first_reader(name).index]
        wanted: dict[Box, tuple[list[Held], list[int]]] = {}
        for unit, index in jobs:
            held = lowering.tile(name, unit, index) if lowering.first_slice(name, index) else None
            if held is not None:
                targets, units = wanted.setdefault(held.box, ([], []))
                targets.append(held)
                units.append(unit)
        region = self.context.region(name)
        for box, (targets, units) in wanted.items():
            lowering.deliver(region, targets, units, box, lowering.element(name), self.dealt)


class _WeightsPlan:
    """When the weights of one op are brought, and to which of their slots: by the tile's number."""

    def __init__(self, actions: FlatActions, step: int) -> None:
        self.actions, self.step = actions, step
        self.lowering, self.weights = actions.lowering, actions.lowering.weights
        self.op: OpFacts = self.lowering.geometry.ops[step]
        self.slots = self.weights._slots[step, 0, 0]
        self.has_weights = bool(self.weights._constants[step])
        self.has_tables = bool(self.weights._tables[step])
        self.tables_stay = self.has_tables and actions.is_alone([self.weights._table_slots[step, 0, 0]])
        distinct: dict[int, dict[tuple[int, int], None]] = {unit: {} for unit in actions.units}
        by_slice: dict[tuple[int, int], set[tuple[tuple[int, int], ...]]] = {}
        self.parts = 0
        for jobs in actions.rounds:
            for unit, index in jobs:
                found = actions.contents(step, unit, index)
                self.parts = max(self.parts, len(found))
                stays = tuple(self.weights._staying(step, channels) for channels, _ in found)
                if stays:
                    by_slice.setdefault((unit, index.get("C", 0)), set()).add(stays)
                distinct[unit] |= dict.fromkeys(stays)
        self.distinct = {unit: list(found) for unit, found in distinct.items()}
        alone = actions.is_alone(self.slots)
        count = max(map(len, self.distinct.values()), default=0)
        self.stays = alone and count <= len(self.slots)
        depends = all(len(found) == 1 for found in by_slice.values())
        self.is_outer = alone and not self.stays and self.parts == 1 and depends and actions.channels == 0
        if not self.stays and len(self.slots) == 2 and self.parts == 1:
            for unit, its in actions.units.items():
                first, second = self.weights._slots[step, unit, 0]
                outer = tuple(int(axis == 0) for axis in range(len(its.counts)))
                actions._ring(first, second, outer if self.is_outer else its.strides(), 0)

    def slot(self, unit: int, index: Mapping[str, int], content: tuple[int, int], part: int) -> int:
        """Which of the op's slots in a core the weights of one slice use at a tile."""
        if self.stays:
            return self.distinct[unit].index(content)
        its = self.actions.units[unit]
        local = tuple(i - first for i, first in zip(index.values(), its.firsts, strict=True))
        number = local[0] if self.is_outer else its.number(local) * self.parts + part
        return number % len(self.slots)

    def _bound(self, unit: int, slot: int, content: tuple[int, int]) -> list[tuple[int, Held]]:
        boxes = self.weights.boxes(self.step, content, None)
        held = self.weights._slots[self.step, unit, 0][slot]
        return self.weights._bound(held, (self.step, content, None), boxes)

    def bring(self, jobs: list[Job], part: int) -> None:
        """Bring one slice of the weights: before all tiles what stays, else for the tiles of a round."""
        wanted: dict[tuple[tuple[int, int], int], list[int]] = {}
        for unit, index in jobs:
            if self.stays:
                for number, content in enumerate(self.distinct[unit] if part == 0 else ()):
                    wanted.setdefault((content, number), []).append(unit)
                continue
            its = self.actions.units[unit]
            local = [i - first for i, first in zip(index.values(), its.firsts, strict=True)]
            found = self.actions.contents(self.step, unit, index)
            if part < len(found) and not (self.is_outer and any(local[1:])):
                content = self.weights._staying(self.step, found[part][0])
                wanted.setdefault((content, self.slot(unit, index, content, part)), []).append(unit)
        self.actions.recorder.step = self.lowering.step_of[self.op.index]
        for (content, slot), units in wanted.items():
            boxes = self.weights.boxes(self.step, content, None)
            filled = [(operand, box) for operand, box in boxes if not is_empty(box)]
            brought = set()
            for number, (operand, box) in enumerate(filled):
                if (operand.tensor, box) not in brought:
                    brought.add((operand.tensor, box))
                    targets = {(unit, 0): self._bound(unit, slot, content)[number][1] for unit in units}
                    self.weights._bring(self.step, operand, box, targets, None, 0, self.actions.dealt + number)

    def bring_tables(self, jobs: list[Job]) -> None:
        """Bring the op's address tables."""
        self.actions.recorder.step = self.lowering.step_of[self.op.index]
        for number, operand in enumerate(self.weights._tables[self.step]):
            slots = self.weights._table_slots
            targets = {
                (unit, 0): self.weights._tables_in(self.step, slots[self.step, unit, 0])[number][1] for unit, _ in jobs
            }
            its = next(iter(targets.values())).box
            self.weights._bring(self.step, operand, its, targets, None, 0, self.actions.dealt + number)

    def compute(self, jobs: list[Job], part: int) -> None:
        """The calls that make one slice of the tiles of a round."""
        self.actions.recorder.step = self.lowering.step_of[self.op.index]
        for unit, index in jobs:
            found = self.actions.contents(self.step, unit, index)
            if part >= len(found):
                continue
            channels, box = found[part]
            bound: list[tuple[int, Held]] = []
            if self.has_tables:
                bound += self.weights._tables_in(self.step, self.weights._table_slots[self.step, unit, 0])
            if self.has_weights and self.slots:
                stays = self.weights._staying(self.step, channels)
                held = self._bound(unit, self.slot(unit, index, stays, part), stays)
                wanted = {operand.number: its for operand, its in self.weights.boxes(self.step, channels, None)}
                bound += [(number, its.part(wanted[number])) for number, its in held]
            target = self.lowering.tile(self.op.output, unit, index)
            assert target is not None
            self.lowering._call(self.op, _Entry(unit, index, target, box, channels), box, bound)
