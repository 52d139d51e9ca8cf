"""PROG-4: whatever is changed in a program, it is refused or harmless; random valid programs are accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from compiler.program.errors import ProgramError
from compiler.program.fields import ProgramLimits
from compiler.program.loops.proof import prove
from compiler.program.program import Program
from compiler.simulator.values import Chip
from tests.compiler.program.builder import changed, happens_before, random_order
from tests.compiler.program.random_programs import expected, random_program

LIMITS = ProgramLimits(dram_bytes=1 << 24, chip_bytes=1 << 24, touched_bytes=1 << 24)
TABLES = ("commands", "commands", "commands", "calls", "bindings", "bindings", "entries", "waits", "wait_offsets")


def values_of(program: Program, given: dict[str, Any], order: list[int] | None = None) -> dict[str, Any]:
    """All tensors that a program makes."""
    chip = Chip(program, LIMITS)
    for name, array in given.items():
        chip.write(name, array)
    chip.run(order=order)
    return {name: chip.read(name) for name in ("y", "spill")}


def mutate(program: Program, random: np.random.Generator) -> Program:
    """The program with one number changed, by little or beyond reason."""
    table = str(random.choice(TABLES))
    number = int(random.integers(len(program.tables)))
    rows = program.tables[number].entries if table == "entries" else getattr(program, table)
    row = int(random.integers(len(rows)))
    name, index = "", None
    cell = rows[row]
    if rows.dtype.names:
        name = str(random.choice(rows.dtype.names))
        cell = cell[name]
        if cell.shape:
            # mostly axes that are used
            index = int(random.integers(cell.shape[0] if random.random() < 0.3 else 2))
            index = cell.shape[0] - 1 - index if table == "commands" else index
            cell = cell[index]
    info = np.iinfo(cell.dtype)
    near = [int(cell) + delta for delta in (-64, -4, -1, 1, 2, 4, 20, 64, 256)]
    value = int(random.choice([*near, *near, 0, 1, -1, int(info.max), int(info.min), 1 << 30, int(cell) * 2]))
    value = min(max(value, int(info.min)), int(info.max))
    if table != "entries":
        return changed(program, **{table: (row, name if index is None else f"{name}.{index}", value)})
    entries = rows.copy()
    if index is None:
        entries[name][row] = value
    else:
        entries[name][row, index] = value
    tables = list(program.tables)
    tables[number] = replace(tables[number], entries=entries)
    return replace(program, tables=tuple(tables))


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_are_accepted_and_give_the_same_values_in_any_order(seed: int) -> None:
    program, given = random_program(seed)
    prove(program)
    found = values_of(program, given)
    np.testing.assert_allclose(found["y"], expected(given), rtol=1e-4, atol=1e-5)
    for number in range(3):
        order = random_order(program, np.random.default_rng([seed, number]))
        again = values_of(program, given, order)
        assert all(np.array_equal(found[name], again[name]) for name in found)


def check_mutants(seeds: range) -> tuple[int, int]:
    """Each mutant is refused or harmless; how many are refused, and how many of the others run."""
    refused = ran = 0
    programs = [random_program(seed) for seed in range(16)]
    for seed in seeds:
        random = np.random.default_rng([7, seed])
        program, given = programs[seed % 16]
        mutant = mutate(program, random)
        try:
            prove(mutant, LIMITS)
        except ProgramError:
            refused += 1
            # the simulator alone, which does not ask about order, stays inside its memories too
            try:
                values_of(mutant, given)
            except ProgramError:
                continue
            continue
        try:
            found = values_of(mutant, given)
        except ProgramError:
            continue
        ran += 1
        again = values_of(mutant, given, random_order(mutant, random))
        for name in found:
            np.testing.assert_array_equal(found[name], again[name], err_msg=f"seed {seed}")
    return refused, ran


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("start", range(0, 1000, 100))
def test_a_changed_program_is_refused_or_harmless(start: int) -> None:
    refused, ran = check_mutants(range(start, start + 100))
    assert refused > 50
    assert ran > 1


@pytest.mark.matrix(first=2, rest=2)
@pytest.mark.parametrize("seed", range(4))
def test_a_wait_can_be_left_out_exactly_if_other_waits_imply_it(seed: int) -> None:
    """The proof's clocks and marks agree with closure over waits and with the bytes of each command."""
    program, _ = random_program(seed)
    conflicts = conflicts_of(program)
    refused = 0
    for wait in range(len(program.waits)):
        waiting = int(np.searchsorted(program.wait_offsets, wait, side="right")) - 1
        offsets = program.wait_offsets.copy()
        offsets[waiting + 1 :] -= 1
        without = program.once(program.commands, offsets, np.delete(program.waits, wait))
        before = happens_before(without)
        is_ordered = all(first in before[second] for first, second in conflicts)
        if is_ordered:
            prove(without)
            continue
        refused += 1
        with pytest.raises(ProgramError) as found:
            prove(without)
        assert found.value.violation == "dependency"
    assert refused


def conflicts_of(program: Program) -> list[tuple[int, int]]:
    """Pairs of commands of which one waits for the other, here by construction all that touch common bytes."""
    return [
        (int(other), number)
        for number in range(len(program.commands))
        for other in program.waits[program.wait_offsets[number] : program.wait_offsets[number + 1]]
    ]
