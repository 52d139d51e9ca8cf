"""Lowering of one group: its tiles round by round, from DRAM to the cores and back (PROG-1).

What is the same for all kinds of groups stands here: inputs come into the unit's memory, what later tiles need is kept
there, results leave. What the cores do with a tile is said by the sub-classes: a core that holds the tile itself
(`flat.py`), cores that pass over it stage by stage (`staged.py`), or core tile by core tile (`nested.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial

from compiler.errors import LimitError
from compiler.ops.op_facts import OpFacts
from compiler.program.context import Context
from compiler.program.emitter import Box, Held, is_empty, overlap
from compiler.program.iteration import PERIOD_MAX, At, Loop, Step
from compiler.program.parts import SharedLowering
from compiler.program.program import Level, Opcode
from compiler.program.slots import Slot
from compiler.program.stored_boxes import StoredBoxes
from compiler.program.tiles import Index, Tiles
from compiler.program.weight_reach import Core, Need, Needs
from compiler.program.weights import GroupWeights
from compiler.tiling.lowerable import falls_check
from compiler.tiling.tiled import TiledGroup


class GroupLowering(SharedLowering):
    """One group on its way to commands."""

    def __init__(self, context: Context, group: TiledGroup, steps: Mapping[int, int]) -> None:
        """`steps`: the number of each op's step in the program."""
        super().__init__(context, group, steps)
        self._refuse_what_has_no_commands()
        self.weights = GroupWeights(self)
        self._stored: dict[str, StoredBoxes] = {}
        for unit in range(self.units):
            self.lay_out(unit)
        self.weights.lay_out()
        if len(self.rounds) > 1:
            self._double_outputs()
        self.double()
        self._load_to_stores()
        self._firsts = self._first_tiles()
        self.brings = tuple(
            self.step(f"bring {name}", self._first_reader(name), partial(self._load, name))
            for name in self.geometry.inputs
            if name not in self.gathered and name not in self.group.reduced
        )
        self.body = self.steps()

    def _refuse_what_has_no_commands(self) -> None:
        """Raises LimitError for tilings that only a pinned schedule can ask for, and that are not lowered."""
        kept = [name for name in self.group.reduced if self.tiles.stores(name)]
        if self.group.input_parts > 1 and (kept or self.group.is_staged):
            raise LimitError(
                "sums in parts are not lowered with kept halos of what is summed, nor breadth-first under an SRAM",
                code="not_lowered",
                stage="lower",
                node=self.context.graph.ops[self.geometry.ops[0].index].node,
                actual=f"{self.group.input_parts} parts",
                limit="1 part, or halo recompute and order depth-first",
            )
        if falls_check(self.group) is not None:
            raise LimitError(
                "core tiles whose ranges fall back inside SRAM tiles whose ranges rise are not lowered with kept halos",
                code="not_lowered",
                stage="lower",
                node=self.context.graph.ops[self.geometry.ops[0].index].node,
                limit="halo recompute, or a core tile as large as the SRAM tile",
            )

    # --- second buffers -----------------------------------------------------------------------------------------------

    def double(self) -> None:
        """Twins of buffers in the cores, as far as there is room."""

    def _double_outputs(self) -> None:
        """Say which buffers the tiles of results use; where the plan has one only, twins, as far as there is room."""
        first = self.place(0)
        for root in dict.fromkeys(self.turn_root(name) for name in self.geometry.outputs):
            names = self.lying_in(root)
            if root in self.geometry.inputs or not names or self.group.reduced:
                continue
            slots = [self.buffers.slots[first, ("tile", name, 0)] for name in names]
            if root in self.group.leaving or self._has_twins(names, slots):
                # one that shares bytes with other tensors of the tile would keep these waiting
                self._output_turns[root] = (0, 1) if self.buffers.are_alone(slots) else (1,)

    def _has_twins(self, names: Sequence[str], slots: Sequence[Slot]) -> bool:
        """Make a second buffer for tensors that lie over one another, if there is room."""
        twins, size = self.twins(self.level), max(slot.size_bytes for slot in slots)
        if twins.left_bytes - size < self.weights.passing_bytes(self.level):
            return False
        address = twins.take(size)
        if address is None:
            return False
        for name in names:
            twins.add((self.place(unit) for unit in range(self.units)), ("tile", name, 0), ("tile", name, 1), address)
        return True

    def _is_alone(self, name: str) -> bool:
        """True if a tensor's tiles lie over no other's, nor another's over its."""
        return self.turn_root(name) == name and name not in self.takes_over.values()

    # --- the rounds ---------------------------------------------------------------------------------------------------

    def steps(self) -> tuple[Step | Loop, ...]:
        """What is done with the tiles of a round once their inputs are brought, in order."""
        reads = [(name, self._first_reader(name)) for name in self.geometry.inputs]
        makes = [(name, self.op_of(name)) for name in self.geometry.outputs]
        return (
            *(self.send_step(name, op) for name, op in reads),
            *self.work(),
            *(self.step(f"store {name}", op, partial(self._store, name)) for name, op in makes),
            *(self.keep_step(name, op) for name, op in reads),
        )

    def send_step(self, name: str, op: OpFacts) -> Step:
        """The step in which units send each other what later tiles need of a tensor."""
        is_sent = self.group.exchanges and self._is_stored(name)
        return self.step(f"send {name}", op, self.each(partial(self._pass_on, name)) if is_sent else None)

    def share_step(self, step: int, op: OpFacts, engine: str) -> Step:
        """The step in which units that share out the channels send each other their parts of a result."""
        emit = partial(self.share_channels, step, op, engine) if self.units_share(op) else None
        return self.step(f"share {op.output}", op, emit)

    def keep_step(self, name: str, op: OpFacts) -> Step:
        """The step in which units put what their later tiles need of a tensor into their stores."""
        return self.step(f"keep {name}", op, self.each(partial(self._keep, name)) if self._is_stored(name) else None)

    def _is_stored(self, name: str) -> bool:
        """True if later tiles need something of a tensor.

        Rows of a table never lie in the unit's memory as an input: each op that wants them reads them in DRAM.
        """
        return bool(self.tiles.stores(name)) and name not in self._written_over and name not in self.gathered

    def step(self, name: str, op: OpFacts, emit: Callable[[At], None] | None, *, brings_lasting: bool = False) -> Step:
        """A step of an iteration whose commands belong to an op; without `emit` nothing is done in it."""
        if emit is None:
            return Step(name=name, emit=None)

        def its(at: At) -> None:
            self.emitter.step = self.step_of[op.index]
            emit(at)

        return Step(name=name, emit=its, brings_lasting=brings_lasting)

    def lasting_weights(self, step: int, op: OpFacts) -> Step:
        """The step that brings the weights of an op that several rounds find in place."""
        bring = partial(self.weights.bring_lasting, step) if self.weights.may_last(step) else None
        return self.step(f"lasting weights of {op.output}", op, bring, brings_lasting=True)

    def passing_weights(self, step: int, op: OpFacts, name: str, bring: Callable[[At], None]) -> Step:
        """A step that brings weights of an op which come with every use."""
        return self.step(f"{name} of {op.output}", op, bring if self.weights.may_pass(step) else None)

    def each(self, emit: Callable[[int, Index], None]) -> Callable[[At], None]:
        """What is done for each unit and its tile of a round."""

        def every(at: At) -> None:
            for unit, index in self.rounds[at[0]]:
                emit(unit, index)

        return every

    @abstractmethod
    def work(self) -> tuple[Step | Loop, ...]:
        """What the cores do with the tiles of a round."""

    def core_walks(self) -> list[tuple[Tiles, Mapping[str, Sequence[int]]]]:
        """Walks over parts of the tiles, with the first part of each tile by axis; none where tiles are not cut."""
        return []

    # --- weights ------------------------------------------------------------------------------------------------------

    def needs(self, step: int) -> Needs:
        """What all uses of an op's weights need."""
        kinds, found = self.round_kinds, dict[int, Sequence[Need]]()
        for number, kind in enumerate(kinds):
            if kind not in found:
                found[kind] = tuple(dict.fromkeys(self.needs_of(step, number)))
        return Needs(kinds, found)

    @abstractmethod
    def needs_of(self, step: int, number: int) -> Iterator[Need]:
        """What the uses of an op's weights in a round need, in order."""

    @cached_property
    def round_kinds(self) -> Sequence[int]:
        """By round its kind: rounds of one kind need the same weights."""
        return range(len(self.rounds))

    @cached_property
    def working_cores(self) -> list[Core]:
        """The cores of units that have any tile."""
        units = sorted({unit for jobs in self.rounds for unit, _ in jobs})
        cores = 1 if self.level is Level.NRAM else self.configuration.cores
        return [(unit, core) for unit in units for core in range(cores)]

    @cached_property
    def slice_numbers(self) -> list[int] | None:
        """By round the slice of the channels that all units work on, where slices lie outermost; else None."""
        if not self.configuration.slices_outer or "C" not in self.tiles.counts:
            return None
        return [self.owners.slice_number(jobs[0][1]["C"]) for jobs in self.rounds]

    # --- whose turn it is ---------------------------------------------------------------------------------------------

    def _first_tiles(self) -> dict[int, dict[str, int]]:
        """By unit the first number of its tiles along each axis along which it has several."""
        numbers: dict[int, dict[str, set[int]]] = {}
        for jobs in self.rounds:
            for unit, index in jobs:
                its = numbers.setdefault(unit, {axis: set() for axis in index})
                for axis, number in index.items():
                    its[axis].add(number)
        return {
            unit: {axis: min(found) for axis, found in its.items() if len(found) > 1} for unit, its in numbers.items()
        }

    def turn(self, number: int, at: At) -> int:
        """Whose turn it is to load or send first what several need: step `number` of an iteration, at its counters.

        It moves on with the step and with the innermost counters, as far as a loop may take to do the same again
        (SCHED-2).
        """
        return number + (self._innermost(at) + sum(at[1:])) % PERIOD_MAX

    def _innermost(self, at: At) -> int:
        unit, index = self.rounds[at[0]][0]
        axes = list(self._firsts[unit].items())
        return index[axes[-1][0]] - axes[-1][1] if axes else 0

    def dying(self, steps: Sequence[int]) -> list[str]:
        """Results that no op after these steps reads: what later tiles need of them has to be kept now.

        Nothing is needed of what has been written over: its only reader goes position by position.
        """
        return [
            name for name in self.geometry.made if self._last_step[name] in steps and name not in self._written_over
        ]

    @cached_property
    def _written_over(self) -> frozenset[str]:
        """Results whose only reader writes over them, position by position: later tiles need nothing of them."""
        return frozenset(self.takes_over.values())

    @cached_property
    def _last_step(self) -> dict[str, int]:
        last = {op.output: step for step, op in enumerate(self.geometry.ops)}
        for step, op in enumerate(self.geometry.ops):
            for operand in op.operands:
                if operand.tensor in last:
                    last[operand.tensor] = max(last[operand.tensor], step)
        return last

    def _load(self, name: str, at: At) -> None:
        """An input from DRAM; what several units need at once is read once where they are connected."""
        wanted: dict[Box, list[Held]] = {}
        units: dict[Box, list[int]] = {}
        for unit, index in self.rounds[at[0]]:
            held = self.tile(name, unit, index) if self.first_slice(name, index) else None
            if held is not None:
                wanted.setdefault(held.box, []).append(held)
                units.setdefault(held.box, []).append(unit)
        region, turn = self.context.region(name), self.turn(self.geometry.inputs.index(name), at)
        for number, (box, targets) in enumerate(wanted.items()):
            self.deliver(region, targets, units[box], box, self.element(name), turn + number)

    def _load_to_stores(self) -> None:
        """Let an input lie in its store from the start where the unit's other tiles need all of it and nothing else.

        A normalisation over all rows, cut by rows, reads the same input for every tile: nothing is copied between them.
        """
        found: dict[tuple[int, str, tuple[int, ...]], Held] = {}
        for name in self.geometry.inputs:
            axes = self.tiles.stored_axes(name)
            if len(axes) != 1 or name in self._written_over or name in self.gathered or name in self.group.reduced:
                continue  # with several stores what waits in one is copied to another, and from there to the first
            for unit in range(self.units):
                loading = self._only_load(name, unit)
                held = self._in_store(name, unit, loading, axes[0]) if loading is not None else None
                if loading is not None and held is not None:
                    found[unit, name, self._turn_key(name, loading)] = held
        self._in_stores = found
        self._tiles_held.clear()

    def _in_store(self, name: str, unit: int, index: Index, axis: str) -> Held | None:
        """Where the input of the only tile of a unit that loads any of it lies in its store; None if it does not."""
        held = self.tile(name, unit, index)
        store, later = self.buffers.store(self.place(unit), name, axis), self.tiles.successor(axis, index)
        if held is None or store is None or later is None or store.shape.ring is not None:
            return None
        if unit not in self.owners.of(later) or self.tiles.saved(name, index, later, axis, whole=False) != held.box:
            return None
        return store.pieces(self.tiles, name, index, held.box)[0]

    def _only_load(self, name: str, unit: int) -> Index | None:
        """The only one of a unit's tiles that loads anything of an input; None if there are several, or none."""
        found: dict[tuple[int, ...], Index] = {}
        for jobs in self.rounds:
            for worker, index in jobs:
                if worker == unit and not is_empty(self.made(name, index)):
                    found.setdefault(self._turn_key(name, index), index)
        return next(iter(found.values())) if len(found) == 1 else None

    def _first_reader(self, name: str) -> OpFacts:
        return next(op for op in self.geometry.ops for o in op.operands if o.tensor == name)

    # --- what later tiles need ----------------------------------------------------------------------------------------

    def _pass_on(self, name: str, unit: int, index: Index) -> None:
        """Send what a tile made, and later tiles of other units need, to these units (TILE-3)."""
        if self.first_slice(name, index):
            # units that share out one tile send each other their parts of it, and keep for themselves what waits
            known = self.owners.of(index)
            for axis in self.tiles.stored_axes(name):
                later = self.tiles.successor(axis, index)
                if later is not None:
                    for other in self.owners.of(later):
                        if other not in known:
                            self._save(name, unit, index, later, other, axis)

    def _keep(self, name: str, unit: int, index: Index) -> None:
        """Put what a tile made, and later tiles of its unit need, into the unit's stores: innermost axis first."""
        for axis in self.tiles.stored_axes(name) if self.last_slice(name, index) else ():
            later = self.tiles.successor(axis, index)
            if later is not None and unit in self.owners.of(later):
                self._save(name, unit, index, later, unit, axis)

    def _save(self, name: str, unit: int, index: Index, later: Index, other: int, axis: str) -> None:
        store = self.buffers.store(self.place(other), name, axis)
        if store is None:
            return
        box = self.tiles.saved(name, index, later, axis, whole=other != unit)
        if box is None:
            return
        targets = store.pieces(self.tiles, name, index, box)
        for source in self.pieces(name, unit, index, box):
            for target in targets:
                part = overlap(source.box, target.box)
                if part is not None and source.slot is not target.slot:
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

    def stored_boxes(self, name: str) -> StoredBoxes:
        """The parts of an output that tiles hand out; of tiles that are cut again, those of the parts."""
        found = self._stored.get(name)
        if found is None:
            found = self._stored[name] = StoredBoxes(self.tiles, name)
        return found

    def _store(self, name: str, at: At) -> None:
        """An output to DRAM."""
        engine = "gdma" if self.level is Level.SRAM and self.machine.has("gdma") else "iodma"
        op = self.op_of(name)
        region = self.context.region(name)
        boxes = self.stored_boxes(name)
        for unit, index in self.workers(op, self.rounds[at[0]], after=True):
            box = boxes.of(index)
            held = self.tile(name, unit, index) if box is not None else None
            if box is None or held is None or not self.hands_out(op, unit, 0):
                continue
            part = overlap(box, held.box)
            mine = self.unit_part(op, unit, part) if part is not None else None
            if mine is not None and not is_empty(mine):
                self.emitter.copy(Opcode.STORE, self.queue(engine, unit), held, region, mine, self.element(name))
