"""The listing of a program (PROG-3, UI-1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from compiler.errors import RequestError
from compiler.profile.load import builtin_profile
from compiler.program.encoding.records import with_identifier
from compiler.program.listing import ListingOptions, listing
from compiler.program.loops.loops import Loops
from compiler.program.program import (
    BINDING,
    CALL,
    COMMAND,
    ENTRY,
    Level,
    Opcode,
    OperandType,
    ParameterTable,
    Place,
    Program,
    Queue,
    Region,
    Resident,
    Role,
    Step,
    Unit,
)
from tests.compiler.program.loops.expander import expanded
from tests.compiler.program.loops.mutants import with_number
from tests.compiler.program.loops.samples import sample
from tests.compiler.program.tiled import tiled_program

NONE = (0, 0, 0, 0)
ONCE = (1, 1, 1, 1)
REST = (0, 0, 0, 0, 0, 0)


def small_program() -> Program:
    """A matrix product in two partial sums with a resident weight, a broadcast, a barrier and a strided store."""
    data = OperandType(dtype="float32", stored_dtype="float32", axes=("M", "K"), constant=False)
    weight = OperandType(dtype="float32", stored_dtype="int8", axes=("K", "N"), constant=True)
    unit = Unit(
        identifier="",
        kind="MatMul",
        attributes=(("alpha", 1.0),),
        opset=13,
        operands=(data, weight, None),
        output=replace(data, axes=("M", "N")),
        extents=(4, 8),
        accumulator_dtype="float32",
    )
    entries = np.zeros(2, dtype=ENTRY)
    for number, (start, stop) in enumerate(((0, 16), (16, 32))):
        entries[number] = ((0, 0, *REST), (4, 8, *REST), start, stop, number == 0, number == 1)
    load = (Opcode.LOAD, 0, 0, 0, 1, 1, 0x100, 0, 128, (1, 1, 1, 4), (0, 0, 0, 256), (0, 0, 0, 128), -1)
    commands = [
        load,
        (Opcode.BROADCAST, 0, 0, 1, 1, 2, 0, 0x400, 512, ONCE, NONE, NONE, -1),
        (Opcode.COMPUTE, 1, 0, -1, -1, 0, 0, 0, 0, NONE, NONE, NONE, 0),
        (Opcode.COMPUTE, 1, 0, -1, -1, 0, 0, 0, 0, NONE, NONE, NONE, 1),
        (Opcode.BARRIER, 1, 1, -1, -1, 0, 0, 0, 0, NONE, NONE, NONE, -1),
        (Opcode.STORE, 0, 1, 1, 0, 1, 0x800, 0x2000, 128, ONCE, NONE, NONE, -1),
    ]
    bindings = []
    for number in range(2):
        bindings += [
            (0, 1, 64 * number, (0, 16 * number, *REST), (4, 16, *REST), (128, 4, *REST)),
            (1, 2, 128 * number, (16 * number, 0, *REST), (16, 8, *REST), (8, 1, *REST)),
            (-1, 1, 0x800, (0, 0, *REST), (4, 8, *REST), (32, 4, *REST)),
        ]
    return Program(
        name="segment\n1",
        places=(
            Place(level=Level.DRAM, number=0, capacity_bytes=1 << 20),
            Place(level=Level.NRAM, number=0, capacity_bytes=4096),
            Place(level=Level.NRAM, number=1, capacity_bytes=4096),
        ),
        queues=(Queue(engine="iodma", number=0), Queue(engine="core", number=0)),
        steps=(
            Step(group="g1", nodes=("fc\x1b[31m", "bias"), tensor="y"),
            Step(group="g2", nodes=(), tensor="z"),
        ),
        commands=np.array(commands, dtype=COMMAND),
        wait_offsets=np.array([0, 0, 1, 2, 2, 3, 5], dtype=np.int32),
        waits=np.array([0, 1, 2, 2, 3], dtype=np.int32),
        loops=Loops.one_iteration(len(commands), 5),
        calls=np.array([(0, 0, 0, 3), (0, 1, 3, 3)], dtype=CALL),
        bindings=np.array(bindings, dtype=BINDING),
        units=(with_identifier(unit),),
        tables=(ParameterTable(unit=0, operand_shapes=((4, 32), (32, 8)), shape=(4, 8), entries=entries),),
        regions=(
            _region("x", Role.INPUT, 0x100, (4, 32), "float32", (128, 4), 512),
            _region("w", Role.WEIGHT, 0x1000, (32, 8), "int8", (8, 1), 256),
            _region("y", Role.OUTPUT, 0x2000, (4, 8), "float32", (32, 4), 128),
        ),
        residents=(Resident(place=2, address=0, region=1, starts=(0, 0), lengths=(32, 8), strides=(8, 1)),),
    )


def _region(
    name: str, role: Role, address: int, shape: tuple[int, ...], dtype: str, strides: tuple[int, ...], size_bytes: int
) -> Region:
    return Region(
        name=name,
        role=role,
        address=address,
        shape=shape,
        dtype=dtype,
        order=(0, 1),
        strides=strides,
        size_bytes=size_bytes,
    )


def text(program: Program, **options: object) -> str:
    """The whole listing."""
    return "".join(f"{line}\n" for line in listing(program, options=ListingOptions(**options)))  # type: ignore[arg-type]


def numbers(program: Program, **options: object) -> list[int]:
    """The numbers of the statements that are listed."""
    lines = text(program, **options).partition("\nstatements: ")[2].splitlines()
    words = [line.split() for line in lines[1:]]
    return [int(word[0]) for word in words if word and word[0].isdigit()]


def test_a_listing_shows_memories_units_tables_and_every_statement(golden: Callable[[str], None]) -> None:
    lines = listing(small_program(), profile=builtin_profile("edge4"), peaks={0: 9000, 1: 2176})
    golden("".join(f"{line}\n" for line in lines))


def test_a_summary_shows_commands_by_opcode_and_bytes_by_route(golden: Callable[[str], None]) -> None:
    golden(text(small_program(), summary=True))


def test_a_listing_shows_loops(golden: Callable[[str], None]) -> None:
    """PROG-5: statements, runs, fields as base and terms, waits as statement less distance."""
    golden("".join(f"{line}\n" for line in listing(sample())))


def test_a_listing_shows_steps_of_runs_and_turns_of_rings() -> None:
    program = sample()
    for name, row, field, value in (
        ("runs", 0, "step", 2),
        ("runs", 0, "count", 3),
        ("runs", 1, "first", 1),
        ("runs", 1, "count", 1),
        ("rings", 0, "base", 3),
        ("rings", 0, "coefficients.0", -2),
    ):
        program = with_number(program, name, row, field, value)
    found = text(program)
    assert (
        "for i = 0, 2..4; j = 1 of s0, stage 1; source +64 per i, +16 per j; target +32 x ((3 + -2 i + j) mod 2)"
        in found
    )
    program = with_number(program, "runs", 0, "count", 2)
    assert "for i = 0, 2; j = 1 of s0" in text(program)


def test_the_summary_of_loops_counts_all_tiles() -> None:
    program = sample()
    _, _, mine = text(program, summary=True).partition("commands by opcode")
    _, _, whole = text(expanded(program), summary=True).partition("commands by opcode")
    assert mine == whole


def test_groups_are_listed_alone() -> None:
    program = small_program()
    assert numbers(program) == [0, 1, 2, 3, 4, 5]
    assert numbers(program, groups=("g1",)) == [0, 1, 2, 3]
    assert numbers(program, groups=("g2",)) == [4, 5]
    with pytest.raises(RequestError, match="no group g3"):
        listing(program, options=ListingOptions(groups=("g3",)))


def test_head_and_tail_leave_out_what_is_between() -> None:
    program = small_program()
    assert numbers(program, head=2) == [0, 1]
    assert numbers(program, tail=1) == [5]
    assert numbers(program, head=1, tail=2) == [0, 4, 5]
    assert numbers(program, head=1, tail=1, groups=("g1",)) == [0, 3]
    assert numbers(program, head=4, tail=4) == [0, 1, 2, 3, 4, 5]
    assert text(program, head=1, tail=1).count("  ...\n") == 1
    assert "  ...\n" not in text(program, head=4, tail=4)


def test_every_line_of_a_listing_is_printable() -> None:
    """API-7: names come from the model."""
    lines = list(listing(small_program()))
    assert all(line.isprintable() for line in lines)
    assert any("fc\\x1b[31m, bias" in line for line in lines)


def test_the_bytes_by_route_are_those_of_all_transfers() -> None:
    program = tiled_program(cores=2, layers=2, rows=3, columns=3)
    commands = program.commands
    loads = commands[commands["opcode"] == Opcode.LOAD]
    moved = int((loads["run_bytes"] * loads["counts"].prod(axis=1)).sum())
    assert f"  dram -> nram: {len(loads)} transfers, {moved} B read, {moved} B written" in text(program, summary=True)


def test_lines_are_made_when_they_are_asked_for() -> None:
    program = tiled_program(cores=2, layers=2, rows=3, columns=3)
    lines = listing(replace(program, tables=()))
    assert next(lines).startswith("program tiled")
    with pytest.raises(IndexError):
        list(lines)


def test_a_program_without_commands_has_a_listing() -> None:
    program = small_program()
    none = program.once(program.commands[:0], program.wait_offsets[:1], program.waits[:0])
    empty = replace(none, calls=program.calls[:0], bindings=program.bindings[:0])
    assert numbers(empty) == []
    assert "commands by opcode: 0" in text(empty, summary=True)
