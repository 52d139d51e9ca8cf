"""What each engine of a chip does with its time: works, prepares, or waits, and for what (SIM-2).

Between two commands an engine waits until all that the next one waits for has ended, then for what of its start-up the
last move did not hide. What ended last says what the wait was for: data, by where it came from, or the room that it
occupied. All parts of an engine's time add up to the program's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from compiler.program.engines import CORE_LEVELS
from compiler.program.program import Level, Opcode, Program
from compiler.program.timing.ticks import MAX_TICKS, Flags, Ints, ticks_of
from compiler.program.timing.timeline import Timeline
from compiler.program.timing.touches import Touches, touches_of

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
class Stalls:
    """Where the time goes, in ticks.

    engines: by queue and `Spent`, each row adding up to the program's ticks. By command: `waits` before it, for
    `causes` (numbers of `Spent`, meaningless without a wait), then `startups` that nothing hides.
    """

    engines: Ints
    waits: Ints
    causes: Ints
    startups: Ints


def stalls_of(timeline: Timeline) -> Stalls:
    """What each engine of a timeline does with its time."""
    program = timeline.program
    queues = program.commands["queue"].astype(np.int64)
    free, ends = _free_from(timeline, queues, len(program.queues))
    waits = np.maximum(0, timeline.issues - free)
    startups = timeline.begins - np.maximum(free, timeline.issues)
    causes = np.full(len(queues), int(Spent.DONE), dtype=np.int64)
    waiting: Ints = np.flatnonzero((waits > 0) & (timeline.last >= 0))
    causes[waiting] = _causes(program, waiting, timeline.last[waiting])
    engines = np.zeros((len(program.queues), len(Spent)), dtype=np.int64)
    for spent, amounts in {**_busy(timeline), Spent.STARTUP: startups}.items():
        np.add.at(engines[:, spent], queues, amounts)
    np.add.at(engines.reshape(-1), queues * len(Spent) + causes, waits)
    engines[:, Spent.DONE] += timeline.ticks - ends
    return Stalls(engines=engines, waits=waits, causes=causes, startups=startups)


def _free_from(timeline: Timeline, queues: Ints, count: int) -> tuple[Ints, Ints]:
    """Of each command, since when its engine does nothing else; of each engine, when its last command ends."""
    order = np.argsort(queues, kind="stable")
    follows = np.append(False, queues[order][1:] == queues[order][:-1])[: len(order)]
    free, ends = np.zeros(len(queues), dtype=np.int64), np.zeros(count, dtype=np.int64)
    free[order[follows]] = timeline.ends[order[:-1][follows[1:]]]
    np.maximum.at(ends, queues, timeline.ends)
    return free, ends


def _busy(timeline: Timeline) -> dict[Spent, Ints]:
    """Of each command what it takes alone, what its core's ports add to a call, and what sharing adds."""
    demands = timeline.demands
    taken = timeline.ends - timeline.begins
    computing = np.array([MAX_TICKS if work is None else ticks_of(work.use.cycles) for work in demands.works])
    working = np.minimum(demands.durations, computing[demands.kinds])
    return {
        Spent.WORK: working,
        Spent.PORTS: demands.durations - working,
        Spent.SHARING: taken - demands.durations,
    }


def _causes(program: Program, waiting: Ints, last: Ints) -> Ints:
    """Why commands wait for those that ended last before them."""
    touches = touches_of(program)
    found = _by_command(program, touches)[last]
    needs, needs_weights, frees = _relations(touches, waiting, last)
    found[needs_weights] = Spent.WEIGHTS
    found[frees & ~needs] = Spent.MEMORY
    found[program.commands["opcode"][last] == Opcode.BARRIER] = Spent.BARRIER
    return found


def _by_command(program: Program, touches: Touches) -> Ints:
    """By command what one waits for who waits for its data."""
    count, opcodes = len(program.commands), program.commands["opcode"]
    is_dram = np.array([place.level is Level.DRAM for place in program.places], dtype=np.bool_)
    core_of = np.array([place.number if place.level in CORE_LEVELS else -1 for place in program.places])
    of_dram, of_weights = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    of_dram[touches.commands[is_dram[touches.places]]] = True
    of_weights[touches.commands[touches.of_weights]] = True
    moves = opcodes <= Opcode.EXCHANGE
    sources, targets = program.commands["source"], program.commands["target"]
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
