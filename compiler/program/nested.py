"""Depth-first groups of a chip with SRAM: core tiles pass all ops of the group inside NRAM (TILE-8)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product, zip_longest
from typing import NamedTuple

from compiler.ops.op_facts import FACTORS, OpFacts
from compiler.program.core_memory import CoreRound, NestedMemory, Together, Work
from compiler.program.emitter import Box, Held, is_empty, overlap
from compiler.program.iteration import At, Loop, Step
from compiler.program.located import Part
from compiler.program.parts import channel_part
from compiler.program.program import Opcode
from compiler.program.rounds import in_step
from compiler.program.stored_boxes import StoredBoxes
from compiler.program.tiles import Index
from compiler.program.weight_reach import Core, Need
from compiler.program.weights import Bound
from compiler.tiling.tile import Spread
from compiler.units import ceil_div


class _Entry(NamedTuple):
    """A core's work on an op: its unit, the unit's tile, the core, the core tile, the result's place and its box."""

    unit: int
    tile: Index
    core: int
    core_tile: dict[str, int]
    held: Held
    box: Box


class NestedLowering(NestedMemory):
    """A unit is a cluster; its SRAM holds what enters and leaves a tile, its cores all that lies between."""

    # --- rounds -------------------------------------------------------------------------------------------------------

    def work(self) -> tuple[Step | Loop, ...]:
        """Core tiles of all units side by side; unit by unit where halos pass between them."""
        found: list[Step | Loop] = []
        for step, op in enumerate(self.geometry.ops):
            name, is_parted = op.output, self.group.input_parts > 1 and op is self.geometry.product
            without = {*self.group.reduced, *self.gathered}
            reads = (read for read in self.geometry.first_readers.get(op.index, ()) if read not in without)
            found += [self.step(f"fill {read}", op, partial(self._fill_input, read, op)) for read in reads]
            found.append(self.lasting_weights(step, op))
            if is_parted:
                found.append(self.step(f"sum up {name}", op, partial(self._sums, step, op)))
            else:
                found.append(self.passing_weights(step, op, "weights", partial(self._weights, step, op)))
                found.append(self.step(f"make {name}", op, partial(self._make, step, op)))
            if self._parts_are_shared:
                found.append(self.step(f"share {name}", op, partial(self._share, step, op)))
            if name in self.group.core_resident:
                found.append(self.step(f"pass on {name}", op, partial(self._pass_results, op)))
            kept = (dying for dying in self.dying((step,)) if dying in self.group.core_resident)
            found += [self.step(f"keep {dying}", op, partial(self._keep_results, dying)) for dying in kept]
        return (Loop(name="core tiles", count=lambda at: len(self._rounds_of(at[0])), body=tuple(found)),)

    def _rounds_of(self, number: int) -> list[CoreRound]:
        """The core rounds of a round of tiles."""
        known = self._known_rounds.get(number)
        if known is None:
            of_units = [self.core_rounds(unit, index) for unit, index in self.rounds[number]]
            if self.group.exchanges and not self._units_share_parts and not self.shares_sums:
                found = [work for its in of_units for work in its]
            else:
                rows = zip_longest(*of_units)
                found = [[entry for its in row if its is not None for entry in its] for row in rows]
            sets = (frozenset((unit, *index.values()) for unit, _, _, index in work) for work in found)
            known = self._known_rounds[number] = list(zip(found, sets, strict=True))
        return known

    def _now(self, at: At) -> CoreRound:
        return self._rounds_of(at[0])[at[1]]

    @property
    def _parts_are_shared(self) -> bool:
        """True if cores or units make parts of the channels of a common core tile."""
        return self.group.channel_parts > 1 and not self.group.channels_are_free

    @property
    def _cores_share_parts(self) -> bool:
        return self._parts_are_shared and self.configuration.core_spread is Spread.CHANNELS

    def core_rounds(self, unit: int, index: Index) -> list[list[Work]]:
        """What the cores of a unit do in turn with one of its tiles."""
        key = (unit, *index.values())
        known = self._known_core_rounds.get(key)
        if known is None:
            known = self._known_core_rounds[key] = self._new_core_rounds(unit, index)
        return known

    def _new_core_rounds(self, unit: int, index: Index) -> list[list[Work]]:
        ranges = []
        for axis in self.core_tiles.order:
            blocks, number = self._blocks[axis], index.get(axis, 0)
            end = blocks[number + 1] if number + 1 < len(blocks) else self.core_tiles.counts[axis]
            ranges.append(range(blocks[number], end))
        indices = [dict(zip(self.core_tiles.order, numbers, strict=True)) for numbers in product(*ranges)]
        if self._cores_share_parts:
            return [[(unit, index, core, found) for core in range(self.configuration.cores)] for found in indices]
        queues: dict[int, list[dict[str, int]]] = {}
        for found in indices:
            queues.setdefault(self._core_of(found), []).append(found)
        rounds = in_step(self.core_tiles, queues, indices)
        return [[(unit, index, core, found) for core, found in jobs] for jobs in rounds]

    def _core_of(self, index: Index) -> int:
        """The core that works on a core tile: bands of rows, or parts of the channels."""
        cores, is_channels = self.configuration.cores, self.configuration.core_spread is Spread.CHANNELS
        axis = "C" if is_channels else self.group.walk.rows
        if cores == 1 or axis is None or axis not in self.core_tiles.counts:
            return 0
        blocks = self._blocks[axis]
        block = bisect_right(blocks, index[axis]) - 1
        longest = max(b - a for a, b in zip(blocks, [*blocks[1:], self.core_tiles.counts[axis]], strict=True))
        return (index[axis] - blocks[block]) // ceil_div(longest, cores)

    def _workers_of(self, index: Index) -> list[Core]:
        """The unit and core that work on a core tile."""
        outer = {}
        for axis in self.tiles.order:
            blocks = self._blocks.get(axis, [0])
            outer[axis] = bisect_right(blocks, index[axis]) - 1 if axis in index else 0
        core = self._core_of(index)
        return [(unit, core) for unit in self.owners.of(outer)]

    def _pass_results(self, op: OpFacts, at: At) -> None:
        """What other core tiles of the same core round need of a result, once it is made."""
        work, now = self._now(at)
        for unit, _, core, index in work:
            held = self._core_tile(op.output, unit, core, index)
            if held is not None and self._is_first(op.output, index):
                self._pull(op.output, unit, core, index, held, now, at_once=True)
            self._save_results(op.output, unit, core, index, now, at_once=True)

    def _keep_results(self, name: str, at: At) -> None:
        """What later core tiles need of a tensor that no further op of this one reads."""
        work, now = self._now(at)
        for unit, _, core, index in work:
            self._save_results(name, unit, core, index, now, at_once=False)

    def _working(self, op: OpFacts, work: list[Work]) -> list[Work]:
        """The cores that work on an op: where units share out a sum, after it only those of the last one."""
        if not self.shares_sums or op is self.geometry.product:
            return work
        return [entry for entry in work if entry[0] == self.summing_units - 1]

    def _sums(self, step: int, op: OpFacts, at: At) -> None:
        """A product whose sums are made part by part: by all units at once, or one takes up the sums of another."""
        work, now = self._now(at)
        by_unit: dict[int, list[Work]] = {}
        for entry in sorted(work, key=lambda entry: entry[0]):
            by_unit.setdefault(entry[0], []).append(entry)
        if not self.shares_sums:
            for part in self.parts(0):
                self._sum_part(step, op, [entry for mine in by_unit.values() for entry in mine], at, now, part, {})
            return
        sent: dict[int, tuple[Held, int]] = {}
        for unit, mine in by_unit.items():
            for part in self.parts(unit):
                self._sum_part(step, op, mine, at, now, part, sent)
            if self.parts(unit):
                for _, _, core, index in mine:
                    held = self._core_tile(op.output, unit, core, index)
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
            if self.group.parts_come_again or index == self.core_rounds(unit, tile)[0][0][3]
        }
        self.load_part(op, list(jobs.items()), part, self.turn(len(self.geometry.inputs) + step, at))
        for name in self.geometry.first_readers.get(op.index, ()):
            if name in self.group.reduced:
                self._fill(name, mine, part)
        entries = self._entries(op, mine)
        if part.turn == 0:
            for entry in entries:
                self._pull_waiting(op, entry, now)
        entries = [entry for entry in entries if not is_empty(entry.box)]
        if part.turn == 0:
            for entry in entries:
                if entry.core in sent:
                    source, sender = sent[entry.core]
                    self.pass_sums(source, entry.held, entry.box, self.queue("cdma", sender), op)
        needs = [self._need(op, entry, part) for entry in entries]
        use = self._use(at) * self.group.input_parts + part.turn
        self.weights.bring_passing(step, at, needs, use, tables=part.turn == 0)
        for entry, need in zip(entries, needs, strict=True):
            self._call(op, entry, self.weights.bound(step, need, at[0], use), part)

    # --- inputs -------------------------------------------------------------------------------------------------------

    def _fill_input(self, name: str, op: OpFacts, at: At) -> None:
        """An input of the group from SRAM to the cores, but where it lies there from the core tile before."""
        work = [entry for entry in self._working(op, self._now(at)[0]) if not self._lies_there(name, entry)]
        self._fill(name, work)

    def _fill(self, name: str, work: list[Work], part: Part | None = None) -> None:
        """An input of the group from SRAM to the cores: to all that need the same box at once."""
        element = self.element(name)
        wanted: dict[tuple[int, Box], list[tuple[int, Held]]] = {}
        tiles: dict[tuple[int, Box], Index] = {}
        for unit, tile, core, index in work:
            held = self._core_tile(name, unit, core, index, part)
            if held is None or not self._has_work(name, unit, core, index):
                continue
            wanted.setdefault((unit, held.box), []).append((core, held))
            tiles[unit, held.box] = tile
        for (unit, box), targets in wanted.items():
            for source in self.pieces(name, unit, tiles[unit, box], box, part):
                cores = [core for core, _ in targets]
                self.weights.to_cores(source, unit, cores, [held for _, held in targets], source.box, element)

    def _lies_there(self, name: str, work: Work) -> bool:
        """True if the core tile before, of the same core and tile, needs the same box, and nothing else lies there."""
        unit, tile, core, index = work
        if not self._stays_between(name):
            return False
        before = self._before(unit, tile, core, index)
        if before is None or not self._has_work(name, unit, core, before):
            return False
        return self._core_tile(name, unit, core, before) == self._core_tile(name, unit, core, index)

    def _stays_between(self, name: str) -> bool:
        """True if no other buffer of the group shares bytes with that of an input in a core."""
        found = self._alone.get(name)
        if found is None:
            place, key = self.core_place(0, 0), ("core tile", name)
            slots = [slot for its in (key, (*key, 1)) if (slot := self.buffers.slots.get((place, its))) is not None]
            found = self._alone[name] = self.buffers.are_alone(slots)
        return found

    def _before(self, unit: int, tile: Index, core: int, index: Index) -> dict[str, int] | None:
        """The core tile that a core works on before one, of the same tile; None for the first."""
        before = None
        for work in self.core_rounds(unit, tile):
            for _, _, other, found in work:
                if other == core:
                    if found == index:
                        return before
                    before = found
        return None

    def _has_work(self, name: str, unit: int, core: int, index: Index) -> bool:
        """False for a core that has no part of anything that is made of an input."""
        readers = self._readers_after(-1, name)
        return any(
            not is_empty(self._part(op, unit, core, self.core_tiles.fresh(op.output, index))) for op, _ in readers
        )

    # --- ops ----------------------------------------------------------------------------------------------------------

    def _entries(self, op: OpFacts, work: list[Work]) -> list[_Entry]:
        """Who makes what of an op's result."""
        found = []
        for unit, tile, core, index in work:
            held = self._core_tile(op.output, unit, core, index)
            if held is not None and self._is_first(op.output, index):
                box = self._part(op, unit, core, self.core_tiles.fresh(op.output, index))
                found.append(_Entry(unit, tile, core, index, held, box))
        return found

    def _need(self, op: OpFacts, entry: _Entry, part: Part | None = None) -> Need:
        channels = (0, 1) if op.channel_axis is None else entry.box[op.channel_axis]
        whole = self._unit_channels(op, entry.unit, entry.tile)
        return Need((entry.unit, entry.core), channels, whole, None if part is None else part.range)

    def needs_of(self, step: int, number: int) -> Iterator[Need]:
        """What the core tiles of a round need of an op's weights."""
        op = self.geometry.ops[step]
        is_parted = self.group.input_parts > 1 and op is self.geometry.product
        for work, _ in self._rounds_of(number):
            for entry in self._entries(op, self._working(op, work)):
                if not is_empty(entry.box):
                    for part in self.parts(entry.unit) if is_parted else (None,):
                        yield self._need(op, entry, part)

    def _use(self, at: At) -> int:
        """The number of a use of an op's weights, counted over all core rounds."""
        return at[0] * self.group.core_walk.rounds + at[1]

    def _weights(self, step: int, op: OpFacts, at: At) -> None:
        entries = self._entries(op, self._working(op, self._now(at)[0]))
        needs = [self._need(op, entry) for entry in entries if not is_empty(entry.box)]
        self.weights.bring_passing(step, at, needs, self._use(at), tables=True)

    def _make(self, step: int, op: OpFacts, at: At) -> None:
        """An op on the core tiles of a core round."""
        work, now = self._now(at)
        for entry in self._entries(op, self._working(op, work)):
            self._pull_waiting(op, entry, now)
            if not is_empty(entry.box):
                bound = self.weights.bound(step, self._need(op, entry), at[0], self._use(at))
                self._call(op, entry, bound)

    def _pull_waiting(self, op: OpFacts, entry: _Entry, now: Together) -> None:
        """Bring what waits of an op's result beside what is made anew."""
        self._pull(op.output, entry.unit, entry.core, entry.core_tile, entry.held, now, at_once=False)

    def _call(self, op: OpFacts, entry: _Entry, weights: Bound, part: Part | None = None) -> None:
        """The call that makes a core tile's result or adds to its sums, and its way to the SRAM when it is done."""
        unit, tile, core, index, held, box = entry
        ends = part is None or part.ends
        operands: Bound = [found for found in weights if ends or found[0] < FACTORS]
        for operand in self.context.operands(op.index):
            if not operand.constant and operand.gathered is None:
                need = self.need_of_part(op, operand, box, part)
                pieces = self._core_pieces(operand.tensor, unit, core, index, need, part)
                operands += [(operand.number, piece) for piece in pieces]
        number = self.core_number(unit, core)
        if not self.gather(op, number, box, operands, held):
            self.call(op, self.queue("core", number), box, operands, held, part)
        if ends:
            self._drain(op, (unit, tile, core, index), box, held)

    def _is_first(self, name: str, index: Index) -> bool:
        """False for what all slices of the channels share, at slices after the core's first."""
        follows = any(dim.axis == "C" for dim in self.core_tiles.dims(name))
        if "C" not in self.core_tiles.counts or self.configuration.slices_outer or follows:
            return True
        blocks = self._blocks["C"]
        number = bisect_right(blocks, index["C"]) - 1
        return index["C"] == blocks[number] or self.configuration.core_spread is Spread.CHANNELS

    def _unit_channels(self, op: OpFacts, unit: int, tile: Index) -> tuple[int, int]:
        """The channels of an op that a unit's cores work on together."""
        if op.channel_axis is None:
            return (0, 1)
        made = self.tiles.needed(op.output, tile)
        return (channel_part(op, made, unit, self.units) if self._units_share_parts else made)[op.channel_axis]

    @property
    def _units_share_parts(self) -> bool:
        return self.configuration.spread is Spread.CHANNELS and not self.group.channels_are_free

    def _part(self, op: OpFacts, unit: int, core: int, box: Box) -> Box:
        """The part of a core tile's box that a core makes where cores or units share out its channels."""
        if not self._parts_are_shared:
            return box
        cores = self.configuration.cores if self.configuration.core_spread is Spread.CHANNELS else 1
        units = self.units if self.configuration.spread is Spread.CHANNELS else 1
        return channel_part(op, channel_part(op, box, unit, units), core, cores)

    def _share(self, step: int, op: OpFacts, at: At) -> None:
        """Parts of the channels to the cores that need them for a later op; what has none every core has made."""
        work, _ = self._now(at)
        if op.channel_axis is None:
            return
        element = self.element(op.output)
        # by core tile who needs what, and the different boxes of that
        alike: dict[tuple[int, ...], tuple[list[tuple[Core, Held, Box]], list[Box]]] = {}
        for unit, _, core, index in work:
            made = self.core_tiles.fresh(op.output, index)
            source = self._core_tile(op.output, unit, core, index)
            mine = self._part(op, unit, core, made)
            if source is None or is_empty(mine):
                continue
            key = tuple(index.values())
            if key not in alike:
                its = self._receivers(step, op, [(u, c) for u, _, c, i in work if i == index], index)
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
            number = self.core_number(unit, core)
            self.send(source, near, self.queue("mvdma", number), element)
            self.send(source, far, self.queue("cdma", unit) if far else 0, element)

    def _receivers(self, step: int, op: OpFacts, cores: list[Core], index: Index) -> list[tuple[Core, Held, Box]]:
        """Of the cores that work on a core tile those that need some of an op's result, where it lies, and what."""
        made = self.core_tiles.fresh(op.output, index)
        found: list[tuple[Core, Held, Box]] = []
        for unit, core in cores:
            wanted: Box | None = made
            if not self.core_tiles.stores(op.output):
                wanted = self.wanted(
                    step,
                    op.output,
                    lambda name: self.core_tiles.fresh(name, index),
                    lambda reader, box, unit=unit, core=core: self._part(reader, unit, core, box),  # type: ignore[misc]
                )
            held = self._core_tile(op.output, unit, core, index) if wanted is not None else None
            if held is not None and wanted is not None:
                found.append(((unit, core), held, wanted))
        return found

    # --- what waits ---------------------------------------------------------------------------------------------------

    def _pull(self, name: str, unit: int, core: int, index: Index, held: Held, now: Together, *, at_once: bool) -> None:
        """Bring what waits in the SRAM for lack of room in the core back beside what is made anew.

        What another core makes in this round (`now`) comes `at_once` when it is made, all else before.
        """
        for shape in self.core_tiles.stores(name):
            if shape.axis in self.group.core_kept_axes or name not in self.group.core_resident:
                continue
            before = {**index, shape.axis: index[shape.axis] - 1}
            if ((unit, *before.values()) in now) != at_once:
                continue
            cell = self.core_tiles.waiting(name, index, shape.axis)
            store = self._core_stores[unit, core, name, shape.axis]
            for source in store.pieces(self.core_tiles, name, index, cell) if cell is not None else ():
                part = overlap(source.box, held.box)
                if part is not None:
                    queue = self.queue("mvdma", self.core_number(unit, core))
                    self.emitter.copy(Opcode.MOVE, queue, source, held, part, self.element(name))

    def _save_results(self, name: str, unit: int, core: int, index: Index, now: Together, *, at_once: bool) -> None:
        """Put what later core tiles need into stores: at once for those of this round (`now`), else at the end.

        What is sent takes the place of what the receiver has needed before, and in this round may still read.
        """
        if name in self._written_over or name not in self.group.core_resident:
            return
        axes = self.core_tiles.stored_axes(name)
        if not axes or not self._is_last(name, index):
            return
        for axis in axes:
            later = self.core_tiles.successor(axis, index)
            if later is None:
                continue
            for other, peer in self._workers_of(later):
                if self._units_share_parts and other != unit:
                    # it works on this tile too, and keeps what it needs itself
                    continue
                peer_core = core if self._cores_share_parts else peer
                if ((other, *later.values()) in now) == at_once:
                    self._save_one(name, (unit, core), (other, peer_core), index, later, axis)

    def _is_last(self, name: str, index: Index) -> bool:
        follows = any(dim.axis == "C" for dim in self.core_tiles.dims(name))
        if "C" not in self.core_tiles.counts or self.configuration.slices_outer or follows:
            return True
        if self.configuration.core_spread is Spread.CHANNELS:
            return True
        blocks = [*self._blocks["C"], self.core_tiles.counts["C"]]
        return index["C"] + 1 in blocks

    def _save_one(self, name: str, sender: Core, receiver: Core, index: Index, later: Index, axis: str) -> None:
        store = self._core_stores.get((*receiver, name, axis))
        box = self.core_tiles.saved(name, index, later, axis, whole=sender != receiver)
        if store is None or box is None:
            return
        element = self.element(name)
        targets = store.pieces(self.core_tiles, name, index, box)
        in_core = axis in self.group.core_kept_axes
        for source in self._core_pieces(name, *sender, index, box):
            for target in targets:
                part = overlap(source.box, target.box)
                if part is None:
                    continue
                if sender[0] != receiver[0]:
                    self.emitter.copy(Opcode.EXCHANGE, self.queue("cdma", sender[0]), source, target, part, element)
                elif sender == receiver and in_core:
                    queue = self.queue("core", self.core_number(*sender))
                    self.emitter.copy(Opcode.MOVE, queue, source, target, part, element)
                else:
                    opcode = Opcode.MOVE if not in_core else Opcode.EXCHANGE
                    queue = self.queue("mvdma", self.core_number(*sender))
                    self.emitter.copy(opcode, queue, source, target, part, element)

    def core_boxes(self, name: str) -> StoredBoxes:
        """The parts of an output that core tiles hand out of their SRAM tiles' boxes."""
        found = self._drained.get(name)
        if found is None:
            found = self._drained[name] = StoredBoxes(self.core_tiles, name, self._blocks)
        return found

    def _drain(self, op: OpFacts, job: Work, box: Box, held: Held) -> None:
        """An output of the group from a core to the SRAM: what no other core tile hands out."""
        unit, tile, core, index = job
        if op.output not in (self.geometry.outputs or (self.geometry.primary,)):
            return
        if not self.hands_out(op, 0, core):
            return
        target = self.tile(op.output, unit, tile)
        mine = self.core_boxes(op.output).of(index)
        part = overlap(box, mine) if mine is not None else None
        part = overlap(part, target.box) if part is not None and target is not None else None
        if target is not None and part is not None:
            queue = self.queue("mvdma", self.core_number(unit, core))
            self.emitter.copy(Opcode.MOVE, queue, held, target, part, self.element(op.output))
