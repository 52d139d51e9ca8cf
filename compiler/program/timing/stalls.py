"""What each engine of a chip does with its time: works, prepares, or waits, and for what (SIM-2).

Between two commands an engine waits until all that the next one waits for has ended, then for what of its start-up the
last move did not hide. What ended last says what the wait was for: data, by where it came from, or the room that it
occupied. All parts of an engine's time add up to the program's.

What engines work follows from statements and how often they run. What they wait for is summed over all commands: two
commands of a loop may wait for the same one for room and for data, for buffers of tiles alternate.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from compiler.program.engines import CORE_LEVELS
from compiler.program.loops.tiles import Tiles
from compiler.program.loops.time import Commands, ProgramTime
from compiler.program.program import Level, Opcode, Program
from compiler.program.timing.ticks import MAX_TICKS, Flags, Ints, ticks_of
from compiler.program.timing.touches import StatementTouches, Touches

# Pairs of ranges that are compared at once.
_PAIRS: Final = 1 << 21


class Spent(IntEnum):
    """What an engine does with its time.

    WORK: it computes, or moves as fast as it could alone. PORTS: a call goes on, because its core's memories give and
    take no faster. SHARING: it works more slowly than it could, because others use the same DRAM, port or link.
    STARTUP: it prepares a transfer, and nothing hides that. The next are waits, by what ended last before the command:
    DRAM, data from or to it; WEIGHTS, weights or address tables, wherever from; NEIGHBOUR, what another core or cluster
    sends; SRAM, data between SRAM and cores; COMPUTE, a call's result; MEMORY, room that what was there before had to
    leave; BARRIER. DONE: there is no more for it to do.
    """

    WORK = 0
    PORTS = 1
    SHARING = 2
    STARTUP = 3
    DRAM = 4
    WEIGHTS = 5
    NEIGHBOUR = 6
    SRAM = 7
    COMPUTE = 8
    MEMORY = 9
    BARRIER = 10
    DONE = 11

    @property
    def label(self) -> str:
        """As documents name it."""
        return "start-up" if self is Spent.STARTUP else self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommandStalls:
    """Of some commands, in ticks: `waits` before each, for `causes` (numbers of `Spent`, meaningless without a wait),
    then `startups` that nothing hides; `frees`: since when its engine does nothing else.
    """

    frees: Ints
    waits: Ints
    causes: Ints
    startups: Ints


class Stalls:
    """What each engine does with its time, as all commands of a program are shown."""

    def __init__(self, time: ProgramTime, tiles: Tiles, touches: StatementTouches) -> None:
        program = time.program
        self._time, self._program, self._tiles, self._touches = time, program, tiles, touches
        self._queues = program.commands["queue"].astype(np.int64)
        # by engine, the end of its last command
        self._ends = np.zeros(len(program.queues), dtype=np.int64)
        self._spent = np.zeros((len(program.queues), len(Spent)), dtype=np.int64)

    def add(self, commands: Commands) -> CommandStalls:
        """Take in the next commands; what each of them waits for."""
        queues = self._queues[self._tiles.statements(commands.positions)]
        frees = self._frees(queues, commands.ends)
        waits = np.maximum(0, commands.issues - frees)
        startups = commands.begins - np.maximum(frees, commands.issues)
        causes = np.full(len(queues), int(Spent.DONE), dtype=np.int64)
        waiting: Ints = np.flatnonzero((waits > 0) & (commands.lasts >= 0))
        causes[waiting] = self._causes_of(commands.positions[waiting], commands.lasts[waiting])
        np.add.at(self._spent[:, Spent.STARTUP], queues, startups)
        np.add.at(self._spent.reshape(-1), queues * len(Spent) + causes, waits)
        return CommandStalls(frees=frees, waits=waits, causes=causes, startups=startups)

    def engines(self) -> Ints:
        """Ticks by queue and `Spent`, once all commands are taken in; each row adds up to the program's."""
        time, found = self._time, self._spent.copy()
        durations = np.zeros(len(found), dtype=np.int64)
        np.add.at(durations, self._queues, time.demands.durations * time.instances)
        np.add.at(found[:, Spent.WORK], self._queues, _working(time) * time.instances)
        found[:, Spent.PORTS] = durations - found[:, Spent.WORK]
        found[:, Spent.SHARING] = time.busy - durations
        found[:, Spent.DONE] += time.ticks - self._ends
        return found

    def _frees(self, queues: Ints, ends: Ints) -> Ints:
        """Of each command the end of the one before it on its engine."""
        order = np.argsort(queues, kind="stable")
        its = queues[order]
        follows = np.append(False, its[1:] == its[:-1])[: len(order)]
        found = self._ends[queues]
        found[order[follows]] = ends[order[:-1][follows[1:]]]
        np.maximum.at(self._ends, queues, ends)
        return found

    def _causes_of(self, positions: Ints, lasts: Ints) -> Ints:
        """Why commands wait for those that ended last before them."""
        program, count = self._program, len(positions)
        both = np.concatenate([positions, lasts])
        statements = self._tiles.statements(both)
        touches = self._touches.of(statements, self._tiles.places(both))
        later = np.arange(count, dtype=np.int64)
        found = _by_command(program, statements, touches)[count:]
        needs, needs_weights, frees = _relations(touches, later, later + count)
        found[needs_weights] = Spent.WEIGHTS
        found[frees & ~needs] = Spent.MEMORY
        found[program.commands["opcode"][statements[count:]] == Opcode.BARRIER] = Spent.BARRIER
        return found


def _working(time: ProgramTime) -> Ints:
    """Of a command of each statement, what it takes alone but for what its core's ports add to a call."""
    demands = time.demands
    computing = np.array([MAX_TICKS if work is None else ticks_of(work.use.cycles) for work in demands.works])
    found: Ints = np.minimum(demands.durations, computing[demands.kinds])
    return found


def _by_command(program: Program, statements: Ints, touches: Touches) -> Ints:
    """By command what one waits for who waits for its data."""
    rows = program.commands[statements]
    count, opcodes = len(rows), rows["opcode"]
    is_dram = np.array([place.level is Level.DRAM for place in program.places], dtype=np.bool_)
    core_of = np.array([place.number if place.level in CORE_LEVELS else -1 for place in program.places])
    of_dram, of_weights = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    of_dram[touches.commands[is_dram[touches.places]]] = True
    of_weights[touches.commands[touches.of_weights]] = True
    moves = opcodes <= Opcode.EXCHANGE
    sources, targets = rows["source"], rows["target"]
    between = (opcodes == Opcode.EXCHANGE) | ((opcodes == Opcode.BROADCAST) & (core_of[sources] >= 0))
    inside = moves & (core_of[sources] >= 0) & (core_of[sources] == core_of[targets])
    kinds = (opcodes == Opcode.COMPUTE, moves & of_weights, of_dram, between, inside)
    spent = (Spent.COMPUTE, Spent.WEIGHTS, Spent.DRAM, Spent.NEIGHBOUR, Spent.COMPUTE)
    found: Ints = np.select(kinds, [int(one) for one in spent], int(Spent.SRAM))
    return found


def _relations(touches: Touches, later: Ints, earlier: Ints) -> tuple[Flags, Flags, Flags]:
    """Of pairs of commands: the later one reads what the earlier writes; reads it as weights; overwrites what the
    earlier one reads or writes.
    """
    needs, needs_weights, frees = (np.zeros(len(later), dtype=np.bool_) for _ in range(3))
    of_later, of_earlier = (np.diff(touches.offsets)[commands] for commands in (later, earlier))
    products = of_later * of_earlier
    parts = np.cumsum(products) // _PAIRS
    for part in np.unique(parts).tolist():
        rows = np.flatnonzero(parts == part)
        pairs = np.repeat(rows, products[rows])
        number = np.arange(len(pairs)) - np.repeat(np.cumsum(products[rows]) - products[rows], products[rows])
        a = touches.offsets[later[pairs]] + number // of_earlier[pairs]
        b = touches.offsets[earlier[pairs]] + number % of_earlier[pairs]
        meet = touches.places[a] == touches.places[b]
        meet &= (touches.lows[a] < touches.highs[b]) & (touches.lows[b] < touches.highs[a])
        brings = meet & ~touches.writes[a] & touches.writes[b]
        needs[pairs[brings]] = True
        needs_weights[pairs[brings & touches.of_weights[a]]] = True
        frees[pairs[meet & touches.writes[a]]] = True
    return needs, needs_weights, frees
