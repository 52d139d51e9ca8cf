"""Looped programs of random groups, as the spike makes them, and several of them one after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.program.loops.loops import LoopedProgram
from compiler.program.lower import handed_out
from tests.compiler.program.lowered import Network
from tests.spike.actions import FlatActions, UnsupportedError
from tests.spike.looped_program import looped_program_of
from tests.spike.measure import random_group
from tests.spike.order import looped


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopedGroup:
    """A group's network, and its looped program."""

    network: Network
    program: LoopedProgram


def looped_groups(count: int, first: int = 0) -> Iterator[LoopedGroup]:
    """So many random groups that fit and that the spike can lower."""
    seed = first
    while count:
        made = random_group(seed)
        seed += 1
        if made is None:
            continue
        network, group = made
        try:
            actions = FlatActions(network.facts, group, handed_out(network.facts, group.geometry.indices))
        except UnsupportedError:
            continue
        yield LoopedGroup(network=network, program=looped_program_of(looped(actions)))
        count -= 1


def group_programs(count: int, first: int = 0) -> Iterator[LoopedProgram]:
    """The looped programs of so many random groups."""
    return (group.program for group in looped_groups(count, first))
