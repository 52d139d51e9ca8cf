"""Depth-first groups of a chip with SRAM: core tiles pass all ops of the group inside NRAM (TILE-8)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import product, zip_longest

from compiler.ops.op_facts import FACTORS, OpFacts
from compiler.program.core_memory import NestedMemory
from compiler.program.emitter import Box, Held, is_empty, overlap
from compiler.program.group import stored_box
from compiler.program.parts import Part, channel_part
from compiler.program.program import Opcode
from compiler.program.rounds import Job, in_step
from compiler.program.tiles import Index
from compiler.program.weights import Bound, Core
from compiler.tiling.tile import Spread, WeightHome
from compiler.units import ceil_div

# A core's work: its unit, the unit's tile, the core, the core tile.
_Work = tuple[int, Index, int, dict[str, int]]
# The core tiles of a round: unit and index of each.
_Round = frozenset[tuple[int, ...]]


class NestedLowering(NestedMemory):
    """A unit is a cluster; its SRAM holds what enters and leaves a tile, its cores all that lies between."""

    # --- rounds -------------------------------------------------------------------------------------------------------

    def work(self, jobs: list[Job], parity: int) -> None:
        """Core tiles of all units side by side; unit by unit where halos pass between them."""
        for unit, index in jobs:
            for name in self.geometry.outputs or (self.geometry.primary,):
                held = self.tile(name, unit, index, parity)
                if held is not None:
                    held.slot.begin()
        rounds = [self._core_rounds(unit, index) for unit, index in jobs]
        if self.group.exchanges and not self._units_share_parts and not self.shares_sums:
            self._bring_weights([work for found in rounds for work in found[0]])
            for found in rounds:
                for work in found:
                    self._core_round(work, parity)
            return
        for row in zip_longest(*rounds):
            self._core_round([entry for found in row if found is not None for entry in found], parity)

    def _bring_weights(self, work: list[_Work]) -> None:
        """Weights that wait in the cores come to all units at once, though these work one after another."""
        if self.group.slices > 1:
            return
        for step, op in enumerate(self.geometry.ops):
            cores: dict[tuple[int, int], list[Core]] = {}
            whole = (0, 1)
            for unit, tile, core, index in work if self.group.homes[step] is WeightHome.CORE else ():
                box = self._part(op, unit, core, self.core_tiles.fresh(op.output, index))
                if not is_empty(box):
                    cores.setdefault((0, 1) if op.channel_axis is None else box[op.channel_axis], []).append(
                        (unit, core)
                    )
                    whole = self._unit_channels(op, unit, tile)
            for channels, mine in cores.items():
                self.weights.ensure(step, mine, channels, whole)

    @property
    def _parts_are_shared(self) -> bool:
        """True if cores or units make parts of the channels of a common core tile."""
        return self.group.channel_parts > 1 and not self.group.channels_are_free

    @property
    def _cores_share_parts(self) -> bool:
        return self._parts_are_shared and self.configuration.core_spread is Spread.CHANNELS

    def _core_rounds(self, unit: int, index: Index) -> list[list[_Work]]:
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

    def _core_round(self, work: list[_Work], parity: int) -> None:
        """All ops of the group on the core tiles of one round."""
        now = frozenset((unit, *index.values()) for unit, _, _, index in work)
        for unit, _, core, index in work:
            self._set_core_turn(unit, core, index)
        for step, op in enumerate(self.geometry.ops):
            self.emitter.step = self.step_of[op.index]
            mine = self._working(op, work)
            for name in self.geometry.first_readers.get(op.index, ()):
                if name not in self.group.reduced and name not in self.gathered:
                    self._fill(name, mine, parity)
            if self.group.input_parts > 1 and op is self.geometry.product:
                self._sums(step, op, mine, parity, now)
            else:
                self._op(step, op, mine, parity, now)
            if self._parts_are_shared:
                self._share(step, op, work)
            for unit, _, core, index in work:
                held = self._core_tile(op.output, unit, core, index)
                if held is not None and self._is_first(op.output, index):
                    self._pull(op.output, unit, core, index, held, now, at_once=True)
                self._save_results(op.output, unit, core, index, now, at_once=True)
            for name in self.dying((step,)):
                for unit, _, core, index in work:
                    self._save_results(name, unit, core, index, now, at_once=False)

    def _working(self, op: OpFacts, work: list[_Work]) -> list[_Work]:
        """The cores that work on an op: where units share out a sum, after it only those of the last one."""
        if not self.shares_sums or op is self.geometry.product:
            return work
        return [entry for entry in work if entry[0] == self.summing_units - 1]

    def _sums(self, step: int, op: OpFacts, work: list[_Work], parity: int, now: _Round) -> None:
        """A product whose sums are made part by part: by all units at once, or one takes up the sums of another."""
        by_unit: dict[int, list[_Work]] = {}
        for entry in sorted(work, key=lambda entry: entry[0]):
            by_unit.setdefault(entry[0], []).append(entry)
        if not self.shares_sums:
            for turn, part in enumerate(self.parts(0)):
                self.load_part(op, [(unit, mine[0][1]) for unit, mine in by_unit.items()], part, turn)
                for mine in by_unit.values():
                    self._sum_part(step, op, mine, parity, now, part, {} if turn == 0 else None)
            return
        sent: dict[int, tuple[Held, int]] = {}
        for unit, mine in by_unit.items():
            for turn, part in enumerate(self.parts(unit)):
                self.load_part(op, [(unit, mine[0][1])], part, turn)
                self._sum_part(step, op, mine, parity, now, part, sent if turn == 0 else None)
            if self.parts(unit):
                for _, _, core, index in mine:
                    held = self._core_tile(op.output, unit, core, index)
                    if held is not None:
                        sent[core] = (held, unit)

    def _sum_part(
        self,
        step: int,
        op: OpFacts,
        mine: list[_Work],
        parity: int,
        now: _Round,
        part: Part,
        sent: dict[int, tuple[Held, int]] | None,
    ) -> None:
        """Add one part to the sums of a unit's cores."""
        for name in self.geometry.first_readers.get(op.index, ()):
            if name in self.group.reduced:
                self._fill(name, mine, parity)
        self._op(step, op, mine, parity, now, part, sent)

    def _fill(self, name: str, work: list[_Work], parity: int) -> None:
        """An input of the group from SRAM to the cores: to all that need the same box at once."""
        element = self.element(name)
        wanted: dict[tuple[int, Box], list[tuple[int, Held]]] = {}
        tiles: dict[tuple[int, Box], Index] = {}
        for unit, tile, core, index in work:
            held = self._core_tile(name, unit, core, index)
            if held is None or not self._has_work(name, unit, core, index):
                continue
            content = (tuple(tile.values()), held.box)
            if held.slot.content == content:
                continue
            held.slot.begin(content)
            wanted.setdefault((unit, held.box), []).append((core, held))
            tiles[unit, held.box] = tile
        for (unit, box), targets in wanted.items():
            for source in self.pieces(name, unit, tiles[unit, box], box, parity):
                cores = [core for core, _ in targets]
                self.weights.to_cores(source, unit, cores, [held for _, held in targets], source.box, element)

    def _has_work(self, name: str, unit: int, core: int, index: Index) -> bool:
        """False for a core that has no part of anything that is made of an input."""
        readers = self._readers_after(-1, name)
        return any(
            not is_empty(self._part(op, unit, core, self.core_tiles.fresh(op.output, index))) for op, _ in readers
        )

    def _op(
        self,
        step: int,
        op: OpFacts,
        work: list[_Work],
        parity: int,
        now: _Round,
        part: Part | None = None,
        sent: Mapping[int, tuple[Held, int]] | None = None,
    ) -> None:
        entries: dict[tuple[int, int], list[tuple[_Work, Held, Box]]] = {}
        for job in work:
            unit, _, core, index = job
            held = self._core_tile(op.output, unit, core, index)
            if held is None or not self._is_first(op.output, index):
                continue
            if part is None or sent is not None:
                held.slot.begin()
                self._pull(op.output, unit, core, index, held, now, at_once=False)
            box = self._part(op, unit, core, self.core_tiles.fresh(op.output, index))
            if not is_empty(box):
                channels = (0, 1) if op.channel_axis is None else box[op.channel_axis]
                entries.setdefault(channels, []).append((job, held, box))
                if sent and core in sent:
                    source, sender = sent[core]
                    self.pass_sums(source, held, box, self.queue("cdma", sender), op)
        self.weights.ensure_tables(step, [(j[0], j[2]) for jobs in entries.values() for j, _, _ in jobs])
        for channels, jobs in entries.items():
            cores = [(unit, core) for (unit, _, core, _), _, _ in jobs]
            whole = self._unit_channels(op, *jobs[0][0][:2])
            bound = self.weights.ensure(step, cores, channels, whole, part.range if part else None)
            for (unit, tile, core, index), held, box in jobs:
                ends = part is None or part.ends
                operands: Bound = [entry for entry in bound[unit, core] if ends or entry[0] < FACTORS]
                for operand in self.context.operands(op.index):
                    if not operand.constant and operand.gathered is None:
                        need = self.need_of_part(op, operand, box, part)
                        found = self._core_pieces(operand.tensor, unit, core, index, need)
                        operands += [(operand.number, piece) for piece in found]
                number = self.core_number(unit, core)
                if not self.gather(op, number, box, operands, held):
                    self.call(op, self.queue("core", number), box, operands, held, part)
                if ends:
                    self._drain(op, (unit, tile, core, index), box, held, parity)

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

    def _share(self, step: int, op: OpFacts, work: list[_Work]) -> None:
        """Parts of the channels to the cores that need them for a later op; what has none every core has made."""
        if op.channel_axis is None:
            return
        element = self.element(op.output)
        alike: dict[tuple[int, ...], list[tuple[Core, Held, Box]]] = {}
        for unit, _, core, index in work:
            made = self.core_tiles.fresh(op.output, index)
            source = self._core_tile(op.output, unit, core, index)
            mine = self._part(op, unit, core, made)
            if source is None or is_empty(mine):
                continue
            key = tuple(index.values())
            if key not in alike:
                alike[key] = self._receivers(step, op, [(u, c) for u, _, c, i in work if i == index], index)
            near: list[tuple[Held, Box]] = []
            far: list[tuple[Held, Box]] = []
            for (other, peer), target, wanted in alike[key]:
                if other == unit and peer == core:
                    continue
                part = overlap(mine, wanted)
                if part is not None:
                    (near if other == unit else far).append((target, part))
            # in a cluster by the sender's engine, else from cluster to cluster
            number = self.core_number(unit, core)
            own = source.slot.written_by(self.makers(number))
            self.send_own(source, own, near, self.queue("mvdma", number), element)
            self.send_own(source, own, far, self.queue("cdma", unit) if far else 0, element)

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

    def _pull(self, name: str, unit: int, core: int, index: Index, held: Held, now: _Round, *, at_once: bool) -> None:
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

    def _save_results(self, name: str, unit: int, core: int, index: Index, now: _Round, *, at_once: bool) -> None:
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

    def _drain(self, op: OpFacts, job: _Work, box: Box, held: Held, parity: int) -> None:
        """An output of the group from a core to the SRAM: what no other core tile hands out."""
        unit, tile, core, index = job
        if op.output not in (self.geometry.outputs or (self.geometry.primary,)):
            return
        if not self.hands_out(op, 0, core):
            return
        target = self.tile(op.output, unit, tile, parity)
        mine = stored_box(self.core_tiles, op.output, index, self._blocks)
        part = overlap(box, mine) if mine is not None else None
        part = overlap(part, target.box) if part is not None and target is not None else None
        if target is not None and part is not None:
            if self.geometry.is_in_place:
                target.slot.again()
            queue = self.queue("mvdma", self.core_number(unit, core))
            self.emitter.copy(Opcode.MOVE, queue, held, target, part, self.element(op.output))
