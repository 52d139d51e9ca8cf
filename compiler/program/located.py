"""A group on its chip: its tiles, who works on them when, its memories and its engines (PROG-2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, partial

from compiler.ir.layout import strides_of
from compiler.ops.op_facts import OpFacts
from compiler.ops.slab import lengths
from compiler.program.buffers import Buffers, Twins, align_to_line, in_slot
from compiler.program.context import Context
from compiler.program.emitter import Held, is_empty
from compiler.program.iteration import PERIOD_MAX, At
from compiler.program.known import Known
from compiler.program.program import Level
from compiler.program.rounds import Owners, rounds_of
from compiler.program.tiles import Index, StoreShape, Tiles
from compiler.program.weight_reach import Core
from compiler.tiling.handed import begin_of, part_boxes, part_bytes
from compiler.tiling.memory import memory_of
from compiler.tiling.tile import Spread
from compiler.tiling.tiled import TiledGroup
from compiler.units import ceil_div


class Located:
    """One group on its chip: what all that lowers it asks for, and nothing of how the cores work."""

    def __init__(self, context: Context, group: TiledGroup) -> None:
        self.context = context
        self.emitter = context.emitter
        self.machine = context.machine
        self.group = group
        self.geometry = group.geometry
        self.configuration = group.configuration
        self.profile = group.profile
        self.tiles = Tiles(group.frustums)
        self.tensors = self.geometry.facts.tensors
        self.units = 1 if self.configuration.spread is Spread.SINGLE else self.configuration.units
        # each unit adds up its part of what is summed over
        self.shares_sums = self.configuration.spread is Spread.INPUT_CHANNELS
        self.level = Level(self.profile.units.level)
        self.buffers = Buffers(self.machine, memory_of(group))
        self.gathered = {o.gathered for op in self.geometry.ops for o in context.operands(op.index) if o.gathered}
        # results that are written over an operand where the cores find both: in a core, or in the unit's memory
        self.takes_over = group.taken_over(group.core_volumes if group.is_nested else group.volumes(group.frustums))
        # results whose only reader writes over them, position by position: later tiles need nothing of them
        self.written_over = frozenset(self.takes_over.values())
        self.owners = Owners(group, self.tiles)
        self.rounds = rounds_of(self.tiles, self.owners)
        self._core_places = [self.buffers.place(Level.NRAM, core) for core in range(self.profile.cores)]
        self._dense = Known(self._new_dense_strides)
        # by tensor whether all slices of the channels use the same tile of it
        self.shared = Known(partial(self.is_shared_by_slices, self.tiles))
        self._twins = Known(self._new_twins)

    # --- memories and engines -----------------------------------------------------------------------------------------

    def place(self, unit: int) -> int:
        """The place that holds a unit's tiles."""
        return self.buffers.place(self.level, unit)

    def core_place(self, unit: int, core: int) -> int:
        """The activation memory of a unit's core."""
        return self._core_places[self.core_number(unit, core)]

    def core_number(self, unit: int, core: int) -> int:
        """The number of a unit's core on the chip."""
        return unit * self.profile.units.cores + core

    def cores_of(self, unit: int) -> range:
        """The numbers of a unit's cores on the chip."""
        first = self.core_number(unit, 0)
        return range(first, first + self.configuration.cores)

    def queue(self, engine: str, number: int) -> int:
        """The queue of an engine."""
        return self.machine.queue_of[engine, number]

    def core_queue(self, engine: str, unit: int, core: int) -> int:
        """The queue of an engine of a unit's core."""
        return self.machine.queue_of[engine, self.core_number(unit, core)]

    def local_queue(self, unit: int) -> int:
        """The queue that moves bytes inside a unit's memory: without SRAM the core itself."""
        if self.level is Level.NRAM:
            return self.queue("core", unit)
        return self.queue("cdma" if self.machine.has("cdma") else "gdma", unit)

    def peer_queue(self, unit: int) -> int:
        """The queue that moves bytes from a unit's memory to those of others."""
        return self.queue("link" if self.level is Level.NRAM else "cdma", unit)

    @cached_property
    def receivers_are_slower(self) -> bool:
        """True if a unit takes less at once than all others can send it: over links, or through ports of its memory."""
        units = self.profile.units
        rate, engine = units.memory.bytes_per_cycle, units.peer_engine
        sent = 0.0 if engine is None else (units.count - 1) * engine.bytes_per_cycle
        return self.level is Level.NRAM or (rate is not None and rate < sent)

    def spare_bytes(self, level: Level) -> int:
        """How much may pass through a memory at once on its way to the cores: what no buffer of the group takes."""
        return self.twins(level).left_bytes

    def twins(self, level: Level) -> Twins:
        """What the plan leaves free at the end of a memory, and the twins of buffers that lie there."""
        return self._twins[level]

    def _new_twins(self, level: Level) -> Twins:
        memory = self.buffers.levels.get(level.value)
        if memory is None:
            return Twins(self.buffers, 0, self.machine.places[self.buffers.place(level, 0)].capacity_bytes)
        return Twins(self.buffers, align_to_line(memory.allocation.peak_bytes), memory.capacity_bytes)

    def element(self, name: str) -> int:
        """Bytes of one element of a tensor as it lies on the chip."""
        return self.context.element_bytes(name)

    def dense_strides(self, name: str, lengths: tuple[int, ...]) -> tuple[int, ...]:
        """Byte strides of a tensor's box of these lengths that lies by itself."""
        return self._dense[name, lengths]

    def _new_dense_strides(self, key: tuple[str, tuple[int, ...]]) -> tuple[int, ...]:
        name, lengths = key
        return strides_of(lengths, self.tensors[name].order, self.element(name))

    def strides_of_stores(self, name: str, shapes: Iterable[StoreShape]) -> list[tuple[int, ...]]:
        """The byte strides of a tensor's stores."""
        return [self.dense_strides(name, shape.lengths) for shape in shapes]

    def core_places(self) -> list[int]:
        """The activation memories of all units' cores."""
        return [self.core_place(unit, core) for unit in range(self.units) for core in range(self.configuration.cores)]

    def dying(self, steps: Sequence[int]) -> list[str]:
        """Results that no op after these steps reads: what later tiles need of them has to be kept now.

        Nothing is needed of what has been written over: its only reader goes position by position.
        """
        return [name for name in self.geometry.made if self._last_step[name] in steps and name not in self.written_over]

    @cached_property
    def _last_step(self) -> dict[str, int]:
        last = {op.output: step for step, op in enumerate(self.geometry.ops)}
        for step, op in enumerate(self.geometry.ops):
            for operand in op.operands:
                if operand.tensor in last:
                    last[operand.tensor] = max(last[operand.tensor], step)
        return last

    def is_parted(self, op: OpFacts) -> bool:
        """True for the product whose sums are made in parts."""
        return self.group.input_parts > 1 and op is self.geometry.product

    def op_of(self, name: str) -> OpFacts:
        """The op of the group that makes a tensor."""
        return next(op for op in self.geometry.ops if op.output == name)

    def first_reader(self, name: str) -> OpFacts:
        """The first op of the group that reads a tensor."""
        return next(op for op in self.geometry.ops for o in op.operands if o.tensor == name)

    @cached_property
    def held_parts(self) -> dict[str, list[tuple[int, Held]]]:
        """Where units hold what passes from group to group on the chip: at the end of their memories (TILE-4)."""
        found: dict[str, list[tuple[int, Held]]] = {}
        units, facts = self.profile.units, self.geometry.facts
        end = units.memory.capacity_bytes + self.configuration.handover.held_bytes
        for name, its in (*self.group.handed.items(), *self.group.taken.items()):
            size, address = part_bytes(facts, name, its), end - begin_of(facts, name, its)
            parts = enumerate(part_boxes(facts, name, its, units.count))
            boxes = [(unit, box) for unit, box in parts if not is_empty(box)]
            # all parts lie alike, the last one's end apart
            strides = self.dense_strides(name, lengths(boxes[0][1]))
            slots = ((unit, self.buffers.insert(self.place(unit), address, size), box) for unit, box in boxes)
            found[name] = [(unit, in_slot(slot, strides, box)) for unit, slot, box in slots]
        return found

    # --- slices of the channels ---------------------------------------------------------------------------------------

    def first_slice(self, name: str, index: Index) -> bool:
        """False for a tensor that all slices of the channels share, at the slices after the first of a unit."""
        return not self.shared[name] or index["C"] % self._slice_count == 0

    @property
    def _slice_count(self) -> int:
        units = self.units if self.configuration.spread is Spread.CHANNELS else 1
        return ceil_div(self.tiles.counts["C"], units)

    def last_slice(self, name: str, index: Index) -> bool:
        """True where a tile is the last one of its unit that reads what slices of the channels share."""
        if not self.shared[name]:
            return True
        return index["C"] % self._slice_count == self._slice_count - 1 or index["C"] == self.tiles.counts["C"] - 1

    def is_shared_by_slices(self, tiles: Tiles, name: str) -> bool:
        """True if all slices of the channels use the same tile of a tensor, of units or of cores."""
        has_slices = "C" in tiles.counts and not self.configuration.slices_outer
        return has_slices and not any(dim.axis == "C" for dim in tiles.dims(name))

    @cached_property
    def slice_numbers(self) -> list[int] | None:
        """By round the slice of the channels that all units work on, where slices lie outermost; else None."""
        if not self.configuration.slices_outer or "C" not in self.tiles.counts:
            return None
        return [self.owners.slice_number(jobs[0][1]["C"]) for jobs in self.rounds]

    # --- who works, and whose turn it is ------------------------------------------------------------------------------

    @cached_property
    def working_cores(self) -> list[Core]:
        """The cores of units that have any tile."""
        units = sorted({unit for jobs in self.rounds for unit, _ in jobs})
        cores = 1 if self.level is Level.NRAM else self.configuration.cores
        return [(unit, core) for unit in units for core in range(cores)]

    @cached_property
    def idle_cores(self) -> frozenset[int]:
        """The numbers of the chip's cores that have no work in the group."""
        working = {self.core_number(*core) for core in self.working_cores}
        return frozenset(range(self.profile.cores)) - working

    def turn(self, number: int, at: At) -> int:
        """Whose turn it is to load or send first what several need: step `number` of an iteration, at its counters.

        It moves on with the step and with the innermost counters, as far as a loop may take to do the same again
        (SCHED-2).
        """
        unit, index = self.rounds[at[0]][0]
        axis, first = self._innermost[unit]
        innermost = 0 if axis is None else index[axis] - first
        return number + (innermost + sum(at[1:])) % PERIOD_MAX

    @cached_property
    def _innermost(self) -> dict[int, tuple[str | None, int]]:
        """By unit the innermost axis along which it has several tiles, and the first number of these; None: none."""
        tiles: dict[int, list[Index]] = {}
        for unit, index in (job for jobs in self.rounds for job in jobs):
            tiles.setdefault(unit, []).append(index)
        found: dict[int, tuple[str | None, int]] = {}
        for unit, its in tiles.items():
            numbers = ((axis, {index[axis] for index in its}) for axis in reversed(self.tiles.order))
            found[unit] = next(((axis, min(several)) for axis, several in numbers if len(several) > 1), (None, 0))
        return found
