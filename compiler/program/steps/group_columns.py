"""What a group comes to, as columns: its first commands, those that are walked through, its statements (PROG-5).

Found once. A group that is equal to another one has its columns, with addresses in DRAM and keys of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, Protocol

import numpy as np

from compiler.program.fields import DEFAULT_LIMITS
from compiler.program.steps.action import Steps
from compiler.program.steps.cells import Cells
from compiler.program.steps.commands import SLOTS, Commands, Kinds, Lists, all_commands, spread
from compiler.program.steps.conflicts import walked
from compiler.program.steps.key_rows import KeyRows, in_dram
from compiler.program.steps.loop_rows import LoopRows, loop_rows_of, single_rows
from compiler.program.steps.statement_commands import StatementCommands
from compiler.program.steps.statements import Statement, numbers_at, share_of_looks, statements_of
from compiler.program.timing.ticks import Flags, Ints

# Groups of at most so many commands are listed one by one. Of MobileNet, ResNet-18 and FSRCNN on four chips 47 groups
# are that small: listed they take 0.99 of the unrolled cycles (worst 1.06) and 1.3 of its lowering time, looped 0.99
# (worst 1.11) and 2.1. Beyond it loops are about as fast as lists and much shorter.
LISTED_MAX: Final = 4096
# As many commands as a group may have that is listed: more are not proved.
LISTED_ALL: Final = DEFAULT_LIMITS.commands
# A group is listed, too, where loops leave it a statement for fewer than so many commands. Of ResNet-18 on manycore2x64
# eleven groups have 2.4 to 5.8 commands a statement: looped they take 1.00 to 1.40 of the cycles that they take listed,
# and twice the lowering time. Three have 6.7 to 8.8: they take 0.91 to 1.00. Those of MobileNet on edge4 have 8 to 160.
SHORTENED_MIN: Final = 6
# The simulation that finds phases ends with the first iteration after which it has had more commands than this, and so
# many iterations.
_COMMANDS_MAX: Final = 4096
_ITERATIONS_MAX: Final = 16
# Where statements are told from at most this share of a group's tiles they are sought first, and commands follow.
# Elsewhere all iterations are asked for, until there are this many commands. Commands are the same either way, and
# for ResNet-50 on edge4 0.5, 0.65 and 0.8 take the same time.
_LOOKS_MAX: Final = 0.5
_ASKED_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StatementColumns:
    """A group's statements, in whatever order: by statement its kind, its numbers at its first tile, step, engine,
    place in the step and rank on the engine, and how it loops.
    """

    kinds: Ints
    numbers: Lists
    steps: Ints
    queues: Ints
    places: Ints
    ranks: Ints
    loops: LoopRows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupColumns:
    """What a group comes to.

    `keys`: the different keys of its commands, `samples` the numbers of one command of each. `first`: its first
    commands; `walked`: those that are walked through for conflicts. `statements`: those of its loops, or `first` one by
    one (`is_listed`). `ends`: where statements that read or write the DRAM are at the ends of their runs, (base, end)
    addresses, shape (n, 2).
    """

    keys: KeyRows
    samples: Lists
    first: Commands
    walked: Commands
    statements: StatementColumns
    is_listed: bool
    ends: Ints
    iterations: int
    once: Flags

    @property
    def may_loop(self) -> bool:
        """True if it is listed, and might loop."""
        return self.is_listed and self.iterations > 1

    def moved(self, moves: Moves) -> GroupColumns | None:
        """The columns of an equal group; None if a statement goes from tensor to tensor, which may move apart."""
        if (moves.regions(self.ends[:, 0]) != moves.regions(self.ends[:, 1])).any():
            return None
        lists = {
            "samples": (np.arange(len(self.keys)), self.samples),
            "first": (self.first.kinds, self.first.numbers),
            "walked": (self.walked.kinds, self.walked.numbers),
            "statements": (self.statements.kinds, self.statements.numbers),
        }
        if self.is_listed:
            del lists["walked"], lists["statements"]
        places = {name: _dram_numbers(*its, self.keys.in_dram) for name, its in lists.items()}
        # regions are made in the order in which the original made them
        moves.make(np.concatenate([numbers.rows[places[name]] for name, (_, numbers) in lists.items()]))
        keys = moves.keys(self.keys)
        moved = {name: _moved(numbers, places[name], moves) for name, (_, numbers) in lists.items()}
        first = replace(self.first, numbers=moved["first"])
        return replace(
            self,
            keys=keys,
            samples=moved["samples"],
            first=first,
            walked=first if self.is_listed else replace(self.walked, numbers=moved["walked"]),
            statements=replace(self.statements, numbers=moved.get("statements", moved["first"])),
        )


def _moved(numbers: Lists, places: Ints, moves: Moves) -> Lists:
    """The numbers with addresses moved that are at these places."""
    rows = numbers.rows.copy()
    rows[places] = moves.addresses(rows[places])
    return replace(numbers, rows=rows)


class Moves(Protocol):
    """How a group that is equal to another one differs from it: its keys, and where in DRAM it has its tensors."""

    def keys(self, keys: KeyRows) -> KeyRows:
        """This group's keys for the other's."""

    def regions(self, addresses: Ints) -> Ints:
        """The numbers of the other program's regions in which addresses lie."""

    def make(self, addresses: Ints) -> None:
        """Make the regions of this group in which it has what the other has at these addresses."""

    def addresses(self, addresses: Ints) -> Ints:
        """Where this group has what the other has at these addresses."""


def columns_of(steps: Steps, listed_max: int) -> GroupColumns:
    """The columns of a group that is listed if it has at most so many commands, or if loops hardly shorten it.

    With 0 it loops if it has several iterations.
    """
    kinds, cells = Kinds(), Cells(steps)
    every: Commands | None = None
    found: Sequence[Statement] | None
    if steps.iterations <= _ITERATIONS_MAX:
        every = all_commands(steps, kinds, inf)
    elif share_of_looks(steps) > _LOOKS_MAX:
        every = all_commands(steps, kinds, _ASKED_MAX)
    else:
        # regions of the DRAM, and tables, are numbered as the first iterations name them
        for iteration in range(-1, _ITERATIONS_MAX // 2 + 1):
            for step in steps.doing(iteration):
                steps.at(step, iteration)
    # what has one iteration has as many statements as commands
    if every is not None and (len(every) <= listed_max or steps.iterations == 1):
        return _columns(steps, kinds, every, every, None)
    if every is not None and listed_max and len(every) < LISTED_ALL:
        # all commands are known: statements are sought up to where the group is listed
        found = _up_to(cells, len(every) // SHORTENED_MIN, _least_behind(every, len(steps.once)))
        if found is None:
            return _columns(steps, kinds, every, every, None)
    else:
        found = list(statements_of(cells))
    commands, count, kinds = StatementCommands(steps, found), sum(its.tiles for its in found), Kinds()
    if listed_max and count < max(listed_max + 1, min(SHORTENED_MIN * len(found), LISTED_ALL)):
        every = commands.at(np.arange(-1, steps.iterations), kinds)
        return _columns(steps, kinds, every, every, None)
    first = commands.first(max(_COMMANDS_MAX, listed_max), _ITERATIONS_MAX, steps.iterations, kinds)
    return _columns(steps, kinds, first, commands.at(walked(cells), kinds), found)


def _up_to(cells: Cells, most: int, behind: Sequence[int]) -> list[Statement] | None:
    """All statements; None if there are more than `most`. `behind`: by step how many those behind it have at least."""
    found: list[Statement] = []
    for its in statements_of(cells):
        found.append(its)
        if len(found) + behind[its.step] > most:
            return None
    return found


def _least_behind(commands: Commands, step_count: int) -> list[int]:
    """By step how many statements the steps behind it have at least: one for each kind and number of their commands."""
    different = np.unique(commands.steps * SLOTS + commands.slots)
    counts = np.bincount(different // SLOTS, minlength=step_count)
    found: list[int] = (counts.sum() - np.cumsum(counts)).tolist()
    return found


def _columns(
    steps: Steps, kinds: Kinds, first: Commands, its_walked: Commands, found: Sequence[Statement] | None
) -> GroupColumns:
    if found is None:
        statements = StatementColumns(
            kinds=first.kinds,
            numbers=first.numbers,
            steps=first.steps,
            queues=first.queues,
            places=first.ranks,
            ranks=first.ranks,
            loops=single_rows(len(first)),
        )
    else:
        sides = np.array([(its.step, its.queue, its.place, its.rank) for its in found], dtype=np.int64).reshape(-1, 4)
        of_steps, queues, places, ranks = (np.ascontiguousarray(column) for column in sides.T)
        statements = StatementColumns(
            kinds=kinds.of((its.key, its.base) for its in found),
            numbers=Lists.of([its.base for its in found]),
            steps=of_steps,
            queues=queues,
            places=places,
            ranks=ranks,
            loops=loop_rows_of(found),
        )
    return GroupColumns(
        keys=KeyRows.of(kinds.keys),
        samples=Lists.of(kinds.first),
        first=first,
        walked=its_walked,
        statements=statements,
        is_listed=found is None,
        ends=np.array([pair for its in found or () for pair in _ends(its)], dtype=np.int64).reshape(-1, 2),
        iterations=steps.iterations,
        once=np.array(steps.once, dtype=np.bool_),
    )


# --- addresses in DRAM ------------------------------------------------------------------------------------------------


def _dram_numbers(kinds: Ints, numbers: Lists, in_dram: Lists) -> Ints:
    """Where among the numbers of commands of these kinds addresses in DRAM are."""
    its = in_dram.ordered(kinds)
    owners, _ = spread(np.diff(its.offsets))
    found: Ints = numbers.offsets[owners] + its.rows
    return found


def _ends(statement: Statement) -> list[tuple[int, int]]:
    """A statement's addresses in DRAM at its first tile and at the last one along each counter, and along all.

    Regions are ranges: where both lie in one no tile between leaves it.
    """
    addresses = in_dram(statement.key)
    lasts = [run.tiles - 1 for run in statement.runs]
    if not addresses or not any(lasts):
        return []
    corners = [[last if at == counter else 0 for at in range(len(lasts))] for counter, last in enumerate(lasts) if last]
    found = []
    for corner in (*corners, lasts):
        there = numbers_at(statement.base, statement.rule, corner)
        found += [(statement.base[number], there[number]) for number in addresses]
    return found
