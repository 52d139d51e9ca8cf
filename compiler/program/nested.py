"""Depth-first groups of a chip with SRAM: core tiles pass all ops of the group inside NRAM (TILE-8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from compiler.ops.op_facts import OpFacts
from compiler.program.core_tiles import CoreMemory, CoreRound, CoreRounds, Together, Work
from compiler.program.emitter import Box, Held, is_empty, overlap
from compiler.program.group import OpSteps
from compiler.program.iteration import At, Loop, Step
from compiler.program.known import Known
from compiler.program.located import Located
from compiler.program.parts import ChannelParts, SumParts, channels_of
from compiler.program.peers import copy_common, send, to_cores
from compiler.program.program import Opcode
from compiler.program.stored_boxes import StoredBoxes
from compiler.program.tiles import Index
from compiler.program.unit_calls import Bound, OperandBoxes, Part, UnitCalls
from compiler.program.unit_tiles import UnitTiles
from compiler.program.weight_reach import Core, Need
from compiler.program.weights import GroupWeights


class _Entry(NamedTuple):
    """A core's work on an op: its unit, the unit's tile, the core, the core tile, the result's place and its box."""

    unit: int
    tile: Index
    core: int
    core_tile: dict[str, int]
    held: Held
    box: Box


@dataclass(slots=True, eq=False)
class CoreJobs:
    """Who makes what of an op's result in a core round, and what weights that needs."""

    located: Located
    rounds: CoreRounds
    memory: CoreMemory
    sums: SumParts

    @property
    def round_kinds(self) -> Sequence[int]:
        """By round its kind: rounds of one kind need the same weights."""
        return self.rounds.round_kinds

    def working(self, op: OpFacts, work: list[Work]) -> list[Work]:
        """The cores that work on an op: where units share out a sum, after it only those of the last one."""
        if not self.located.shares_sums or op is self.located.geometry.product:
            return work
        return [entry for entry in work if entry[0] == self.sums.summing_units - 1]

    def entries(self, op: OpFacts, work: list[Work]) -> list[_Entry]:
        """Who makes what of an op's result."""
        found = []
        for unit, tile, core, index in work:
            held = self.memory.tile(op.output, unit, core, index)
            if held is not None and self.rounds.is_first(op.output, index):
                box = self.rounds.part(op, (unit, core), self.rounds.core_tiles.fresh(op.output, index))
                found.append(_Entry(unit, tile, core, index, held, box))
        return found

    def need(self, op: OpFacts, entry: _Entry, part: Part | None = None) -> Need:
        """What a core needs of an op's weights for what it makes."""
        whole = self.rounds.unit_channels(op, entry.unit, entry.tile)
        return Need((entry.unit, entry.core), channels_of(op, entry.box), whole, None if part is None else part.range)

    def needs_of(self, step: int, number: int) -> Iterator[Need]:
        """What the core tiles of a round need of an op's weights."""
        op = self.located.geometry.ops[step]
        is_parted = self.located.is_parted(op)
        for work, _ in self.rounds.of_round(number):
            for entry in self.entries(op, self.working(op, work)):
                if not is_empty(entry.box):
                    for part in self.sums.of_unit(entry.unit) if is_parted else (None,):
                        yield self.need(op, entry, part)


@dataclass(eq=False)
class NestedCores:
    """A unit is a cluster; its SRAM holds what enters and leaves a tile, its cores all that lies between."""

    located: Located
    operands: OperandBoxes
    tiles: UnitTiles
    rounds: CoreRounds
    memory: CoreMemory
    jobs: CoreJobs
    channels: ChannelParts
    sums: SumParts
    calls: UnitCalls
    weights: GroupWeights

    def __post_init__(self) -> None:
        """The parts of an output that core tiles hand out of their SRAM tiles' boxes are worked out once."""
        self._drained = Known[str, StoredBoxes](
            lambda name: StoredBoxes(self.rounds.core_tiles, name, self.rounds.blocks)
        )

    def work(self, steps: OpSteps) -> tuple[Step | Loop, ...]:
        """Core tiles of all units side by side; unit by unit where halos pass between them."""
        found: list[Step | Loop] = []
        for step, op in enumerate(self.located.geometry.ops):
            name = op.output
            without = {*self.located.group.reduced, *self.located.gathered}
            reads = (read for read in self.located.geometry.first_readers.get(op.index, ()) if read not in without)
            found += [steps.step(f"fill {read}", op, partial(self._fill_input, read, op)) for read in reads]
            found += steps.lasting_weights(step, op)
            if self.located.is_parted(op):
                found.append(steps.step(f"sum up {name}", op, partial(self._sums, step, op)))
            else:
                found.append(steps.passing_weights(step, op, "weights", partial(self._weights, step, op)))
                found.append(steps.step(f"make {name}", op, partial(self._make, step, op)))
            if self.rounds.are_parted:
                found.append(steps.step(f"share {name}", op, partial(self._share, step, op)))
            if name in self.located.group.core_resident:
                found.append(steps.step(f"pass on {name}", op, partial(self._pass_results, op)))
            kept = (dying for dying in self.located.dying((step,)) if dying in self.located.group.core_resident)
            found += [steps.step(f"keep {dying}", op, partial(self._keep_results, dying)) for dying in kept]
        return (Loop(name="core tiles", count=lambda at: len(self.rounds.of_round(at[0])), body=tuple(found)),)

    def _now(self, at: At) -> CoreRound:
        return self.rounds.of_round(at[0])[at[1]]

    def _pass_results(self, op: OpFacts, at: At) -> None:
        """What other core tiles of the same core round need of a result, once it is made."""
        work, now = self._now(at)
        for axes, back in self.rounds.core_tiles.ways(op.output):
            for unit, _, core, index in reversed(work) if back else work:
                held = self.memory.tile(op.output, unit, core, index)
                if held is not None and self.rounds.is_first(op.output, index):
                    self._pull(op.output, unit, core, index, held, now, axes, at_once=True, back=back)
                self._save_results(op.output, unit, core, index, now, axes, at_once=True, back=back)

    def _keep_results(self, name: str, at: At) -> None:
        """What later core tiles need of a tensor that no further op of this one reads."""
        work, now = self._now(at)
        for unit, _, core, index in work:
            axes = self.rounds.core_tiles.stored_axes(name)
            self._save_results(name, unit, core, index, now, axes, at_once=False)

    def _sums(self, step: int, op: OpFacts, at: At) -> None:
        """A product whose sums are made part by part: by all units at once, or one takes up the sums of another."""
        work, now = self._now(at)
        by_unit: dict[int, list[Work]] = {}
        for entry in sorted(work, key=lambda entry: entry[0]):
            by_unit.setdefault(entry[0], []).append(entry)
        if not self.located.shares_sums:
            for part in self.sums.of_unit(0):
                self._sum_part(step, op, [entry for mine in by_unit.values() for entry in mine], at, now, part, {})
            return
        sent: dict[int, tuple[Held, int]] = {}
        for unit, mine in by_unit.items():
            for part in self.sums.of_unit(unit):
                self._sum_part(step, op, mine, at, now, part, sent)
            if self.sums.of_unit(unit):
                for _, _, core, index in mine:
                    held = self.memory.tile(op.output, unit, core, index)
                    if held is not None:
                        sent[core] = (held, unit)

    def _sum_part(
        self,
        step: int,
        op: OpFacts,
        mine: list[Work],
        at: At,
        now: Together,
        part: Part,
        sent: Mapping[int, tuple[Held, int]],
    ) -> None:
        """Add one part to the sums of units' cores; what other units have (`sent`) comes before the first one."""
        jobs = {
            unit: tile
            for unit, tile, _, index in mine
            if self.located.group.parts_come_again or index == self.rounds.of_tile(unit, tile)[0][0][3]
        }
        turn = self.located.turn(len(self.located.geometry.inputs) + step, at)
        self.sums.load_part(op, list(jobs.items()), part, turn)
        for name in self.located.geometry.first_readers.get(op.index, ()):
            if name in self.located.group.reduced:
                self._fill(name, mine, part)
        entries = self.jobs.entries(op, mine)
        if part.turn == 0:
            for entry in entries:
                self._pull_waiting(op, entry, now)
        entries = [entry for entry in entries if not is_empty(entry.box)]
        if part.turn == 0:
            for entry in entries:
                if entry.core in sent:
                    source, sender = sent[entry.core]
                    self.sums.pass_sums(source, entry.held, entry.box, self.located.queue("cdma", sender), op)
        needs = [self.jobs.need(op, entry, part) for entry in entries]
        use = self._use(at) * self.located.group.input_parts + part.turn
        self.weights.bring_passing(step, at, needs, use, tables=part.turn == 0)
        for entry, need in zip(entries, needs, strict=True):
            self._call(op, entry, self.weights.bound(step, need, at[0], use), part)

    # --- inputs -------------------------------------------------------------------------------------------------------

    def _fill_input(self, name: str, op: OpFacts, at: At) -> None:
        """An input of the group from SRAM to the cores, but where it lies there from the core tile before."""
        work = [entry for entry in self.jobs.working(op, self._now(at)[0]) if not self._lies_there(name, entry)]
        self._fill(name, work)

    def _fill(self, name: str, work: list[Work], part: Part | None = None) -> None:
        """An input of the group from SRAM to the cores: to all that need the same box at once."""
        element = self.located.element(name)
        wanted: dict[tuple[int, Box], dict[int, Held]] = {}
        tiles: dict[tuple[int, Box], Index] = {}
        for unit, tile, core, index in work:
            held = self.memory.tile(name, unit, core, index, part)
            if held is None or not self._has_work(name, unit, core, index):
                continue
            wanted.setdefault((unit, held.box), {})[self.located.core_number(unit, core)] = held
            tiles[unit, held.box] = tile
        for (unit, box), targets in wanted.items():
            for source in self.tiles.pieces(name, unit, tiles[unit, box], box, part):
                to_cores(self.located.emitter, unit, source, targets, source.box, element)

    def _lies_there(self, name: str, work: Work) -> bool:
        """True if what the same core works on before needs the same box, and nothing else lies there."""
        unit, _, core, index = work
        if not self.memory.stays_between(name):
            return False
        found = self.rounds.before(name, work)
        if found is None:
            return False
        before = found[3]
        if not self._has_work(name, unit, core, before):
            return False
        return self.memory.tile(name, unit, core, before) == self.memory.tile(name, unit, core, index)

    def _has_work(self, name: str, unit: int, core: int, index: Index) -> bool:
        """False for a core that has no part of anything that is made of an input."""
        readers = self.operands.readers_after(-1, name)
        return any(
            not is_empty(self.rounds.part(op, (unit, core), self.rounds.core_tiles.fresh(op.output, index)))
            for op, _ in readers
        )

    # --- ops ----------------------------------------------------------------------------------------------------------

    def _use(self, at: At) -> int:
        """The number of a use of an op's weights, counted over all core rounds."""
        return at[0] * self.located.group.core_walk.rounds + at[1]

    def _weights(self, step: int, op: OpFacts, at: At) -> None:
        entries = self.jobs.entries(op, self.jobs.working(op, self._now(at)[0]))
        needs = [self.jobs.need(op, entry) for entry in entries if not is_empty(entry.box)]
        self.weights.bring_passing(step, at, needs, self._use(at), tables=True)

    def _make(self, step: int, op: OpFacts, at: At) -> None:
        """An op on the core tiles of a core round."""
        work, now = self._now(at)
        for entry in self.jobs.entries(op, self.jobs.working(op, work)):
            self._pull_waiting(op, entry, now)
            if not is_empty(entry.box):
                bound = self.weights.bound(step, self.jobs.need(op, entry), at[0], self._use(at))
                self._call(op, entry, bound)

    def _pull_waiting(self, op: OpFacts, entry: _Entry, now: Together) -> None:
        """Bring what waits of an op's result beside what is made anew."""
        axes = self.rounds.core_tiles.stored_axes(op.output)
        self._pull(op.output, entry.unit, entry.core, entry.core_tile, entry.held, now, axes, at_once=False)

    def _call(self, op: OpFacts, entry: _Entry, weights: Bound, part: Part | None = None) -> None:
        """The call that makes a core tile's result or adds to its sums, and its way to the SRAM when it is done."""
        unit, tile, core, index, held, box = entry

        def find(name: str, need: Box) -> list[Held]:
            return self.memory.pieces(name, unit, core, index, need, part)

        self.calls.make(op, self.located.core_number(unit, core), box, weights, find, held, part)
        if part is None or part.ends:
            self._drain(op, (unit, tile, core, index), box, held)

    def _share(self, step: int, op: OpFacts, at: At) -> None:
        """Parts of the channels to the cores that need them for a later op; what has none every core has made."""
        work, _ = self._now(at)
        if op.channel_axis is None:
            return
        element = self.located.element(op.output)
        # by core tile who needs what, and the different boxes of that
        alike: dict[tuple[int, ...], tuple[list[tuple[Core, Held, Box]], list[Box]]] = {}
        for unit, _, core, index in work:
            made = self.rounds.core_tiles.fresh(op.output, index)
            source = self.memory.tile(op.output, unit, core, index)
            mine = self.rounds.part(op, (unit, core), made)
            if source is None or is_empty(mine):
                continue
            key = tuple(index.values())
            if key not in alike:
                cores = [((u, c), self.memory.tile(op.output, u, c, i)) for u, _, c, i in work if i == index]
                tiles = self.rounds.core_tiles
                its = self.operands.receivers(step, op.output, tiles, index, cores, self.rounds.part)
                alike[key] = its, list(dict.fromkeys(wanted for _, _, wanted in its))
            receivers, boxes = alike[key]
            parts = {wanted: overlap(mine, wanted) for wanted in boxes}
            near: list[tuple[Held, Box]] = []
            far: list[tuple[Held, Box]] = []
            for receiver, target, wanted in receivers:
                part = parts[wanted]
                if part is not None and receiver != (unit, core):
                    (near if receiver[0] == unit else far).append((target, part))
            # in a cluster by the sender's engine, else from cluster to cluster
            number = self.located.core_number(unit, core)
            send(self.located.emitter, source, near, self.located.queue("mvdma", number), element)
            send(self.located.emitter, source, far, self.located.queue("cdma", unit) if far else 0, element)

    # --- what waits ---------------------------------------------------------------------------------------------------

    def _pull(
        self,
        name: str,
        unit: int,
        core: int,
        index: Index,
        held: Held,
        now: Together,
        axes: Sequence[str],
        *,
        at_once: bool,
        back: bool = False,
    ) -> None:
        """Bring what waits in the SRAM for lack of room in the core back beside what is made anew.

        What another core makes in this round (`now`) comes `at_once` when it is made, all else before. `back`: what a
        core tile behind makes.
        """
        tiles = self.rounds.core_tiles
        for shape in self.rounds.core_tiles.stores(name):
            if shape.axis in self.located.group.core_kept_axes or name not in self.located.group.core_resident:
                continue
            if shape.axis not in axes:
                continue
            before = {**index, shape.axis: index[shape.axis] - 1}
            in_step = shape.axis in tiles.both_ways
            store = self.memory.store(name, unit, core, shape.axis)
            if (in_step or (unit, *before.values()) in now) != at_once or store is None:
                continue
            for cell in tiles.waiting(name, index, shape.axis, back=back):
                sources = store.pieces(tiles, name, index, cell)
                queue, element = self.located.core_queue("mvdma", unit, core), self.located.element(name)
                copy_common(self.located.emitter, Opcode.MOVE, queue, sources, [held], element)

    def _save_results(
        self,
        name: str,
        unit: int,
        core: int,
        index: Index,
        now: Together,
        axes: Sequence[str],
        *,
        at_once: bool,
        back: bool = False,
    ) -> None:
        """Put what later core tiles need into stores: at once for those of this round (`now`), else at the end.

        A store is used again: the receiver may still read what it holds until the round ends. `back`: what core tiles
        before this one need.
        """
        if name in self.located.written_over or name not in self.located.group.core_resident:
            return
        if not axes or not self.rounds.is_last(name, index):
            return
        for axis in axes:
            for later in self.rounds.core_tiles.receivers(axis, index):
                for other, peer in self.rounds.workers_of(later) if (later[axis] < index[axis]) is back else ():
                    if self.channels.are_of_units and other != unit:
                        # it works on this tile too, and keeps what it needs itself
                        continue
                    peer_core = core if self.rounds.cores_share else peer
                    if ((other, *later.values()) in now) == at_once:
                        self._save_one(name, (unit, core), (other, peer_core), index, later, axis)

    def _save_one(self, name: str, sender: Core, receiver: Core, index: Index, later: Index, axis: str) -> None:
        store = self.memory.store(name, *receiver, axis)
        box = self.rounds.core_tiles.saved(name, index, later, axis, whole=sender != receiver)
        if store is None or box is None:
            return
        in_core = axis in self.located.group.core_kept_axes
        if sender[0] != receiver[0]:
            opcode, queue = Opcode.EXCHANGE, self.located.queue("cdma", sender[0])
        elif sender == receiver and in_core:
            opcode, queue = Opcode.MOVE, self.located.core_queue("core", *sender)
        else:
            opcode, queue = Opcode.EXCHANGE if in_core else Opcode.MOVE, self.located.core_queue("mvdma", *sender)
        sources = self.memory.pieces(name, *sender, index, box)
        targets, element = store.pieces(self.rounds.core_tiles, name, later, box), self.located.element(name)
        copy_common(self.located.emitter, opcode, queue, sources, targets, element)

    def _drain(self, op: OpFacts, job: Work, box: Box, held: Held) -> None:
        """An output of the group from a core to the SRAM: what no other core tile hands out."""
        unit, tile, core, index = job
        if op.output not in (self.located.geometry.outputs or (self.located.geometry.primary,)):
            return
        if not self.channels.hands_out(op, 0, core):
            return
        target = self.tiles.tile(op.output, unit, tile)
        mine = self._drained[op.output].of(index)
        part = overlap(box, mine) if mine is not None else None
        part = overlap(part, target.box) if part is not None and target is not None else None
        if target is not None and part is not None:
            queue = self.located.core_queue("mvdma", unit, core)
            self.located.emitter.copy(Opcode.MOVE, queue, held, target, part, self.located.element(op.output))
