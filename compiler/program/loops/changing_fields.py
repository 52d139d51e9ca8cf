"""The fields of statements that change from tile to tile, and the tiles at which they are least and greatest.

A field is a base, plus slope times place summed over counters, plus what its ring adds there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.machine_code import compiled
from compiler.program.loops.form import owners_of, slots_of
from compiler.program.program import Program
from compiler.program.strided import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fields:
    """One row per statement and field that changes: by how much per place of each run, and its ring (modulus 1: none).

    `turns` and `turn_slopes` are in places.
    """

    keys: Ints
    statements: Ints
    fields: Ints
    slopes: Ints
    moduli: Ints
    sizes: Ints
    turns: Ints
    turn_slopes: Ints

    def rows(self, statements: Ints, fields: Ints) -> Ints:
        """The rows of fields of statements, -1 where a field does not change."""
        if not len(self.keys):
            return np.full(len(statements), -1)
        wanted = statements << 32 | fields
        found = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[found] == wanted, found, -1)

    def offsets(self, rows: Ints, places: Ints) -> Ints:
        """What the rings of some rows add at places, one per row; nothing for row -1."""
        if not len(self.keys):
            return np.zeros(len(rows), dtype=np.int64)
        turns = self.turns[rows] + (self.turn_slopes[rows] * places).sum(axis=1)
        return np.where(rows >= 0, self.sizes[rows] * (turns % self.moduli[rows]), 0)

    def slopes_of(self, statements: Ints, fields: Ints) -> Ints:
        """By how much fields of statements move per place; (rows, counters), 0 for fields that do not change."""
        rows = self.rows(statements, fields)
        found: Ints = np.where(rows[:, None] >= 0, self.slopes[rows], 0)
        return found


def fields_of(program: Program, width: int) -> Fields:
    """The fields that change, over so many counters."""
    loops = program.loops
    owners, of_rings = owners_of(loops.term_offsets), owners_of(loops.ring_offsets)
    terms, rings = loops.terms, loops.rings
    by_term = owners << 32 | terms["field"].astype(np.int64)
    by_ring = of_rings << 32 | rings["field"].astype(np.int64)
    keys, rows = np.unique(np.concatenate([by_term, by_ring]), return_inverse=True)
    slopes, turn_slopes = (np.zeros((len(keys), width), dtype=np.int64) for _ in range(2))
    np.add.at(slopes, (rows[: len(terms)], terms["counter"]), terms["coefficient"])
    moduli = np.ones(len(keys), dtype=np.int64)
    sizes, turns = (np.zeros(len(keys), dtype=np.int64) for _ in range(2))
    its = rows[len(terms) :]
    moduli[its], sizes[its], turns[its] = rings["modulus"], rings["size"], rings["base"]
    run_owners, run_slots = owners_of(loops.run_offsets), slots_of(loops.run_offsets)
    all_firsts = np.zeros((len(loops.statements), width), dtype=np.int64)
    all_steps = np.ones_like(all_firsts)
    all_firsts[run_owners, run_slots], all_steps[run_owners, run_slots] = loops.runs["first"], loops.runs["step"]
    firsts, steps = all_firsts[of_rings], all_steps[of_rings]
    coefficients = rings["coefficients"][:, :width]
    turns[its] += (coefficients * firsts).sum(axis=1)
    # less than the modulus, so that sums over places stay small
    turns %= moduli
    turn_slopes[its] = (coefficients * steps) % rings["modulus"][:, None]
    return Fields(
        keys=keys,
        statements=keys >> 32,
        fields=keys & 0xFFFFFFFF,
        slopes=slopes,
        moduli=moduli,
        sizes=sizes,
        turns=turns,
        turn_slopes=turn_slopes,
    )


@compiled("int64[:, ::1](int64[:, ::1], int64[::1], int64[::1], int64[::1], int64[:, ::1], int64[:, ::1])")
def extreme_tiles(slopes: Any, moduli: Any, sizes: Any, turns: Any, turn_slopes: Any, counts: Any) -> Any:
    """The places at which Σ slope·p + size·((turn + Σ turn slope·p) mod modulus) is least and greatest, two by two.

    Places whose difference is a multiple of the ring's period have equal rings: of those the first or the last is an
    end. counts: how many places there are along each counter.
    """
    items, width = slopes.shape
    found = np.zeros((2 * items, width), dtype=np.int64)
    heads, looked = np.zeros(width, dtype=np.int64), np.zeros(width, dtype=np.int64)
    at = np.zeros(width, dtype=np.int64)
    for item in range(items):
        modulus = moduli[item]
        for counter in range(width):
            count = counts[item, counter]
            period, rest = modulus, turn_slopes[item, counter]
            one, other = modulus, rest
            while other:
                one, other = other, one % other
            period = modulus // one
            heads[counter] = min(period, count)
            looked[counter] = min(2 * period, count)
            if period == 1 and slopes[item, counter] == 0:
                looked[counter] = 1
            at[counter] = 0
        least = greatest = 0
        is_first, counter = True, 0
        while counter >= 0:
            value, turn = 0, turns[item]
            for its in range(width):
                place = at[its] if at[its] < heads[its] else counts[item, its] - looked[its] + at[its]
                value += slopes[item, its] * place
                turn += turn_slopes[item, its] * place
            value += sizes[item] * (turn % modulus)
            if is_first or value < least:
                least = value
                for its in range(width):
                    place = at[its] if at[its] < heads[its] else counts[item, its] - looked[its] + at[its]
                    found[2 * item, its] = place
            if is_first or value > greatest:
                greatest = value
                for its in range(width):
                    place = at[its] if at[its] < heads[its] else counts[item, its] - looked[its] + at[its]
                    found[2 * item + 1, its] = place
            is_first = False
            counter = width - 1
            while counter >= 0 and at[counter] + 1 == looked[counter]:
                at[counter] = 0
                counter -= 1
            if counter >= 0:
                at[counter] += 1
    return found
