"""Groups of a chip without SRAM: each core holds its tiles and works on them op by op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

from compiler.ops.op_facts import OpFacts
from compiler.program.emitter import Box, Held, is_empty
from compiler.program.group import OpSteps
from compiler.program.iteration import At, Loop, Step
from compiler.program.known import Recent
from compiler.program.located import Located
from compiler.program.parts import ChannelParts, SumParts, channels_of
from compiler.program.tile_kinds import kinds_along, kinds_of_rounds
from compiler.program.tiles import Index
from compiler.program.unit_calls import Bound, Part, UnitCalls
from compiler.program.unit_tiles import UnitTiles
from compiler.program.weight_boxes import WeightBoxes
from compiler.program.weight_reach import Need
from compiler.program.weights import GroupWeights


class _Entry(NamedTuple):
    """A unit, its tile, where an op's result lies, the box of it that the unit makes, and the channels of that."""

    unit: int
    tile: Index
    held: Held
    box: Box
    channels: tuple[int, int]


class FlatJobs:
    """Who makes what of an op's result in a round, slice by slice of its weights."""

    def __init__(
        self, located: Located, tiles: UnitTiles, channels: ChannelParts, sums: SumParts, boxes: WeightBoxes
    ) -> None:
        self._located = located
        self._tiles = tiles
        self._channels = channels
        self._sums = sums
        self._boxes = boxes
        # by op and round
        self._known_entries = Recent(len(located.geometry.ops), self._new_entries)

    @cached_property
    def round_kinds(self) -> Sequence[int]:
        """By round its kind: units work on tiles of the same kinds."""
        tiles = self._located.tiles
        blocks = {axis: range(count) for axis, count in tiles.counts.items()}
        kinds = kinds_along(tiles, self._located.geometry.ops, tiles.counts, blocks)
        return kinds_of_rounds(self._located.rounds, kinds)

    def forget(self) -> None:
        """Drop the entries of rounds."""
        self._known_entries.clear()

    def entries(self, step: int, number: int) -> list[_Entry]:
        """Who makes what of an op's result in a round; kept, for it is asked for slice by slice."""
        return self._known_entries[step, number]

    def _new_entries(self, key: tuple[int, int]) -> list[_Entry]:
        op, number = self._located.geometry.ops[key[0]], key[1]
        found: list[_Entry] = []
        for unit, index in self._sums.workers(op, self._located.rounds[number]):
            held = self._tiles.tile(op.output, unit, index) if self._located.first_slice(op.output, index) else None
            box = None if held is None else self._channels.of_unit(op, unit, held.box)
            if held is not None and box is not None and not is_empty(box):
                found.append(_Entry(unit, index, held, box, channels_of(op, box)))
        return found

    def slice_count(self, step: int, at: At) -> int:
        """In how many slices the weights of an op come in a round."""
        entries = self.entries(step, at[0])
        return max((len(self._boxes.slices(step, entry.channels)) for entry in entries), default=0)

    def at_slice(self, step: int, at: At) -> Iterator[tuple[_Entry, Need]]:
        """Who works on an op in a round, with the slice of its weights that is at hand."""
        number, part = at
        for entry in self.entries(step, number):
            slices = self._boxes.slices(step, entry.channels)
            if part < len(slices):
                yield entry, Need((entry.unit, 0), slices[part], slices[part])

    def needs_of(self, step: int, number: int) -> Iterator[Need]:
        """What the tiles of a round need of an op's weights."""
        is_parted = self._located.is_parted(self._located.geometry.ops[step])
        for entry in self.entries(step, number):
            for part in self._sums.of_unit(entry.unit) if is_parted else (None,):
                for channels in self.slices(step, entry):
                    yield self.need(entry, channels, part)

    def slices(self, step: int, entry: _Entry) -> list[tuple[int, int]]:
        """The slices of an op's weights that a core has for its part one after another."""
        return self._boxes.slices(step, entry.channels)

    def need(self, entry: _Entry, channels: tuple[int, int], part: Part | None = None) -> Need:
        """What a core needs of weights for some channels."""
        return Need((entry.unit, 0), channels, channels, None if part is None else part.range)


@dataclass(slots=True, eq=False)
class FlatCores:
    """A unit is a core; tiles lie in NRAM."""

    located: Located
    tiles: UnitTiles
    jobs: FlatJobs
    sums: SumParts
    calls: UnitCalls
    weights: GroupWeights

    def work(self, steps: OpSteps) -> tuple[Step | Loop, ...]:
        """All ops of the group, one after another, each on all tiles of a round, slice by slice of its weights."""
        found: list[Step | Loop] = []
        for step, op in enumerate(self.located.geometry.ops):
            name = op.output
            found += steps.lasting_weights(step, op)
            if self.located.is_parted(op) and self.located.shares_sums:
                found.append(steps.step(f"sum up {name}", op, partial(self._shared_sums, step, op)))
            elif self.located.is_parted(op):
                found.append(self._sums(steps, step, op))
            else:
                slices = (
                    steps.passing_weights(step, op, "weights", partial(self._weights, step)),
                    steps.step(f"make {name}", op, partial(self._make, step, op)),
                )
                count = partial(self.jobs.slice_count, step)
                found.append(Loop(name=f"slices of {name}", count=count, body=slices))
            found += [steps.share(step, op, "link"), steps.send(name, op)]
            found += [steps.keep(dying, op) for dying in self.located.dying((step,))]
        return tuple(found)

    def _weights_turn(self, step: int, number: int, part: int) -> int:
        """Which use of an op's weights this is, counted over all rounds."""
        return number * self.located.group.weights[step].slices + part

    def _weights(self, step: int, at: At) -> None:
        number, part = at
        needs = [need for _, need in self.jobs.at_slice(step, at)]
        self.weights.bring_passing(step, at, needs, self._weights_turn(step, number, part), tables=part == 0)

    def _make(self, step: int, op: OpFacts, at: At) -> None:
        """The calls that make an op's result, or a slice of its channels."""
        number, part = at
        for entry, need in self.jobs.at_slice(step, at):
            bound = self.weights.bound(step, need, number, self._weights_turn(step, number, part))
            self._call(op, entry, self._sliced(step, op, entry, need.channels), bound)

    def _sliced(self, step: int, op: OpFacts, entry: _Entry, channels: tuple[int, int]) -> Box:
        if op.channel_axis is None or len(self.jobs.slices(step, entry)) == 1:
            return entry.box
        return (*entry.box[: op.channel_axis], channels, *entry.box[op.channel_axis + 1 :])

    # --- sums in parts ------------------------------------------------------------------------------------------------

    def _sums(self, steps: OpSteps, step: int, op: OpFacts) -> Loop:
        """A product whose sums are made part by part, by all units at the same time, slice of the weights by slice."""
        parts = self.sums.of_unit(0)

        def of_all(emit: Callable[[int, OpFacts, Sequence[_Entry], Part, int, int], None]) -> Callable[[At], None]:
            def its(at: At) -> None:
                emit(step, op, self.jobs.entries(step, at[0]), parts[at[1]], at[0], at[2])

            return its

        def load(at: At) -> None:
            self._load_part(step, op, self.jobs.entries(step, at[0]), parts[at[1]], at)

        slices = (
            steps.passing_weights(step, op, "weights", of_all(self._part_weights)),
            steps.step(f"sum up {op.output}", op, of_all(self._sum_slice)),
        )
        body = (
            steps.step(f"parts for {op.output}", op, load),
            Loop(name=f"slices of {op.output}", count=partial(self.jobs.slice_count, step), body=slices),
        )
        return Loop(name=f"parts of {op.output}", count=lambda _: len(parts), body=body)

    def _shared_sums(self, step: int, op: OpFacts, at: At) -> None:
        """A product whose units make a part of the sums each: one takes up the sums of another."""
        by_channels: dict[tuple[int, int], list[_Entry]] = {}
        entries = self.jobs.entries(step, at[0])
        for entry in entries:
            by_channels.setdefault(entry.channels, []).append(entry)
        for alike in by_channels.values():
            before: _Entry | None = None
            for entry in alike:
                parts = self.sums.of_unit(entry.unit)
                if before is not None and parts:
                    self.sums.pass_sums(before.held, entry.held, entry.box, self.located.queue("link", before.unit), op)
                for part in parts:
                    self._load_part(step, op, [entry], part, at)
                    for number in range(len(self.jobs.slices(step, entry))):
                        self._part_weights(step, op, [entry], part, at[0], number)
                        self._sum_slice(step, op, [entry], part, at[0], number)
                before = entry if parts else before

    def _load_part(self, step: int, op: OpFacts, entries: Sequence[_Entry], part: Part, at: At) -> None:
        """Load what units read of one part."""
        turn = self.located.turn(len(self.located.geometry.inputs) + step, at)
        self.sums.load_part(op, [(entry.unit, entry.tile) for entry in entries], part, turn)

    def _of_part(
        self, step: int, entries: Sequence[_Entry], part: Part, number: int, slice_number: int
    ) -> tuple[int, list[tuple[_Entry, Need]]]:
        """Which use of the weights a slice of a part in a round is, and what each unit needs of them then."""
        slices = [self.jobs.slices(step, entry) for entry in entries]
        count = max(map(len, slices), default=0)
        pairs = zip(entries, slices, strict=True)
        its = [(e, self.jobs.need(e, of[slice_number], part)) for e, of in pairs if slice_number < len(of)]
        return (number * self.located.group.input_parts + part.turn) * count + slice_number, its

    def _part_weights(
        self, step: int, op: OpFacts, entries: Sequence[_Entry], part: Part, number: int, slice_number: int
    ) -> None:
        """Bring a slice of the weights of one part to some units."""
        del op
        use, its = self._of_part(step, entries, part, number, slice_number)
        tables = part.turn == slice_number == 0
        at = (number, part.turn, slice_number)
        self.weights.bring_passing(step, at, [need for _, need in its], use, tables=tables)

    def _sum_slice(
        self, step: int, op: OpFacts, entries: Sequence[_Entry], part: Part, number: int, slice_number: int
    ) -> None:
        """Add one part to the sums of some units, for a slice of the weights."""
        use, its = self._of_part(step, entries, part, number, slice_number)
        for entry, need in its:
            bound = self.weights.bound(step, need, number, use)
            self._call(op, entry, self._sliced(step, op, entry, need.channels), bound, part)

    def _call(self, op: OpFacts, entry: _Entry, box: Box, weights: Bound, part: Part | None = None) -> None:
        def find(name: str, need: Box) -> list[Held]:
            return self.tiles.pieces(name, entry.unit, entry.tile, need, part)

        self.calls.make(op, entry.unit, box, weights, find, entry.held, part)
