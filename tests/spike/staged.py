"""A breadth-first group of one unit with one core under an SRAM as a function of counters: MC-CNN on `metaproto-df`.

A tile passes stage after stage, slice after slice of the weights, piece after piece. All pieces of a tile are numbered
one after another by one more counter, so that the runs along it are the stages and slices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from compiler.ops.op_facts import GraphFacts
from compiler.program.context import Context
from compiler.program.emitter import Box, Held, is_empty, machine_of
from compiler.program.program import Opcode
from compiler.program.rounds import Job
from compiler.program.staged import StagedLowering, _Piece, _slice_of
from compiler.tiling.tile import WeightHome
from compiler.tiling.tiled import TiledGroup
from tests.spike.actions import Action, Family, FlatActions, Recorder, Ring, Unit, UnsupportedError, _Buffers

# A stage, a slice of its first op's channels (its number), and a piece (its number) of a tile.
_Turn = tuple[int, int, int]


class _Pieces:
    """Stands in for the turns of buffers: pieces use two in turn, by their number."""

    number = 0

    def next(self, who: object, turns: tuple[int, ...]) -> int:
        """The buffer of the piece at hand."""
        del who
        return turns[self.number % len(turns)]


class _Tiles(_Buffers):
    """Which of two buffers a tile uses: by its number, pieces apart."""

    def get(self, key: tuple[int, str, tuple[int, ...]], default: int = 0) -> int:
        """As its base class, of an index without the counter of pieces."""
        unit, root, index = key
        return super().get((unit, root, (*index, 0)), default)


class StagedActions(FlatActions):
    """One breadth-first group whose weights wait in the SRAM."""

    def __init__(self, facts: GraphFacts, group: TiledGroup, outputs: frozenset[str]) -> None:
        """Raises UnsupportedError for other groups."""
        profile = group.profile
        one = group.configuration.units == group.configuration.cores == 1
        if profile.sram is None or group.is_nested or not one or group.core_resident or group.input_parts > 1:
            raise UnsupportedError("not one core with all that lies between stages in the SRAM")
        if any(home is not WeightHome.SRAM for home in group.homes) or "C" in group.walk.axes:
            raise UnsupportedError("weights that do not wait in the SRAM")
        machine = machine_of(profile)
        self.group = group
        self.context = Context(facts, machine, frozenset(op.output for op in group.geometry.ops), outputs)
        self.recorder = Recorder(machine, self._entry)
        self.context.emitter = self.recorder  # type: ignore[assignment]
        numbers = {op.index: step for step, op in enumerate(group.geometry.ops)}
        self.staged = StagedLowering(self.context, group, numbers, {})
        self.lowering: Any = self.staged
        self.tiles_axes = self.staged.tiles.order
        self.axes, self.channels = (*self.tiles_axes, "piece"), -1
        self._pieces_known: dict[tuple[int, tuple[int, ...]], list[_Piece]] = {}
        tiles = [dict(index) for jobs in self.staged.rounds for _, index in jobs]
        self._turns = self._all_turns(tiles)
        counts = (*self.staged.tiles.counts.values(), len(self._turns))
        self.units = {0: Unit((0,) * len(counts), counts, 0)}
        self.rounds = [[(0, {**index, "piece": x})] for index in tiles for x in range(len(self._turns))]
        self.staged._turns = _Tiles(self)  # type: ignore[assignment]
        self._pieces = _Pieces()
        self.staged.turns = self._pieces  # type: ignore[assignment]
        self.staged.weights.emitter = self.recorder  # type: ignore[assignment]
        self._enter_rings()
        self._enter_pieces()
        self._known: dict[tuple[int, int], list[Action]] = {}
        self.families = self._families()

    def tile_ring(self, unit: int, root: str) -> Ring:
        """The counter of tiles, pieces apart."""
        del root
        return 0, self.units[unit].strides((len(self.axes) - 1,)), 0

    def _enter_pieces(self) -> None:
        for (place, key), second in self.staged.buffers.slots.items():
            if key[0] == "piece" and len(key) == 3:
                first = self.staged.buffers.slots[place, key[:2]]
                self._ring(first, second, (*(0 for _ in self.tiles_axes), 1), 0)

    def _all_turns(self, tiles: list[dict[str, int]]) -> list[_Turn]:
        found = []
        for number in range(len(self.group.stages)):
            pieces = max(len(self._pieces_of(number, tile)) for tile in tiles)
            slices = max(len(self._slices_of(number, tile)) for tile in tiles)
            found += [(number, part, piece) for part in range(slices) for piece in range(pieces)]
        return found

    def _box(self, number: int, tile: Mapping[str, int]) -> Box:
        last = self.staged.geometry.ops[self.group.stages[number].steps[-1]]
        return self.staged.made(last.output, tile)

    def _pieces_of(self, number: int, tile: Mapping[str, int]) -> list[_Piece]:
        key = number, tuple(tile.values())
        if key not in self._pieces_known:
            ops = [self.staged.geometry.ops[step] for step in self.group.stages[number].steps]
            box = self._box(number, tile)
            self._pieces_known[key] = [] if is_empty(box) else self.staged._pieces(number, ops, 0, tile, box)
        return self._pieces_known[key]

    def _slices_of(self, number: int, tile: Mapping[str, int]) -> list[tuple[int, int]]:
        stage, box = self.group.stages[number], self._box(number, tile)
        op = self.staged.geometry.ops[stage.steps[0]]
        if is_empty(box):
            return []
        slices = self.staged.weights.slices(stage.steps[0], self.staged._channels(op, box))
        if len(slices) > 1 and not stage.cuts_channels:
            raise UnsupportedError("slices for each piece")
        if len(stage.steps) > 1:
            raise UnsupportedError("stages of several ops")
        return slices

    # --- families -----------------------------------------------------------------------------------------------------

    def _families(self) -> list[Family]:
        found: list[Family] = []
        staged, last = self.staged, len(self._turns) - 1

        def add(name: str, emit: Callable[[dict[str, int], int], None], *, before: bool = False) -> None:
            def every(jobs: list[Job]) -> None:
                for _, index in jobs:
                    tile = {axis: index[axis] for axis in self.tiles_axes}
                    emit(tile, index["piece"])

            found.append(Family(name=name, number=len(found), emit=every, before=before))

        def at(number: int, emit: Callable[[dict[str, int]], None]) -> Callable[[dict[str, int], int], None]:
            return lambda tile, x: emit(tile) if x == number else None

        for name in staged.geometry.inputs:
            add(f"bring {name}", at(0, lambda tile, name=name: self._bring(name, [(0, tile)])))  # type: ignore[misc]
        for step in range(len(staged.geometry.ops)):
            add(f"load weights {step}", lambda _, __, step=step: self._load_weights(step), before=True)  # type: ignore[misc]
        for number, stage in enumerate(self.group.stages):
            its = [x for x, turn in enumerate(self._turns) if turn[0] == number]
            add(f"weights {number}", lambda tile, x, its=its: self._weights(tile, x, its))  # type: ignore[misc]
            for part in ("fill", "op", "put"):
                add(f"{part} {number}", lambda tile, x, n=number, part=part: self._pass(n, tile, x, part))  # type: ignore[misc]
            for name in staged.dying(stage.steps):
                if name in {*stage.inputs, *stage.results}:
                    add(f"keep {name}", at(its[-1], lambda tile, name=name: staged.keep(name, 0, tile, 0)))  # type: ignore[misc]
        add("store", at(last, lambda tile: staged._store([(0, tile)], 0)))
        for name in staged.geometry.inputs:
            add(f"keep {name}", at(last, lambda tile, name=name: staged.keep(name, 0, tile, 0)))  # type: ignore[misc]
        return found

    def _load_weights(self, step: int) -> None:
        """An op's weights from DRAM to where they wait in the SRAM."""
        op, weights = self.staged.geometry.ops[step], self.staged.weights
        self.recorder.step = self.staged.step_of[op.index]
        for operand in weights._constants[step]:
            held = self._in_sram(step, operand)
            region = self.context.region(operand.tensor)
            queue = self.staged.queue("gdma", 0)
            self.recorder.copy(Opcode.LOAD, queue, region, held, held.box, self.staged.element(operand.tensor))

    def _in_sram(self, step: int, operand: Any) -> Held:
        op, weights = self.staged.geometry.ops[step], self.staged.weights
        shape = self.staged.tensors[op.output].shape
        weights._whole = (0, 1) if op.channel_axis is None else (0, shape[op.channel_axis])
        slot = weights._unit_slots[step, 0]
        at, box = weights._in_unit(step, operand)
        return weights._held(slot, slot.address + at, operand, box)

    def _bound(self, step: int, part: int, channels: tuple[int, int]) -> list[tuple[int, Held]]:
        weights = self.staged.weights
        content = weights._staying(step, channels)
        slots = weights._slots[step, 0, 0]
        slot = slots[part % len(slots)]
        held = weights._bound(slot, (step, content, None), weights.boxes(step, content, None))
        wanted = {operand.number: box for operand, box in weights.boxes(step, channels, None)}
        return [(number, its.part(wanted[number])) for number, its in held]

    def _weights(self, tile: dict[str, int], x: int, its: list[int]) -> None:
        """A slice of a stage's weights to the core, before its first piece."""
        number, part, piece = self._turns[x]
        slices = self._slices_of(number, tile) if x in its else []
        if piece or part >= len(slices):
            return
        weights, step = self.staged.weights, self.group.stages[number].steps[0]
        self.recorder.step = self.staged.step_of[self.staged.geometry.ops[step].index]
        content = weights._staying(step, slices[part])
        operands = [(o, box) for o, box in weights.boxes(step, content, None) if not is_empty(box)]
        slots = weights._slots[step, 0, 0]
        slot = slots[part % len(slots)]
        bound = weights._bound(slot, (step, content, None), weights.boxes(step, content, None))
        for (operand, box), (_, held) in zip(operands, bound, strict=True):
            source = self._in_sram(step, operand)
            weights.to_cores(source, 0, [0], [held], box, self.staged.element(operand.tensor))

    def _pass(self, stage: int, tile: dict[str, int], x: int, which: str) -> None:
        """What a piece reads comes, its op, or its result goes back."""
        number, part, piece = self._turns[x]
        pieces, slices = self._pieces_of(number, tile), self._slices_of(number, tile)
        if number != stage or piece >= len(pieces) or part >= len(slices):
            return
        its = self.group.stages[number]
        op = self.staged.geometry.ops[its.steps[0]]
        mine = pieces[piece] if len(slices) == 1 else _slice_of(op, pieces[piece], slices[part])
        self._pieces.number = x
        passing = self.staged._begin(number, 0, tile, mine)
        self.recorder.step = self.staged.step_of[op.index]
        self.recorder.actions = []
        bound = self._bound(its.steps[0], part, slices[part])
        self.staged._pass(passing, its, [op], 0, bound, 0)
        call = next(at for at, action in enumerate(self.recorder.actions) if action.key[0] == "call")
        whole = self.recorder.actions
        self.recorder.actions = {"fill": whole[:call], "op": whole[call : call + 1], "put": whole[call + 1 :]}[which]
