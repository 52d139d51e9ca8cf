"""What a program uses over time: bytes through memories' ports, DRAM and links, work of the units, by slice (SIM-2).

Bytes are exact: what the rates of moves carried (`run_flows`). What a call computes is spread evenly over the time that
it takes, though its core's ports may have slowed it at one time more than at another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from compiler.profile.schema import Profile
from compiler.program.loops.tiles import Tiles
from compiler.program.loops.time import Commands, ProgramTime
from compiler.program.timing.roofline import Floats, ideal_cycles
from compiler.program.timing.shares import flows_of, run_flows
from compiler.program.timing.ticks import GRAIN_BITS, RATE_BITS, TICKS_PER_CYCLE, WEIGHT_BITS, Flags, Ints

SLICES: Final = 100
# A command's share of a slice is counted in parts of 2 to the power of this: whole numbers, whose sum does not depend
# on the order in which commands are shown; at least 2³² of them stay within 64 bits.
_SHARE_BITS: Final = 30
_NONE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """By slice of the program's time, all slices equally long.

    `bytes`: by name of resource, through all resources of that name; `capacities`: bytes per cycle of those that the
    program uses, together. array, vector: cycles that the units of all cores would take at their peak for what they
    compute, as a share of the slice.
    """

    slice_cycles: float
    bytes: dict[str, Floats]
    capacities: dict[str, float]
    array: Floats
    vector: Floats


class UsageFold:
    """The usage of a chip by a program, in so many slices, as all of its commands are shown."""

    def __init__(self, time: ProgramTime, tiles: Tiles, profile: Profile, slices: int = SLICES) -> None:
        self._time, self._tiles, self._profile = time, tiles, profile
        self._slices = slices
        self._width = max(time.ticks, 1) / slices
        demands = time.demands
        self._queues = time.program.commands["queue"].astype(np.int64)
        self._passes: Flags = (np.diff(demands.offsets) > 0)[demands.kinds]
        self._state = flows_of(len(time.program.queues), len(demands.capacities))
        self._flows = np.zeros((len(demands.capacities), slices))
        # events of a tick from which on all are not known yet: times, positions, and whether something begins
        self._late: tuple[Ints, ...] = tuple(np.zeros(0, dtype=np.int64) for _ in range(3))
        self._until = 0
        # by kind of call the number of what the units take for it at their peak; the shares of all calls that take it
        # by slice
        self._call_of = np.full(len(demands.works), _NONE, dtype=np.int64)
        calls = np.flatnonzero([work is not None for work in demands.works])
        taken = [ideal_cycles(work, profile) for work in demands.works if work is not None]
        self._ideal, numbers = np.unique(np.array(taken).reshape(-1, 2), axis=0, return_inverse=True)
        self._call_of[calls] = numbers.reshape(-1)
        self._shares = np.zeros(len(self._ideal) * slices, dtype=np.int64)

    def add(self, commands: Commands) -> None:
        """Take in the next commands."""
        self._add_moves(commands)
        self._add_calls(commands)

    def usage(self) -> Usage:
        """The usage, once all commands are taken in."""
        demands, profile = self._time.demands, self._profile
        flows = self._flows * 2.0 ** -(GRAIN_BITS + WEIGHT_BITS)
        capacities = demands.capacities * 2.0 ** -(RATE_BITS + WEIGHT_BITS)
        resources: dict[str, list[int]] = {}
        for number, resource in enumerate(demands.names):
            resources.setdefault(resource.name, []).append(number)
        cycles = self._width / TICKS_PER_CYCLE
        shares = self._shares.reshape(-1, self._slices) * 2.0**-_SHARE_BITS
        array, vector = (self._ideal[:, :, None] * shares[:, None]).sum(axis=0) / profile.cores / cycles
        return Usage(
            slice_cycles=cycles,
            bytes={name: flows[numbers].sum(axis=0) for name, numbers in resources.items()},
            capacities={name: float(capacities[numbers].sum()) for name, numbers in resources.items()},
            array=array,
            vector=vector,
        )

    def _add_moves(self, commands: Commands) -> None:
        """Let flow what begins and ends before the tick from which on not all is known."""
        # what begins and ends at one time has nothing to move
        moving = self._passes[self._tiles.statements(commands.positions)] & (commands.ends > commands.begins)
        begun = moving & (commands.begins >= self._until)
        open_begun = self._passes[self._tiles.statements(commands.open_positions)]
        open_begun &= (commands.open_begins >= self._until) & (commands.open_begins < commands.until)
        parts = (
            (commands.ends[moving], commands.positions[moving], 0),
            (commands.begins[begun], commands.positions[begun], 1),
            (commands.open_begins[open_begun], commands.open_positions[open_begun], 1),
        )
        times, positions, is_begin = (
            np.concatenate([late, *columns])
            for late, columns in zip(
                self._late,
                (
                    [its for its, _, _ in parts],
                    [its for _, its, _ in parts],
                    [np.full(len(its), flag, dtype=np.int64) for its, _, flag in parts],
                ),
                strict=True,
            )
        )
        is_late = times >= commands.until
        self._late = times[is_late], positions[is_late], is_begin[is_late]
        self._until = commands.until
        order = np.flatnonzero(~is_late)
        order = order[np.lexsort((is_begin[order], positions[order], times[order]))]
        statements = self._tiles.statements(positions[order])
        demands = self._time.demands
        run_flows(
            times[order],
            2 * self._queues[statements] + is_begin[order],
            statements,
            self._state,
            self._flows,
            self._width,
            demands.amounts,
            demands.shifts,
            demands.kinds,
            demands.rates,
            demands.offsets,
            demands.resources,
            demands.weights,
            demands.capacities,
        )

    def _add_calls(self, commands: Commands) -> None:
        """Spread what calls compute over the slices in which they go on."""
        calls = self._call_of[self._time.demands.kinds[self._tiles.statements(commands.positions)]]
        kept = calls >= 0
        calls, begins, ends = calls[kept], commands.begins[kept], commands.ends[kept]
        first = np.clip(begins // self._width, 0, self._slices - 1).astype(np.int64)
        last = np.clip(np.ceil(ends / self._width) - 1, 0, self._slices - 1).astype(np.int64)
        lengths = np.maximum(first, last) - first + 1
        owners = np.repeat(np.arange(len(calls), dtype=np.int64), lengths)
        slices = first[owners] + np.arange(len(owners)) - (np.cumsum(lengths) - lengths)[owners]
        inside = np.minimum(ends[owners], (slices + 1) * self._width) - np.maximum(begins[owners], slices * self._width)
        inside = np.maximum(inside, 0.0)
        # what takes no time, or lies in one slice, is there whole
        sums = np.bincount(owners, weights=inside, minlength=len(calls))[owners]
        shares = np.divide(inside, sums, out=1.0 / lengths[owners], where=sums > 0)
        parts = np.rint(shares * (1 << _SHARE_BITS)).astype(np.int64)
        np.add.at(self._shares, calls[owners] * self._slices + slices, parts)
