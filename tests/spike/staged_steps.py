"""The spike's breadth-first groups as steps, whose pieces have counters of their own, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from compiler.ops.slab import lengths
from compiler.program.larger import cut
from compiler.program.staged import _Piece, _slice_of
from compiler.program.steps.action import Action, Columns, Numbers, Ring, Space
from compiler.program.steps.tile_columns import columns_of
from tests.spike.as_steps import action_of
from tests.spike.staged import StagedActions


class StagedSteps:
    """One group: per tile and stage the slices of its weights, and the pieces along each axis."""

    def __init__(self, actions: StagedActions) -> None:
        self.actions = actions
        self._tiles = actions.staged.tiles
        tiles = [dict(index) for jobs in actions.staged.rounds for _, index in jobs]
        self._known: dict[tuple[int, int], Sequence[Action]] = {}
        self._counts: list[Numbers] = []
        self._offsets: list[int] = []
        self._piece_columns: list[list[Columns]] = []
        at = 0
        for number, _stage in enumerate(actions.group.stages):
            cuts = [self._cuts(number, tile) for tile in tiles]
            largest = max(cuts, key=prod)
            slices = max(len(actions._slices_of(number, tile)) for tile in tiles)
            counts = (slices, *(max(each) for each in zip(*cuts, strict=True)))
            assert counts[1:] == largest
            tile = tiles[cuts.index(largest)]
            self._counts.append(counts)
            self._offsets.append(at)
            self._piece_columns.append(self._columns_of_pieces(number, tile, counts))
            at += prod(counts)
        self.width = max(1, at)
        counts = tuple(self._tiles.counts.values())
        self._tile_counts = counts
        self._tile_strides = tuple(prod(counts[n + 1 :]) * self.width for n in range(len(counts)))
        self.iterations = prod(counts) * self.width
        names = [*actions.staged.geometry.inputs, *actions.staged.geometry.made]
        self._tile_columns = [columns_of(self._tiles, names, axis) for axis in actions.tiles_axes]
        self.names: list[tuple[str, int]] = []
        self.once: list[bool] = []
        for family in actions.families:
            kind, which = (family.name.split() + [""])[:2]
            self.names.append((kind, int(which) if which.isdigit() and kind in ("weights", "fill", "op", "put") else -1))
            self.once.append(family.before)

    def _sizes(self, number: int, tile: Mapping[str, int]) -> tuple[Any, list[int]]:
        stage, box = self.actions.group.stages[number], self.actions._box(number, tile)
        return box, [max(1, min(size, length)) for size, length in zip(stage.extents, lengths(box), strict=True)]

    def _cuts(self, number: int, tile: Mapping[str, int]) -> Numbers:
        """How many pieces there are along each axis."""
        box, sizes = self._sizes(number, tile)
        return tuple(-(-length // size) for length, size in zip(lengths(box), sizes, strict=True))

    def _columns_of_pieces(self, number: int, tile: Mapping[str, int], counts: Numbers) -> list[Columns]:
        slices = self.actions._slices_of(number, tile)
        found = [_columns([start for start, _ in slices], [stop - start for start, stop in slices], counts[0])]
        box, sizes = self._sizes(number, tile)
        for (start, stop), size in zip(box, sizes, strict=True):
            starts = list(range(start, stop, size))
            found.append(_columns(starts, [min(size, stop - s) for s in starts], len(starts)))
        return found

    def spaces(self, step: int) -> Mapping[int, Space]:
        """The counters of a step."""
        kind, number = self.names[step]
        if number < 0:
            return {0: Space(self._tile_counts, self._tile_strides, self._single(step))}
        counts = self._counts[number]
        if kind == "weights":
            strides: Numbers = (prod(counts[1:]),)
            counts = counts[:1]
        else:
            strides = tuple(prod(counts[n + 1 :]) for n in range(len(counts)))
        base = self._offsets[number]
        return {0: Space((*self._tile_counts, *counts), (*self._tile_strides, *strides), base)}

    def _single(self, step: int) -> int:
        """The place in a tile of what is done once in it."""
        kind, _ = self.names[step]
        name = self.actions.families[step].name
        if kind == "bring":
            return 0
        if kind == "store" or name.split()[-1] in self.actions.staged.geometry.inputs:
            return self.width - 1
        before = [number for kind, number in self.names[:step] if kind == "put"]
        ends = [*self._offsets[1:], self.width]
        return ends[before[-1]] - 1

    def columns(self, step: int, unit: int) -> Sequence[Columns]:
        """What is done depends on."""
        del unit
        kind, number = self.names[step]
        if number < 0:
            return self._tile_columns
        pieces = self._piece_columns[number]
        return [*self._tile_columns, *(pieces[:1] if kind == "weights" else pieces)]

    def unit_of(self, queue: int) -> int:
        """There is one unit."""
        del queue
        return 0

    def at(self, step: int, iteration: int) -> Sequence[Action]:
        """What a step does in an iteration."""
        key = step, iteration
        if key not in self._known:
            self._known[key] = self._new(step, iteration)
        return self._known[key]

    def _new(self, step: int, iteration: int) -> Sequence[Action]:
        actions, (kind, number) = self.actions, self.names[step]
        actions.recorder.actions = []
        family = actions.families[step]
        if iteration < 0:
            family.emit([(0, {**dict.fromkeys(actions.tiles_axes, 0), "piece": 0})])
            return [action_of(action) for action in actions.recorder.actions]
        tile_number, place = divmod(iteration, self.width)
        index = np.unravel_index(tile_number, self._tile_counts) if self._tile_counts else ()
        tile = {axis: int(i) for axis, i in zip(actions.tiles_axes, index, strict=True)}
        if number < 0:
            if place != self._single(step):
                return []
            x = 0 if kind == "bring" else len(actions._turns) - 1
            if kind == "keep" and family.name.split()[-1] not in actions.staged.geometry.inputs:
                before = [n for k, n in self.names[:step] if k == "put"][-1]
                x = max(at for at, turn in enumerate(actions._turns) if turn[0] == before)
            family.emit([(0, {**tile, "piece": x})])
            return [self._with_rings(action_of(action), number) for action in actions.recorder.actions]
        counts = self._counts[number]
        local = place - self._offsets[number]
        if not 0 <= local < prod(counts):
            return []
        part, *at = (int(i) for i in np.unravel_index(local, counts))
        slices = actions._slices_of(number, tile)
        if part >= len(slices):
            return []
        if kind == "weights":
            if any(at):
                return []
            its = [x for x, turn in enumerate(actions._turns) if turn[0] == number]
            actions._weights(tile, next(x for x in its if actions._turns[x] == (number, part, 0)), its)
            return [self._with_rings(action_of(action), -1) for action in actions.recorder.actions]
        cuts = self._cuts(number, tile)
        if any(a >= c for a, c in zip(at, cuts, strict=True)):
            return []
        piece = int(np.ravel_multi_index(at, cuts))
        box, sizes = self._sizes(number, tile)
        mine = _Piece(0, list(cut(box, sizes))[piece])
        if len(slices) > 1:
            mine = _slice_of(actions.staged.geometry.ops[actions.group.stages[number].steps[0]], mine, slices[part])
        return [
            self._with_rings(action_of(action), number)
            for action in self._passed(number, tile, mine, slices[part], part, local, kind)
        ]

    def _passed(
        self, number: int, tile: dict[str, int], mine: _Piece, channels: tuple[int, int], part: int, local: int, kind: str
    ) -> Sequence[Any]:
        actions = self.actions
        stage = actions.group.stages[number]
        op = actions.staged.geometry.ops[stage.steps[0]]
        actions._pieces.number = self._offsets[number] + local
        passing = actions.staged._begin(number, 0, tile, mine)
        actions.recorder.step = actions.staged.step_of[op.index]
        bound = actions._bound(stage.steps[0], part, channels)
        actions.recorder.actions = []
        actions.staged._pass(passing, stage, [op], 0, bound, 0)
        whole = actions.recorder.actions
        call = next(at for at, action in enumerate(whole) if action.key[0] == "call")
        return {"fill": whole[:call], "op": whole[call : call + 1], "put": whole[call + 1 :]}[kind]

    def _with_rings(self, action: Action, number: int) -> Action:
        """Rings of the spike's counters (tiles, number of the piece) as rings of ours."""

        def moved(ring: Ring | None) -> Ring | None:
            if ring is None:
                return None
            *tiles, piece = (*ring.coefficients, 0)[: len(self._tile_counts) + 1]
            if number < 0:
                return ring._replace(coefficients=tuple(tiles))
            counts = self._counts[number]
            strides = tuple(prod(counts[n + 1 :]) for n in range(len(counts)))
            width = tuple(stride * piece % 2 for stride in strides)
            return ring._replace(coefficients=(*tiles, *width), base=(ring.base + piece * self._offsets[number]) % 2)

        key: Any = action.key
        if hasattr(key, "source_ring"):
            key = key._replace(source_ring=moved(key.source_ring), target_ring=moved(key.target_ring))
        else:
            key = key._replace(bound=tuple(b._replace(ring=moved(b.ring)) for b in key.bound))
        return action._replace(key=key)

    def entry(self, table: int, box: Any, rest: Numbers) -> int:
        """The number of an entry."""
        del rest
        return self.actions.context.entry(table, box)


def _columns(starts: Sequence[int], sizes: Sequence[int], count: int) -> Columns:
    numbers = np.arange(count)
    even = np.stack([numbers, np.array([*starts, *[0] * count][:count])], axis=1)
    return Columns(even=even, same=np.array([*sizes, *[0] * count][:count]).reshape(count, 1))
