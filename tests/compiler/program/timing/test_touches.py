"""What commands touch, beside what the proof of a program knows to the byte."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.compile import compile_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.program.accesses import Kind
from compiler.program.checked import check
from compiler.program.executable import ChipSegment
from compiler.program.loops.instances import Instances
from compiler.program.program import Level, Program, Role
from compiler.program.timing.touches import StatementTouches, Touches
from tests.compiler.program.builder import NRAM0
from tests.compiler.program.loops.expander import expanded
from tests.compiler.program.timing.test_energy import parts_of_a_product
from tests.models import Model


def program_of(profile: str) -> Program:
    """Convolutions with a sum between, pooled, so that halos, weights and joins are among its commands; no loops."""
    model = Model()
    x = model.relu(model.conv(model.input([1, 8, 24, 24], "x"), 8, 16, name="first"))
    y = model.node("Add", [model.conv(x, 16, 16, name="second"), x])
    model.output(model.node("MaxPool", [y], kernel_shape=[2, 2], strides=[2, 2]))
    options = parse_options({"verify": "none", "fusion": "rules"})
    compilation = compile_model(model.data(), builtin_profile(profile), options)
    assert compilation.executable is not None
    (segment,) = (one for one in compilation.executable.segments if isinstance(one, ChipSegment))
    return expanded(segment.program)


def touches_of(program: Program) -> Touches:
    """The ranges of all commands of a program without loops."""
    commands = np.arange(len(program.commands), dtype=np.int64)
    return StatementTouches(Instances(program)).of(commands, np.zeros((len(commands), 0), dtype=np.int64))


def rows_of(touches: Touches, command: int) -> list[tuple[int, int, int, bool]]:
    """Place, first byte, one past the last, and whether written, of each range of a command."""
    part = slice(int(touches.offsets[command]), int(touches.offsets[command + 1]))
    assert (touches.commands[part] == command).all()
    columns = (touches.places[part], touches.lows[part], touches.highs[part], touches.writes[part])
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("profile", ["edge4", "cluster4x4", "manycore2x64"])
def test_every_access_lies_in_a_range_and_no_range_is_of_another_memory(profile: str) -> None:
    program = program_of(profile)
    touches, accesses = touches_of(program), check(program, shared=builtin_profile(profile).engines.shared).accesses
    places: dict[tuple[int, bool], set[int]] = {}
    columns = (accesses.commands, accesses.kinds, accesses.places, accesses.lows, accesses.highs)
    for command, kind, place, low, high in zip(*(column.tolist() for column in columns), strict=True):
        writes = kind == Kind.WRITE
        places.setdefault((command, writes), set()).add(place)
        assert any(
            at == place and first <= low and high <= stop and written == writes
            for at, first, stop, written in rows_of(touches, command)
        )
    for place in range(len(program.places)):
        highs = (found.highs[found.places == place].max(initial=0) for found in (touches, accesses))
        assert len({*highs}) == 1
    for command in range(len(program.commands)):
        for place, _, _, written in rows_of(touches, command):
            assert place in places[command, written]


@pytest.mark.parametrize("profile", ["edge4", "cluster4x4"])
def test_weights_are_known_by_their_region_their_memory_and_their_operand(profile: str) -> None:
    program = program_of(profile)
    touches = touches_of(program)
    spans = [
        (region.address, region.address + region.size_bytes)
        for region in program.regions
        if region.role in (Role.WEIGHT, Role.ADDRESSES)
    ]
    for place, low, of_weights in zip(
        touches.places.tolist(), touches.lows.tolist(), touches.of_weights.tolist(), strict=True
    ):
        if program.places[place].level is Level.DRAM:
            assert of_weights == any(start <= low < stop for start, stop in spans)
        elif program.places[place].level is Level.WRAM:
            assert of_weights
    assert not touches.of_weights.all()


def test_what_adds_to_sums_reads_them_and_writes_them() -> None:
    """Results of 2 bytes, sums of 4: eight of them, read from the second part on."""
    touches = touches_of(parts_of_a_product().build())
    sums = [[row for row in rows_of(touches, command) if row[1] == 1024] for command in range(3)]
    written, read = (NRAM0, 1024, 1024 + 32, True), (NRAM0, 1024, 1024 + 32, False)
    assert [sorted(rows) for rows in sums] == [[written], [read, written], [read, written]]
