"""What is said of a program in time is what is said of the expanded one, whatever the window (SIM-2, PROG-6)."""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache
from itertools import product
from typing import Any, cast

import numpy as np
import pytest

from compiler.profile.schema import Profile
from compiler.program.executable import ChipSegment, Executable
from compiler.program.loops.loops import BINDING_ADDRESS, BINDING_FIELDS, SOURCE_ADDRESS, TARGET_ADDRESS
from compiler.program.loops.time import ProgramTime, time_of
from compiler.program.program import OUTPUT, Opcode, Program, Role, Step
from compiler.program.timing.energy import energy_by_level
from compiler.program.timing.observed import observe
from compiler.program.timing.roofline import Point, roofline_of
from compiler.program.timing.trace import NOTE, trace_of
from compiler.report.programs import dram_bytes
from tests.compiler.program.builder import (
    CORE0,
    CORE1,
    DRAM,
    IODMA0,
    IODMA1,
    NRAM0,
    NRAM1,
    Bound,
    Builder,
)
from tests.compiler.program.loops.appended import appended
from tests.compiler.program.loops.arbitrary_loops import arbitrary_loops
from tests.compiler.program.loops.expander import expanded
from tests.compiler.program.loops.groups import lowered_group, mc_cnn
from tests.compiler.program.loops.samples import LoopBuilder, sample
from tests.compiler.program.timing.test_events import Small, chip
from tests.compiler.program.timing.test_trace import Read

Case = tuple[Program, Profile]


def random_groups(count: int) -> list[Case]:
    """Programs of random groups."""
    return [found for seed in range(count) if (found := random_group(seed)) is not None]


@cache
def random_group(seed: int) -> Case | None:
    """A random group's program; None where the group does not fit."""
    found = lowered_group(seed)
    return None if found is None else (found.program, found.profile)


def cases() -> Iterator[Case]:
    """A program by hand, random groups, and two of one chip one after another."""
    yield sample(), chip()
    groups = random_groups(12)
    yield from groups
    for program, profile in groups[:3]:
        same = [one for one, its in groups if len(one.queues) == len(program.queues)]
        yield appended(same[:2], 3, 1), profile


def plain_values(found: Any) -> Any:
    """What can be compared, of dataclasses that hold arrays."""
    if isinstance(found, np.ndarray):
        return found.tolist()
    if isinstance(found, tuple):
        return tuple(map(plain_values, found))
    if isinstance(found, dict):
        return {name: plain_values(value) for name, value in found.items()}
    if hasattr(found, "__dataclass_fields__"):
        return {field.name: plain_values(getattr(found, field.name)) for field in fields(found)}
    return found


def assert_equal(one: Any, other: Any) -> None:
    """Equal values; sums of floats over kinds of commands may be made in another order."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        assert_equal(list(one.values()), list(other.values()))
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_equal(*pair)
    else:
        assert one == (pytest.approx(other, rel=1e-12) if isinstance(other, float) else other)


def energy_of(time: ProgramTime, profile: Profile) -> dict[str, float]:
    """What the program takes of energy, by level."""
    return energy_by_level(time, profile, time.moved())


def points_of(time: ProgramTime, profile: Profile) -> tuple[Point, tuple[Point, ...]]:
    """The program's point, and those of its groups."""
    return roofline_of(time, [part.ticks for _, part in time.parts()], profile)


def check(program: Program, profile: Profile) -> None:
    """All figures of a program are those of the expanded one."""
    plain = expanded(program)
    times = [time_of(one, profile) for one in (program, plain)]
    for figures in (observe, energy_of, points_of):
        of_loops, of_expanded = (plain_values(figures(time, profile)) for time in times)
        assert_equal(of_loops, of_expanded)
    assert dram_bytes(program) == dram_bytes(plain)


def test_a_program_of_loops_is_told_of_as_the_expanded_one() -> None:
    for program, profile in cases():
        check(program, profile)


def test_arbitrary_loops_are_told_of_as_their_expanded_programs() -> None:
    for seed, (base, profile) in enumerate(random_groups(12)):
        check(arbitrary_loops(base, seed, nests=1 + seed % 3), profile)


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("block", range(2))
def test_many_programs_of_loops_are_told_of_as_the_expanded_ones(block: int) -> None:
    groups = random_groups(120)
    for program, profile in groups[block::2]:
        check(program, profile)
    for seed in range(300 * block, 300 * (block + 1)):
        base, profile = groups[seed % len(groups)]
        check(arbitrary_loops(base, seed, nests=1 + seed % 3, statements=2 + seed % 9), profile)


@pytest.mark.slow
def test_stages_are_told_of_as_their_expanded_program() -> None:
    """MC-CNN (N-6) on a small map."""
    check(*mc_cnn(120, 72, {"W": 60, "H": 24}))


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("window", [1, 5, 64])
def test_what_is_observed_does_not_depend_on_the_window(window: int) -> None:
    for program, profile in cases():
        time = time_of(program, profile)
        assert plain_values(observe(time, profile, window=window)) == plain_values(observe(time, profile))


def busy_program(random: np.random.Generator) -> Program:
    """Commands of two cores that touch the same bytes without waiting for each other, some long; each a step's own."""
    small = Small()
    for number in range(120):
        core = int(random.integers(2))
        waits = (int(random.integers(number)),) if number and random.random() < 0.3 else ()
        place = (NRAM0, NRAM1)[int(random.integers(2))]
        if random.random() < 0.4:
            small.call((CORE0, CORE1)[core], place, waits, elements=int(random.integers(1, 40)) ** 2)
        elif random.random() < 0.5:
            small.load((IODMA0, IODMA1)[core], place, at=8 * int(random.integers(150)), size=8, waits=waits)
        else:
            small.store((IODMA0, IODMA1)[core], place, waits, at=8 * int(random.integers(150)))
    program = small.builder.build()
    program.commands["step"] = np.arange(len(program.commands))
    steps = tuple(Step(group="g", nodes=(), tensor=f"t{number}") for number in range(len(program.commands)))
    return replace(program, steps=steps)


def test_commands_that_outlast_many_windows_are_held_and_move_as_in_one() -> None:
    random = np.random.default_rng(5)
    profile = chip(dram=10, bytes_per_cycle=40)
    for _ in range(4):
        time = time_of(busy_program(random), profile)
        assert plain_values(observe(time, profile, window=2)) == plain_values(observe(time, profile))


def repeated(count: int) -> Program:
    """A tile loaded, computed and stored, so many times, in two buffers."""
    builder, loops = Builder(), LoopBuilder()
    x, y = (builder.region(name, role, (64,)) for name, role in (("x", Role.INPUT), ("y", Role.OUTPUT)))
    tiles = loops.space(0, 0, (count,), (1,))
    table, every = builder.table("Relu", ((64,),), (64,)), [(0, 1, count)]
    turn = (256, 0, (1,))
    builder.transfer(Opcode.LOAD, IODMA0, (DRAM, x), (NRAM0, 0), 256, waits=())
    loops.add(tiles, every, stage=1, rings=[(TARGET_ADDRESS, 2, *turn)], waits=[(1, 1)])
    bound = Bound(place=NRAM0, address=0, box=((0, 64),))
    builder.call(CORE0, table, ((0, 64),), ((0, bound), (OUTPUT, bound)), waits=())
    rings = [(BINDING_ADDRESS, 2, *turn), (BINDING_ADDRESS + BINDING_FIELDS, 2, *turn)]
    loops.add(tiles, every, rings=rings, waits=[(0, 1), (2, 1)])
    builder.transfer(Opcode.STORE, IODMA1, (NRAM0, 0), (DRAM, y), 256, waits=())
    loops.add(tiles, every, stage=-1, rings=[(SOURCE_ADDRESS, 2, *turn)], waits=[(1, 1)])
    return loops.build(builder.build())


@pytest.mark.slow
def test_memory_does_not_grow_with_what_loops_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many bytes at most for 6,000 commands as for 600, and for their traces."""
    monkeypatch.setattr("compiler.program.loops.time_recurrence.STATES_BYTES", 1 << 14)
    few, many = repeated(200), repeated(2000)
    assert time_of(many, chip()).commands == 6000
    for use in (observe_all, write_trace):
        use(few)
        assert peak_of(use, many) <= 1.25 * peak_of(use, few)


def observe_all(program: Program) -> None:
    """What a report says, in small windows."""
    observe(time_of(program, chip()), chip(), window=64)


def write_trace(program: Program) -> None:
    """A trace, in small windows, of which no piece is kept."""
    deque(trace_of(executable_of(program, chip()), window=64), 0)


def peak_of(use: Callable[[Program], None], program: Program) -> int:
    """Bytes that are taken at most."""
    tracemalloc.start()
    use(program)
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def executable_of(program: Program, profile: Profile) -> Executable:
    """One of a single segment without inputs and outputs."""
    segment: Any = ChipSegment(id="s0", chip=0, program=cast(Any, program), weights=())
    return Executable(
        compiler_version="",
        profile=profile,
        model_name="m",
        model_digest="",
        options_digest="",
        inputs=(),
        outputs=(),
        segments=(segment,),
    )


def test_a_trace_of_loops_names_statements_and_tiles_and_is_else_that_of_the_expanded_program() -> None:
    loops, plain = (Read.of(b"".join(trace_of(executable_of(one, chip())))) for one in (sample(), expanded_sample()))
    assert loops.values == plain.values
    tiles = set()
    for track, slices in plain.slices.items():
        for one, other in zip(loops.slices[track], slices, strict=True):
            arguments = dict(one.arguments)
            tile = tuple(arguments.pop(name) for name in ("i", "j") if name in arguments)
            statement = arguments.pop("command", None)
            expected = {name: value for name, value in other.arguments.items() if name != "command"}
            assert replace(one, arguments=arguments) == replace(other, arguments=expected)
            if statement is not None:
                tiles.add((statement, tile))
    assert len(tiles) == 46
    assert {tile for statement, tile in tiles if statement == 0} == set(product(range(6), range(2)))
    assert (3, ()) in tiles


def expanded_sample() -> Program:
    """The program by hand without loops."""
    return expanded(sample())


@pytest.mark.parametrize("limit", [0, 1, 20, 45])
def test_a_limit_shows_the_first_commands_in_program_order(limit: int) -> None:
    whole, cut = (
        Read.of(b"".join(trace_of(executable_of(one, chip()), limit=limit))) for one in (sample(), expanded_sample())
    )
    for track, slices in cut.slices.items():
        assert [(one.begin, one.end) for one in whole.slices[track]] == [(one.begin, one.end) for one in slices]
    (note,) = whole.slices["chip 0", NOTE]
    assert note.name == f"{46 - limit} of 46 commands of s0 are left out"
