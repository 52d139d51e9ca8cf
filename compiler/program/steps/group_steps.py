"""The lowering of a group as steps: its tree of steps and loops, and the counters of its tiles (SCHED-2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise, product
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.address.table import ENTRY_BYTES
from compiler.errors import LimitError
from compiler.program.context import Context
from compiler.program.group import GroupLowering
from compiler.program.iteration import At, Loop, Step
from compiler.program.program import ADDRESSES, OUTPUT
from compiler.program.steps.action import Action, Inner, Numbers, Space
from compiler.program.steps.axis_runs import Columns, Run, runs_of
from compiler.program.steps.recorder import Recorder
from compiler.program.steps.tile_columns import columns_of, columns_of_blocks
from compiler.program.stored_boxes import StoredBoxes
from compiler.units import element_bytes

# Engines of which every core has one.
_OF_CORES: Final = frozenset({"core", "iodma", "mvdma", "link"})


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """A step, the loops around it, and where in a tile its first iteration lies."""

    step: Step
    loops: tuple[Loop, ...]
    strides: Numbers
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class _Tiles:
    """A unit's tiles: by axis the first number in the walk, how many, how many rounds apart; the round of the first.

    `steps`: by axis how far neighbouring ones lie apart in the walk: more than 1 where tiles are dealt in turn.
    `are_rounds`: the one counter is that of rounds, whatever tiles the unit has in them.
    """

    firsts: Numbers
    counts: Numbers
    strides: Numbers
    base: int
    steps: Numbers
    are_rounds: bool = False


class TooManyActionsError(LimitError):
    """A group was asked for more actions than whoever lowers it wants to wait for."""


class GroupSteps:
    """One group, of whose lowering a recorder takes down what it emits.

    `asked`: how many actions it was asked for, at most `limit`.
    """

    def __init__(self, lowering: GroupLowering, recorder: Recorder) -> None:
        """`lowering` emits into `recorder`."""
        self.lowering, self._recorder = lowering, recorder
        self._rounds = lowering.rounds
        self.asked, self.limit = 0, inf
        self._lay_out(_tiles_of(lowering))
        if self._work_without_tiles():
            self._lay_out(dict.fromkeys(self._units, _rounds_as_tiles(lowering)))
        # the recorder, which all groups of a segment share, may drop the keys of these answers before they are used
        self._known.clear()

    def _lay_out(self, units: dict[int, _Tiles]) -> None:
        """Number the iterations of a group whose units have these tiles."""
        self._units = units
        self._longest = max(self._units, key=lambda unit: int(np.prod(self._units[unit].counts)))
        self._known: dict[tuple[int, int], Sequence[Action]] = {}
        self._runs: dict[int, Sequence[Sequence[Run]]] = {}
        self._spaces: dict[int, Mapping[int, Space]] = {}
        self._unit_of: dict[int, int] = {}
        self._times: dict[tuple[Loop, At], int] = {}
        self._inner: dict[tuple[tuple[Loop, ...], int], Sequence[int]] = {}
        # the most that a loop is gone through in any round, as far as rounds differ
        self._most: dict[Loop, int] = {}
        body = (*self.lowering.brings, *self.lowering.body)
        self._some_rounds = self._ends_of_runs()
        for at in self._some_rounds:
            self._count(body, (at,))
        self._placed: list[_Placed] = []
        self._width = self._place(body, (), (), 0)
        self.iterations = len(self._rounds) * self._width
        self._moments = [self._moments_of(placed) for placed in self._placed]
        self.once = [self._is_once(step) for step in range(len(self._placed))]
        self._doing: dict[int, list[int]] = {}
        for step, (placed, is_once) in enumerate(zip(self._placed, self.once, strict=True)):
            for moment in () if placed.step.emit is None else (-1,) if is_once else self._moments[step]:
                self._doing.setdefault(moment, []).append(step)

    def _work_without_tiles(self) -> bool:
        """True if a unit works in a round in which it has no tile, for example passes weights on.

        Units that count the same rounds have a tile in each. Of others the rounds at the ends of all runs are asked.
        """
        its_rounds = {unit: _rounds_of(tiles) for unit, tiles in self._units.items()}
        if all(rounds == its_rounds[self._longest] for rounds in its_rounds.values()):
            return False
        return any(
            number not in its_rounds[self.unit_of(action.key.queue)]
            for number in self._some_rounds
            for step, is_once in enumerate(self.once)
            if not is_once
            for moment in self._moments[step]
            for action in self.at(step, number * self._width + moment)
        )

    # --- the tree -----------------------------------------------------------------------------------------------------

    def _ends_of_runs(self) -> list[int]:
        """Rounds in which a unit has a tile at the begin or the end of runs."""
        found = {0}
        for unit, tiles in self._units.items():
            ends = [{value for run in runs for value in (run.first, run.last)} for runs in self.runs(unit)]
            for counters in product(*ends):
                found.add(tiles.base + sum(c * s for c, s in zip(counters, tiles.strides, strict=True)))
        return sorted(found)

    def _count(self, body: Sequence[Step | Loop], at: At) -> None:
        for entry in body:
            if isinstance(entry, Loop):
                times = self._times_of(entry, at)
                self._most[entry] = max(self._most.get(entry, 1), times)
                if any(isinstance(inner, Loop) for inner in entry.body):
                    for number in range(times):
                        self._count(entry.body, (*at, number))

    def _place(self, body: Sequence[Step | Loop], loops: tuple[Loop, ...], strides: Numbers, offset: int) -> int:
        """Place what is done in a tile, or a time of a loop, from `offset` on; the iterations that it takes.

        What follows a loop comes in the iteration of its last time. But the first time of a next loop comes one later:
        with both in one iteration two buffers that alternate would be used again after one iteration.
        """
        at, times_before = offset, 0
        for entry in body:
            if isinstance(entry, Step):
                self._placed.append(_Placed(entry, loops, strides, at))
                continue
            times = self._most.get(entry, 1)
            if times_before and max(times, times_before) > 1:
                at += 1
            width = self._width_of(entry.body)
            self._place(entry.body, (*loops, entry), (*strides, width), at)
            at += times * width - 1
            times_before = times
        return at - offset + 1

    def _moments_of(self, placed: _Placed) -> dict[int, None]:
        """The iterations of a round in which a step may be done, in order."""
        times = [range(self._most.get(loop, 1)) for loop in placed.loops]
        return dict.fromkeys(
            placed.offset + sum(number * stride for number, stride in zip(numbers, placed.strides, strict=True))
            for numbers in product(*times)
        )

    def _width_of(self, body: Sequence[Step | Loop]) -> int:
        inner = [entry for entry in body if isinstance(entry, Loop)]
        times = [self._most.get(entry, 1) for entry in inner]
        apart = sum(max(neighbours) > 1 for neighbours in pairwise(times))
        return 1 + apart + sum(n * self._width_of(entry.body) - 1 for n, entry in zip(times, inner, strict=True))

    def _is_once(self, step: int) -> bool:
        """True for weights that are brought in the first of several rounds and stay."""
        placed = self._placed[step]
        if not placed.step.brings_lasting or len(self._rounds) == 1 or not self._emitted(step, (0,)):
            return False
        return not any(self._emitted(step, (number,)) for number in self._some_rounds if number)

    # --- as steps -----------------------------------------------------------------------------------------------------

    def doing(self, iteration: int) -> Sequence[int]:
        """The steps that may do something in an iteration."""
        return self._doing.get(iteration if iteration < 0 else iteration % self._width, ())

    def works(self, step: int) -> bool:
        """False for a step that never does anything."""
        return self._placed[step].step.emit is not None

    def spaces(self, step: int) -> Mapping[int, Space]:
        """By unit the counters of its tiles."""
        found = self._spaces.get(step)
        if found is None:
            offset, width = self._placed[step].offset, self._width
            found = self._spaces[step] = {
                unit: Space(
                    tiles.counts, tuple([stride * width for stride in tiles.strides]), tiles.base * width + offset
                )
                for unit, tiles in self._units.items()
            }
        return found

    def runs(self, unit: int) -> Sequence[Sequence[Run]]:
        """By axis of a unit's tiles the runs in which all that steps depend on stays the same or goes up evenly."""
        found = self._runs.get(unit)
        if found is None:
            tiles = self._units[unit]
            axes = [_apart(len(self._rounds))] if tiles.are_rounds else self._axes
            cuts = zip(axes, tiles.firsts, tiles.counts, tiles.steps, strict=True)
            found = self._runs[unit] = [
                runs_of(columns.part(first, count, step)) for columns, first, count, step in cuts
            ]
        return found

    @cached_property
    def _axes(self) -> list[Columns]:
        lowering = self.lowering
        names = [*lowering.geometry.inputs, *lowering.geometry.made]
        outputs = lowering.geometry.outputs or (lowering.geometry.primary,)
        stored = [lowering.stored_boxes(name) for name in outputs]
        cores = [
            (core_tiles, blocks, [StoredBoxes(core_tiles, name, blocks) for name in outputs])
            for core_tiles, blocks in lowering.core_walks()
        ]
        found = []
        for axis in lowering.tiles.order:
            its = columns_of(lowering.tiles, names, axis, stored, lowering.shares)
            for core_tiles, blocks, boxes in cores:
                if axis in core_tiles.counts:
                    its = its.beside(columns_of_blocks(core_tiles, names, axis, blocks[axis], boxes))
            if axis in lowering.resident_axes or (axis == "C" and lowering.context.residents):
                # which cores have the weights of a slice, or of a tile's channels, follows no rule of the tiles
                its = its.beside(_apart(len(its.same)))
            found.append(its)
        return found

    def inner(self, step: int, unit: int, counters: Numbers) -> Sequence[Inner]:
        """The loops around a step inside one tile: as often as in any of its times."""
        placed, tiles = self._placed[step], self._units[unit]
        if not placed.loops:
            return []
        round_number = tiles.base + sum(c * s for c, s in zip(counters, tiles.strides, strict=True))
        return [
            Inner(times, stride)
            for times, stride in zip(self._times_in(placed.loops, round_number), placed.strides, strict=True)
        ]

    def _times_in(self, loops: tuple[Loop, ...], round_number: int) -> Sequence[int]:
        """How often loops inside one another are gone through in a round, each as in any time of those around it."""
        found = self._inner.get((loops, round_number))
        if found is None:
            ways: list[At] = [(round_number,)]
            found = []
            for loop in loops:
                counts = [self._times_of(loop, at) for at in ways]
                found.append(max(counts, default=0))
                ways = [(*at, number) for at, count in zip(ways, counts, strict=True) for number in range(count)]
            self._inner[loops, round_number] = found
        return found

    def _times_of(self, loop: Loop, at: At) -> int:
        found = self._times.get((loop, at))
        if found is None:
            found = self._times[loop, at] = loop.count(at)
        return found

    def unit_of(self, queue: int) -> int:
        """The unit that an engine belongs to; one without tiles goes with the first that has most."""
        found = self._unit_of.get(queue)
        if found is None:
            found = self._unit_of[queue] = self._new_unit_of(queue)
        return found

    def _new_unit_of(self, queue: int) -> int:
        its, profile = self.lowering.machine.queues[queue], self.lowering.profile
        in_cluster = not profile.units.are_cores and its.engine in _OF_CORES
        unit = its.number // profile.cores_per_cluster if in_cluster else its.number
        return unit if unit in self._units else self._longest

    def at(self, step: int, iteration: int) -> Sequence[Action]:
        """What a step does in an iteration."""
        placed = self._placed[step]
        if placed.step.emit is None or (iteration >= 0 and iteration % self._width not in self._moments[step]):
            return ()
        key = step, iteration
        found = self._known.get(key)
        if found is None:
            at = (0,) if iteration < 0 else self._at(placed, iteration)
            found = self._known[key] = [] if at is None else self._emitted(step, at)
        return found

    def forget(self) -> None:
        """Drop what is kept to answer quickly: answers, their keys, and what the lowering keeps of rounds."""
        self._known.clear()
        self._recorder.forget()
        self.lowering.forget()

    def _at(self, placed: _Placed, iteration: int) -> At | None:
        """The counters of a step in an iteration; None where it is not done."""
        number, rest = divmod(iteration, self._width)
        rest -= placed.offset
        if rest < 0 or number >= len(self._rounds):
            return None
        at: At = (number,)
        for loop, stride in zip(placed.loops, placed.strides, strict=True):
            its, rest = divmod(rest, stride)
            if its >= self._times_of(loop, at):
                return None
            at = (*at, its)
        return None if rest else at

    def _emitted(self, step: int, at: At) -> Sequence[Action]:
        emit = self._placed[step].step.emit
        assert emit is not None
        emit(at)
        found = self._recorder.taken()
        self.asked += len(found)
        if self.asked > self.limit:
            raise TooManyActionsError(
                "a group takes longer to lower than it is worth", stage="lower", actual=self.asked, limit=self.limit
            )
        return found


def _apart(count: int) -> Columns:
    """Rounds of which none is like another."""
    numbers = np.arange(count, dtype=np.int64).reshape(-1, 1)
    return Columns(even=numbers, same=numbers)


def _rounds_as_tiles(lowering: GroupLowering) -> _Tiles:
    """One counter, that of rounds."""
    return _Tiles((0,), (len(lowering.rounds),), (1,), 0, (1,), are_rounds=True)


def _rounds_of(tiles: _Tiles) -> frozenset[int]:
    """The rounds of a unit's tiles."""
    places = np.indices(tiles.counts).reshape(len(tiles.counts), int(np.prod(tiles.counts)))
    return frozenset((tiles.base + np.array(tiles.strides, dtype=np.int64) @ places).tolist())


def _tiles_of(lowering: GroupLowering) -> dict[int, _Tiles]:
    """The tiles of all units, with as many as the unit that has most where they begin at the same time.

    Of units that have tiles in no even order the rounds themselves are the tiles. A unit may have something to do, too,
    where others have a tile and it has none.
    """
    rounds: dict[int, list[int]] = {}
    numbers: dict[int, list[tuple[int, ...]]] = {}
    for number, jobs in enumerate(lowering.rounds):
        for unit, index in jobs:
            rounds.setdefault(unit, []).append(number)
            numbers.setdefault(unit, []).append(tuple(index.values()))
    found = {}
    for unit in sorted(rounds):
        its_numbers = np.array(numbers[unit], dtype=np.int64).reshape(len(rounds[unit]), -1)
        even = _even(np.array(rounds[unit], dtype=np.int64), its_numbers)
        if even is None:
            return dict.fromkeys(sorted(rounds), _rounds_as_tiles(lowering))
        found[unit] = even
    counts = tuple(max(each) for each in zip(*(tiles.counts for tiles in found.values()), strict=True))
    largest = next((tiles for tiles in found.values() if tiles.counts == counts), None)
    if largest is None or len({tiles.base for tiles in found.values()}) > 1:
        return found
    # where a unit has one tile along an axis any stride fits
    for tiles in found.values():
        pairs = zip(tiles.counts, tiles.strides, largest.strides, strict=True)
        if any(count > 1 and stride != other for count, stride, other in pairs):
            return found
    found_steps = {
        unit: tuple(
            own if count > 1 else other
            for own, count, other in zip(tiles.steps, tiles.counts, largest.steps, strict=True)
        )
        for unit, tiles in found.items()
    }
    return {unit: replace(largest, firsts=tiles.firsts, steps=found_steps[unit]) for unit, tiles in found.items()}


def _even(rounds: NDArray[np.int64], numbers: NDArray[np.int64]) -> _Tiles | None:
    """A unit's tiles where they are all of a box, or every so many of one, and their rounds go up evenly; else None."""
    firsts = numbers.min(axis=0)
    # by axis the greatest step that leads to all of them
    steps = np.maximum(1, np.gcd.reduce(numbers - firsts, axis=0))
    local = (numbers - firsts) // steps
    counts = local.max(axis=0) + 1
    if len(rounds) != int(np.prod(counts)):
        return None
    begin = np.flatnonzero((local == 0).all(axis=1))
    if len(begin) != 1:
        return None
    base, strides = int(rounds[begin[0]]), []
    for axis, count in enumerate(counts.tolist()):
        wanted = np.zeros(local.shape[1], dtype=np.int64)
        wanted[axis] = 1
        beside = np.flatnonzero((local == wanted).all(axis=1)) if count > 1 else begin
        strides.append(int(rounds[beside[0]]) - base if count > 1 else 0)
    if (rounds != base + local @ np.array(strides, dtype=np.int64)).any():
        return None
    return _Tiles(tuple(firsts.tolist()), tuple(counts.tolist()), tuple(strides), base, steps=tuple(steps.tolist()))


def recorder_of(context: Context) -> Recorder:
    """A recorder that stands where a context's emitter stands."""

    @cache
    def element(table: int, operand: int) -> int:
        if operand <= ADDRESSES:
            return ENTRY_BYTES
        op = context.graph.ops[context.tables[table].op]
        name = op.output if operand == OUTPUT else op.inputs[operand]
        return element_bytes(context.graph.tensors[name].stored_dtype)

    @cache
    def sums_width(table: int) -> int:
        return element_bytes(context.accumulator(context.tables[table].op)) // element(table, OUTPUT)

    @cache
    def entry(table: int, number: int) -> tuple[Numbers, Numbers, Numbers, int]:
        its = context.tables[table]
        starts, sides, first, stop, begins, ends = its.entries[number]
        scale = 1 if begins and ends else sums_width(table)
        return (*starts[: its.rank], first), sides[: its.rank], (stop - first, begins, ends), scale

    recorder = Recorder(context.machine, entry, element)
    context.emitter = recorder  # type: ignore[assignment]
    return recorder
