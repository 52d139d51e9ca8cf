"""Lowering of one group: its tiles round by round, from DRAM to the cores and back (PROG-1).

What is the same for all kinds of groups stands here: inputs come into the unit's memory, what later tiles need is kept
there, results leave. What the cores do with a tile is said by `Cores`: a core that holds the tile itself (`flat.py`),
cores that pass over it stage by stage (`staged.py`), or core tile by core tile (`nested.py`). `segment.py` puts the
objects of a lowering together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from compiler.errors import LimitError
from compiler.ops.op_facts import OpFacts
from compiler.program.emitter import Held, is_empty, overlap
from compiler.program.inputs import bring, receivers_in_turn
from compiler.program.iteration import At, Loop, Step
from compiler.program.known import Known
from compiler.program.located import Located
from compiler.program.parts import ChannelParts, SumParts
from compiler.program.peers import copy_common
from compiler.program.program import Level, Opcode
from compiler.program.stored_boxes import StoredBoxes
from compiler.program.tiles import Index, Tiles
from compiler.program.unit_tiles import HeldTiles
from compiler.program.weights import GroupWeights
from compiler.tiling.lowerable import falls_check

# A walk over parts of the tiles, and by axis the first part of each tile.
CoreWalk = tuple[Tiles, Mapping[str, Sequence[int]]]


class Cores(Protocol):
    """What the cores of a group do with the tiles of a round."""

    def work(self, steps: OpSteps) -> tuple[Step | Loop, ...]:
        """The steps of it, in order."""


class GroupLowering:
    """One group on its way to commands."""

    def __init__(
        self,
        located: Located,
        held: HeldTiles,
        channels: ChannelParts,
        sums: SumParts,
        cores: Cores,
        steps: OpSteps,
        forget: Sequence[Callable[[], None]],
        core_walks: Sequence[CoreWalk] = (),
    ) -> None:
        """`forget`: what makes all that keeps anything of tiles and rounds drop it."""
        self._located = located
        self._held = held
        self._channels = channels
        self._sums = sums
        self._steps = steps
        self.cores = cores
        self._core_walks = core_walks
        self._forget = forget
        self.context, self.machine, self.profile = located.context, located.machine, located.profile
        self.geometry, self.tiles, self.rounds = located.geometry, located.tiles, located.rounds
        self._stored = Known(partial(StoredBoxes, self.tiles))
        # by tensor that passes from group to group on the chip the number of its axis that units share out, and how
        tensors = self.geometry.facts.tensors
        passing = {**located.group.handed, **located.group.taken}
        self.shares = {name: (tensors[name].axes.index(its.axis), its.share) for name, its in passing.items()}
        self.brings = tuple(
            steps.step(f"bring {name}", located.first_reader(name), partial(self._load, name))
            for name in self.geometry.inputs
            if name not in located.gathered and name not in located.group.reduced
        )
        self.body = self._body()

    def forget(self) -> None:
        """Drop what is kept of tiles and rounds: it is worked out again when it is asked for."""
        for its in self._forget:
            its()

    @property
    def resident_axes(self) -> frozenset[str]:
        """The axes along which a tile's position says which parts of stationary weights come to cores."""
        return self._steps.weights.resident_axes

    def core_walks(self) -> Sequence[CoreWalk]:
        """Walks over parts of the tiles, with the first part of each tile by axis; none where tiles are not cut."""
        return self._core_walks

    def _body(self) -> tuple[Step | Loop, ...]:
        """What is done with the tiles of a round once their inputs are brought, in order."""
        steps, located = self._steps, self._located
        reads = [(name, located.first_reader(name)) for name in self.geometry.inputs]
        makes = [(name, located.op_of(name)) for name in self.geometry.outputs]
        return (
            *(steps.send(name, op) for name, op in reads),
            *self.cores.work(steps),
            *(steps.step(f"store {name}", op, partial(self._store, name)) for name, op in makes),
            *(steps.keep(name, op) for name, op in reads),
        )

    def _load(self, name: str, at: At) -> None:
        """An input from DRAM; what several units need at once is read once where they are connected."""
        its = (
            (unit, self._held.tile(name, unit, index) if self._located.first_slice(name, index) else None)
            for unit, index in self.rounds[at[0]]
        )
        turn = self._located.turn(self.geometry.inputs.index(name), at)
        bring(self._located, name, its, turn)

    def stored_boxes(self, name: str) -> StoredBoxes:
        """The parts of an output that tiles hand out; of tiles that are cut again, those of the parts."""
        return self._stored[name]

    def _store(self, name: str, at: At) -> None:
        """An output to DRAM."""
        engine = "gdma" if self._located.level is Level.SRAM and self.machine.has("gdma") else "iodma"
        op = self._located.op_of(name)
        held_parts = self._located.held_parts.get(name)
        boxes = self.stored_boxes(name)
        for unit, index in self._sums.workers(op, self.rounds[at[0]], after=True):
            box = boxes.of(index)
            held = self._held.tile(name, unit, index) if box is not None else None
            if box is None or held is None or not self._channels.hands_out(op, unit, 0):
                continue
            part = overlap(box, held.box)
            mine = self._channels.of_unit(op, unit, part) if part is not None else None
            if mine is None or is_empty(mine):
                continue
            if held_parts is not None:
                self._hold(name, unit, held.part(mine), held_parts)
            else:
                region = self.context.region(name)
                self._located.emitter.copy(
                    Opcode.STORE, self._located.queue(engine, unit), held, region, mine, self._located.element(name)
                )

    def _hold(self, name: str, unit: int, made: Held, parts: Sequence[tuple[int, Held]]) -> None:
        """Put what a unit made of a result where units hold it for the next group."""
        for owner, part in receivers_in_turn(self._located, unit, parts):
            opcode, queue = Opcode.MOVE, self._located.local_queue(unit)
            if owner != unit:
                opcode, queue = Opcode.EXCHANGE, self._located.peer_queue(unit)
            copy_common(self._located.emitter, opcode, queue, [made], [part], self._located.element(name))


def refuse_what_has_no_commands(located: Located) -> None:
    """Raises LimitError for tilings that only a pinned schedule can ask for, and that are not lowered."""
    group, geometry = located.group, located.geometry
    first = located.context.graph.ops[geometry.ops[0].index].node
    kept = [name for name in group.reduced if located.tiles.stores(name)]
    if group.input_parts > 1 and (kept or group.is_staged):
        raise LimitError(
            "sums in parts are not lowered with kept halos of what is summed, nor breadth-first under an SRAM",
            code="not_lowered",
            stage="lower",
            node=first,
            actual=f"{group.input_parts} parts",
            limit="1 part, or halo recompute and order depth-first",
        )
    if falls_check(group) is not None:
        raise LimitError(
            "core tiles whose ranges fall back inside SRAM tiles whose ranges rise are not lowered with kept halos",
            code="not_lowered",
            stage="lower",
            node=first,
            limit="halo recompute, or a core tile as large as the SRAM tile",
        )


@dataclass(slots=True, eq=False)
class Halos:
    """What waits in units' memories for tiles that are worked on later."""

    located: Located
    held: HeldTiles

    def are_kept(self, name: str) -> bool:
        """True if later tiles need something of a tensor.

        Rows of a table never lie in the unit's memory as an input: each op that wants them reads them in DRAM.
        """
        elsewhere = name in self.located.written_over or name in self.located.gathered
        return not elsewhere and bool(self.located.tiles.stores(name))

    def are_sent(self, name: str) -> bool:
        """True if tiles of other units need something of a tensor."""
        return self.located.group.exchanges and self.are_kept(name)

    def send(self, name: str, unit: int, index: Index, axes: Sequence[str], *, back: bool) -> None:
        """Send what a tile made, and tiles behind it (`back`: before it) of other units need, to these (TILE-3)."""
        if self.located.first_slice(name, index):
            # units that share out one tile send each other their parts of it, and keep for themselves what waits
            known = self.located.owners.of(index)
            for axis in axes:
                for later in self.located.tiles.receivers(axis, index):
                    for other in self.located.owners.of(later) if (later[axis] < index[axis]) is back else ():
                        if other not in known:
                            self._save(name, unit, index, later, other, axis)

    def keep(self, name: str, unit: int, index: Index) -> None:
        """Put what a tile made, and later tiles of its unit need, into the unit's stores: innermost axis first."""
        for axis in self.located.tiles.stored_axes(name) if self.located.last_slice(name, index) else ():
            later = self.located.tiles.successor(axis, index)
            if later is not None and unit in self.located.owners.of(later):
                self._save(name, unit, index, later, unit, axis)

    def _save(self, name: str, unit: int, index: Index, later: Index, other: int, axis: str) -> None:
        store = self.located.buffers.store(self.located.place(other), name, axis)
        if store is None:
            return
        box = self.located.tiles.saved(name, index, later, axis, whole=other != unit)
        if box is None:
            return
        targets, element = store.pieces(self.located.tiles, name, later, box), self.located.element(name)
        for source in self.held.pieces(name, unit, index, box):
            opcode, queue = self._way(unit, other, source.slot.place != store.slot.place)
            copy_common(self.located.emitter, opcode, queue, [source], targets, element)

    def _way(self, unit: int, other: int, between_places: bool) -> tuple[Opcode, int]:
        """How something comes from a unit to the store of one: to another's, or to its own, from a core or not."""
        in_sram = self.located.level is Level.SRAM
        if unit != other:
            return Opcode.EXCHANGE, self.located.queue("cdma" if in_sram else "link", unit)
        if in_sram and between_places:
            return Opcode.MOVE, self.located.core_queue("mvdma", unit, 0)
        return Opcode.MOVE, self.located.local_queue(unit)


@dataclass(slots=True, eq=False)
class OpSteps:
    """Makes steps of one group; `numbers`: that of each op's step in the program."""

    located: Located
    numbers: Mapping[int, int]
    halos: Halos
    channels: ChannelParts
    weights: GroupWeights

    def step(self, name: str, op: OpFacts, emit: Callable[[At], None] | None, *, brings_lasting: bool = False) -> Step:
        """A step of an iteration whose commands belong to an op; without `emit` nothing is done in it."""
        if emit is None:
            return Step(name=name, emit=None)

        def its(at: At) -> None:
            self.located.emitter.step = self.numbers[op.index]
            emit(at)

        return Step(name=name, emit=its, brings_lasting=brings_lasting)

    def each(self, emit: Callable[[int, Index], None]) -> Callable[[At], None]:
        """What is done for each unit and its tile of a round."""

        def every(at: At) -> None:
            for unit, index in self.located.rounds[at[0]]:
                emit(unit, index)

        return every

    def send(self, name: str, op: OpFacts) -> Step:
        """The step in which units send each other what other tiles need of a tensor.

        What comes from further than the neighbour is passed on by this one (`Tiles.ways`).
        """

        def emit(at: At) -> None:
            jobs = self.located.rounds[at[0]]
            for axes, back in self.located.tiles.ways(name):
                for unit, index in reversed(jobs) if back else jobs:
                    self.halos.send(name, unit, index, axes, back=back)

        return self.step(f"send {name}", op, emit if self.halos.are_sent(name) else None)

    def share(self, step: int, op: OpFacts, engine: str) -> Step:
        """The step in which units that share out the channels send each other their parts of a result."""
        is_shared = self.channels.are_of_units and op.channel_axis is not None
        emit = partial(self.channels.share, step, op, engine) if is_shared else None
        return self.step(f"share {op.output}", op, emit)

    def keep(self, name: str, op: OpFacts) -> Step:
        """The step in which units put what their later tiles need of a tensor into their stores."""
        emit = self.each(partial(self.halos.keep, name)) if self.halos.are_kept(name) else None
        return self.step(f"keep {name}", op, emit)

    def lasting_weights(self, step: int, op: OpFacts) -> list[Step]:
        """The steps that bring the weights of an op that several rounds find in place, part by part."""
        name = f"lasting weights of {op.output}"
        if not self.weights.may_last(step):
            return [self.step(name, op, None)]
        parts = range(self.weights.lasting_parts(step))
        return [
            self.step(name, op, partial(self.weights.bring_lasting, step, part), brings_lasting=True) for part in parts
        ]

    def passing_weights(self, step: int, op: OpFacts, name: str, bring: Callable[[At], None]) -> Step:
        """A step that brings weights of an op which come with every use."""
        return self.step(f"{name} of {op.output}", op, bring if self.weights.may_pass(step) else None)
