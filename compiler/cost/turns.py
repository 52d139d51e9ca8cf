"""How the turns of a group's cores wait for what its ops need: inputs, weights that last, and weights that pass.

A turn is one time through the ops of a group, for a tile or a core tile. The first fills what the others find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Passing(NamedTuple):
    """Weights that come to the cores anew in every turn, in `parts` one after the other.

    Cycles of a part: `fetched` from DRAM to the SRAMs, `moved` from there to the cores, or `directly` from DRAM or from
    other units. slots: how many parts have room in a core at once; ops whose weights pass take each other's place
    there, and in the SRAMs unless all of a turn's have room at once (`ahead`).
    """

    parts: int
    fetched: float
    moved: float
    slots: int
    directly: bool
    ahead: bool


class Needs(NamedTuple):
    """What an op needs before it works, and for how many cycles it does so in a turn.

    inputs, weights: bytes from DRAM that the first turn waits for; loading: cycles that the engine which brings them
    takes by itself; handed: cycles in which units hand them on.
    filling: cycles of its work that may pass while it waits.
    """

    inputs: int
    weights: int
    loading: float
    handed: float
    passing: Passing | None
    filling: float
    work: float


@dataclass(slots=True)
class _Clock:
    """Cycles from the beginning, as far as the ops have been gone through.

    brought: the last bytes from DRAM are there. loaded: the engine that brings them has gone through all so far.
    handed: units have handed on the last of them. done: the last op has ended. free, staged: weights that pass have a
    place in the cores, and in the SRAMs. `inputs`, `weights`: bytes that DRAM was asked for so far.
    """

    brought: float = 0.0
    loaded: float = 0.0
    handed: float = 0.0
    done: float = 0.0
    free: float = 0.0
    staged: float = 0.0
    inputs: int = 0
    weights: int = 0


def turns_cycles(
    ops: Sequence[Needs], turns: int, rate: float, loading_share: float | None, startup: float = 0.0
) -> float:
    """Cycles of all turns: the first one, and each other one as long as the second (SCHED-3).

    `rate`: of the DRAM, in bytes per cycle; `loading_share`: the part of it that inputs get while other engines load
    weights, None where one engine loads both, op by op. `startup`: of the first transfer; the price adds it elsewhere.
    """
    inputs, weights = sum(op.inputs for op in ops), sum(op.weights for op in ops)
    clock = _Clock(loaded=-startup)
    for op in ops:
        clock.inputs, clock.weights = clock.inputs + op.inputs, clock.weights + op.weights
        clock.handed += op.handed
        clock.loaded += op.loading
        if loading_share is None:
            clock.brought += (op.inputs + op.weights) / rate
            arrived = clock.brought
        else:
            arrived = min(clock.inputs / (rate * loading_share), (clock.inputs + weights) / rate)
            alone = min(clock.weights / (rate * (1 - loading_share)), (clock.weights + inputs) / rate)
            clock.brought = max(clock.brought, alone)
        _work(op, clock, max(arrived, clock.brought, clock.loaded, clock.handed))
    first = clock.done
    if turns > 1:
        for op in ops:
            _work(op, clock, 0.0)
    return first + (turns - 1) * (clock.done - first)


def _work(op: Needs, clock: _Clock, arrived: float) -> None:
    """Go through one op of a turn, whose inputs and lasting weights are there at `arrived`."""
    ready = max(clock.done + op.filling, arrived)
    if op.passing is None:
        clock.done = ready + op.work
        return
    parts, fetched, moved, slots, directly, ahead = op.passing
    one = op.work / parts
    period = max(moved, one) if slots > 1 else moved + one
    if not ahead:
        period, clock.brought = max(period, fetched), max(clock.brought, clock.staged)
    last = max(ready, max(clock.free, clock.brought + fetched) + moved) + (parts - 1) * period
    if ahead:
        clock.brought += parts * fetched
        last = max(last, clock.brought + moved)
    else:
        clock.brought = clock.staged = last if directly else last - moved
    clock.done, clock.free = last + one, last if slots > 1 else last + one
