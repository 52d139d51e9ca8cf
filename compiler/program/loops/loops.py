"""How commands loop: for which tiles each of them holds, and how its numbers change from tile to tile (PROG-5).

Grammar, on one page:

    program    = nests, one after another on each engine
    nest       = spaces; iterations
    space      = counters, outermost first; the tile at counters c is that of iteration base + sum(c x stride)
    statement  = a command: its row in `commands` (with its call, entry and bindings) is what it is at its first tile,
                 where all counters are `first`, rings left out; space, stage, and per counter of the space a run: the
                 values first, first + step, ... for which it holds
    field      = a number of a command that may change: base + sum(place in run x coefficient) + offset of its ring
    ring       = size x ((base + sum(counter x coefficient)) mod modulus)
    wait       = a statement and a distance in iterations

Each engine goes through the nests, in a nest through the iterations, in an iteration through the statements that hold
there, in the order of their numbers. A statement of stage s runs in iteration i for the tile of iteration i + s of its
space. A space without counters has one tile: what is done once in its nest.

A command that waits for statement w with distance d waits until w's engine has gone past w's number in the iteration d
before its own; it makes no difference whether w holds there. If w's space has no counters that iteration is w's own; if
w is of a nest before, it is d before the last in which w holds. So a command never waits for what comes after it, and
iteration by iteration, in the order of numbers, is an order in which all may run.

A program without loops is one nest of one iteration: `Loops.one_iteration`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.ir.graph import MAX_AXES

# Counters of one space: axes of tiles, and of pieces inside a tile.
MAX_COUNTERS: Final = 8
# Their names, outermost first, as listings and traces give them.
COUNTER_NAMES: Final = "ijklmnop"
# Fields of a command: its addresses, the position of its entry's box along each axis, where its part of a sum begins
# (and so ends), then of each of its bindings the address and the position of the box along each axis.
SOURCE_ADDRESS: Final = 0
TARGET_ADDRESS: Final = 1
ENTRY_START: Final = 2
ENTRY_SUM: Final = ENTRY_START + MAX_AXES
BINDING_ADDRESS: Final = ENTRY_SUM + 1
BINDING_START: Final = BINDING_ADDRESS + 1
# From a field of one binding to that of the next.
BINDING_FIELDS: Final = 1 + MAX_AXES

SPACE: Final = np.dtype(
    [
        ("nest", "<i4"),
        ("counters", "<i4"),
        ("base", "<i8"),
        ("extents", "<i8", (MAX_COUNTERS,)),
        ("strides", "<i8", (MAX_COUNTERS,)),
    ]
)
STATEMENT: Final = np.dtype([("space", "<i4"), ("stage", "<i8")])
RUN: Final = np.dtype([("first", "<i8"), ("step", "<i8"), ("count", "<i8")])
TERM: Final = np.dtype([("field", "<i4"), ("counter", "<i4"), ("coefficient", "<i8")])
RING: Final = np.dtype(
    [
        ("field", "<i4"),
        ("modulus", "<i4"),
        ("size", "<i8"),
        ("base", "<i8"),
        ("coefficients", "<i8", (MAX_COUNTERS,)),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loops:
    """How the commands of a program loop.

    `spaces` are rows of SPACE, ascending by nest; beyond their counters extents are 1 and strides 0. `statements`: a
    row of STATEMENT per command; commands of one nest are neighbours, nests ascend. Of command i,
    `runs[run_offsets[i]:run_offsets[i + 1]]` are its runs, one per counter of its space; `terms` and `rings` likewise
    what changes its fields. `distances`: per wait, iterations.
    """

    spaces: NDArray[Any]
    statements: NDArray[Any]
    run_offsets: NDArray[Any]
    runs: NDArray[Any]
    term_offsets: NDArray[Any]
    terms: NDArray[Any]
    ring_offsets: NDArray[Any]
    rings: NDArray[Any]
    distances: NDArray[Any]

    @staticmethod
    def one_iteration(commands: int, waits: int) -> Loops:
        """The loops of a program without loops: so many commands in one nest of one iteration, each done once."""
        spaces = np.zeros(1, dtype=SPACE)
        spaces["extents"] = 1
        none = np.zeros(commands + 1, dtype=np.int32)
        return Loops(
            spaces=spaces,
            statements=np.zeros(commands, dtype=STATEMENT),
            run_offsets=none,
            runs=np.zeros(0, dtype=RUN),
            term_offsets=none,
            terms=np.zeros(0, dtype=TERM),
            ring_offsets=none,
            rings=np.zeros(0, dtype=RING),
            distances=np.zeros(waits, dtype=np.int64),
        )

    def alone(self, which: NDArray[np.int64], distances: NDArray[Any]) -> Loops:
        """How some of the commands loop, by ascending numbers; `distances`: of their waits."""
        run_offsets, runs = _chosen(self.run_offsets, self.runs, which)
        term_offsets, terms = _chosen(self.term_offsets, self.terms, which)
        ring_offsets, rings = _chosen(self.ring_offsets, self.rings, which)
        return Loops(
            spaces=self.spaces,
            statements=self.statements[which],
            run_offsets=run_offsets,
            runs=runs,
            term_offsets=term_offsets,
            terms=terms,
            ring_offsets=ring_offsets,
            rings=rings,
            distances=distances,
        )


def _chosen(offsets: NDArray[Any], rows: NDArray[Any], which: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The lists of rows of some commands."""
    sizes = np.diff(offsets)[which]
    found = np.append(0, np.cumsum(sizes))
    places = np.arange(found[-1]) + np.repeat(offsets[which] - found[:-1], sizes)
    return found.astype(offsets.dtype), rows[places]
