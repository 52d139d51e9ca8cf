"""A program takes the ticks of the expanded one, command by command and jumped over (SIM-2, PROG-5, PROG-6)."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np
import pytest

from compiler.errors import InternalError, LimitError
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.fuse import FuseSegments
from compiler.options import Options
from compiler.profile.load import builtin_profile
from compiler.profile.schema import Profile
from compiler.program.loops.time import Commands, ProgramTime, time_of, time_under
from compiler.program.lower import handed_out
from compiler.program.program import Program
from compiler.program.segment import PlannedGroup
from compiler.program.steps.segment import SegmentSteps
from compiler.program.timing.demands import demands_of
from compiler.program.timing.levels import moved_by
from compiler.program.timing.ticks import Ints
from tests.compiler.program.loops.appended import appended
from tests.compiler.program.loops.arbitrary_loops import arbitrary_loops
from tests.compiler.program.loops.expander import expanded
from tests.compiler.program.loops.groups import LONG, lowered_group, mc_cnn
from tests.compiler.program.timing.command_times import times_of
from tests.models import import_graph, partition_of
from tests.networks import NETWORKS

# Seeds of random groups; most of them fit.
_MANY: Final = range(600)
_SOME: Final = range(10)


def ticks_alone(time: ProgramTime) -> dict[str, int]:
    """By group the ticks that it takes by itself."""
    return {name: part.ticks for name, part in time.parts()}


@cache
def random_loops(seed: int) -> tuple[Program, Profile] | None:
    """A random group's program; None where the group does not fit."""
    found = lowered_group(seed)
    return None if found is None else (found.program, found.profile)


def all_random(seeds: range) -> Iterator[tuple[Program, Profile]]:
    """Those of many seeds."""
    return (found for seed in seeds if (found := random_loops(seed)) is not None)


def check(program: Program, profile: Profile) -> ProgramTime:
    """The time of a program, which has to be that of the expanded one in all that is said of it."""
    plain = expanded(program)
    times, demands = times_of(plain, profile), demands_of(plain, profile)
    windows: list[Commands] = []
    seen, found = time_of(program, profile, observer=windows.append), time_of(program, profile)
    positions, issues, begins, ends, lasts = columns(windows)
    assert np.array_equal(issues, times.issues)
    assert np.array_equal(begins, times.begins)
    assert np.array_equal(ends, times.ends)
    assert np.array_equal(np.where(lasts < 0, -1, np.searchsorted(positions, lasts)), times.last)
    busy = np.bincount(plain.commands["queue"], weights=ends - begins, minlength=len(plain.queues)).astype(np.int64)
    for time in (seen, found):
        assert time.ticks == times.ticks
        assert time.commands == len(plain.commands)
        assert np.array_equal(time.busy, busy)
        assert np.array_equal(time.idle, times.ticks - busy)
        assert time.by_group() == times.time.by_group()
        assert ticks_alone(time) == ticks_alone(times.time)
        assert time.moved() == moved_by(plain, demands)
    assert seen.walked == len(plain.commands)
    assert found.jumped.sum() > 0 or found.walked == len(plain.commands)
    return found


def columns(windows: list[Commands]) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Positions, issues, begins, ends and what was waited for of all commands, in the order of the program."""
    names = ("positions", "issues", "begins", "ends", "lasts")
    found = [np.concatenate([getattr(window, name) for window in windows]) for name in names]
    order = np.argsort(found[0])
    positions, issues, begins, ends, lasts = (column[order] for column in found)
    return positions, issues, begins, ends, lasts


def test_random_groups_take_the_ticks_of_their_expanded_programs() -> None:
    loops = [check(*case) for case in all_random(_SOME)]
    assert any(time.jumped.sum() > 0 for time in loops)


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("first", range(3))
def test_many_random_groups_take_the_ticks_of_their_expanded_programs_and_most_long_loops_jump(first: int) -> None:
    seeds = _MANY[first::3]
    loops = [check(*case) for case in all_random(seeds)]
    assert len(loops) > len(seeds) / 2
    long = [time for time in loops if time.iterations.sum() >= LONG]
    assert sum(time.jumped.sum() > 0 for time in long) >= 0.7 * len(long)


def nests(seeds: range, queues: int) -> Iterator[tuple[list[Program], Profile]]:
    """Random groups of chips with so many engines, three at a time."""
    its = [case for case in all_random(seeds) if len(case[0].queues) == queues]
    for first in range(0, len(its) - 2, 3):
        yield [program for program, _ in its[first : first + 3]], its[first][1]


def test_groups_by_themselves_are_timed_one_after_another() -> None:
    """Together they took memory with groups times statements: 1.6 GiB for 2,000 nodes."""
    programs, profile = next(nests(_SOME, len(next(all_random(_SOME))[0].queues)))
    time = time_of(appended(programs, 0, 0), profile)
    alive: list[weakref.ref[Ints]] = []
    for _, part in time.parts():
        assert [its for its in alive if its() is not None] == []
        alive.append(weakref.ref(part.instances))
        del part
    assert len(alive) == len(time.program.group_names) > 1


@pytest.mark.parametrize("waits", [0, 1, 8])
def test_nests_one_after_another_take_the_ticks_of_their_expanded_programs(waits: int) -> None:
    queues = {len(case[0].queues) for case in all_random(_SOME)}
    loops = [
        check(appended(parts, waits, seed), profile)
        for count in sorted(queues)
        for seed, (parts, profile) in enumerate(nests(_SOME, count))
    ]
    assert any((time.jumped > 0).sum() > 1 for time in loops)


@pytest.mark.matrix(first=0, rest=0)
@pytest.mark.parametrize("waits", [0, 1, 3, 20])
def test_many_nests_one_after_another_take_the_ticks_of_their_expanded_programs(waits: int) -> None:
    queues = {len(case[0].queues) for case in all_random(_MANY)}
    for count in sorted(queues):
        for seed, (parts, profile) in enumerate(nests(_MANY, count)):
            check(appended(parts, waits, seed), profile)


@pytest.mark.slow
def test_mc_cnn_takes_the_ticks_of_its_expanded_program() -> None:
    """N-6 on a small map: pieces inside tiles, under an SRAM."""
    check(*mc_cnn(120, 72, {"W": 60, "H": 24}))


@pytest.mark.full
def test_groups_of_mobilenet_take_the_ticks_of_their_expanded_programs() -> None:
    profile, options = builtin_profile("edge4"), Options()
    partitioned = partition_of(import_graph(NETWORKS["mobilenet_v1"]().SerializeToString()), profile, options)
    fused = FuseSegments(options=options, compilers=SegmentCompilers(profile, options)).run(partitioned)
    groups = [group for segment in fused.segments for group in segment.groups]
    times = []
    for group in groups:
        planned = [PlannedGroup(name="g", ops=group.ops, tiling=group.choice.tiling)]
        steps = SegmentSteps(fused.facts, profile, "g", planned, handed_out(fused.facts, planned[0].ops))
        times.append(check(steps.lowered(listed_max=0), profile))
    # some loops recur, some are too short or too uneven
    assert sum(time.jumped[0] > 0 for time in times) > len(times) // 3


def without_loops(case: tuple[Program, Profile]) -> tuple[Program, Profile]:
    """The expanded program of a random group."""
    program, profile = case
    return expanded(program), profile


def test_a_program_without_loops_is_one_iteration() -> None:
    for case in all_random(range(8)):
        plain, profile = without_loops(case)
        time = check(plain, profile)
        assert time.iterations.tolist() == [1]
        assert time.walked == len(plain.commands)


@cache
def first_group() -> tuple[Program, Profile]:
    """The first random group whose loop is long and is jumped over."""
    return next(case for case in all_random(_SOME) if time_of(*case).jumped.sum() > LONG)


def stretched(program: Program, count: int) -> Program:
    """One statement of a program alone, `count` times; its first counter runs."""
    one = program.once(program.commands[:1], np.zeros(2, dtype=np.int32), np.zeros(0, dtype=np.int32))
    space = one.loops.spaces.copy()
    space["counters"], space["extents"][0, 0], space["strides"][0, 0] = 1, count, 1
    run = np.zeros(1, dtype=program.loops.runs.dtype)
    run["step"], run["count"] = 1, count
    loops = replace(one.loops, spaces=space, runs=run, run_offsets=np.array([0, 1], dtype=np.int32))
    return replace(one, loops=loops)


def test_a_billion_iterations_are_jumped_over() -> None:
    program, profile = first_group()
    few, many = (time_of(stretched(program, count), profile) for count in (100, 10**9))
    more = time_of(stretched(program, 101), profile)
    assert many.ticks - few.ticks == (10**9 - 100) * (more.ticks - few.ticks)
    assert many.walked == few.walked
    assert many.commands == 10**9


def test_more_iterations_than_can_be_counted_are_refused_by_name() -> None:
    program, profile = first_group()
    with pytest.raises(LimitError, match="than can be simulated"):
        time_of(stretched(program, 1 << 61), profile)


def test_commands_that_wait_in_a_circle_are_named() -> None:
    program, profile = first_group()
    loops = program.loops
    circle = replace(program, loops=replace(loops, distances=loops.distances - 1000))
    with pytest.raises(InternalError, match="wait in a circle"):
        time_of(circle, profile)


def test_an_observer_sees_every_command_once_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    program, profile = first_group()
    whole: list[Commands] = []
    time_of(program, profile, observer=whole.append)
    monkeypatch.setattr("compiler.program.loops.time.WINDOW", 16)
    windows: list[Commands] = []
    time_of(program, profile, observer=windows.append)
    assert len(windows) > 3 > len(whole)
    assert all(np.array_equal(a, b) for a, b in zip(columns(windows), columns(whole), strict=True))


def test_arbitrary_loops_take_the_ticks_of_their_expanded_programs() -> None:
    for seed, (base, profile) in enumerate(all_random(range(12))):
        check(arbitrary_loops(base, seed, nests=1 + seed % 3), profile)


@pytest.mark.slow
def test_arbitrary_loops_take_as_long_with_jumps_as_without() -> None:
    bases, jumped = list(all_random(range(40))), 0
    for seed in range(3000):
        base, profile = bases[seed % len(bases)]
        program = arbitrary_loops(base, seed, nests=1 + seed % 3, statements=2 + seed % 9)
        demands = demands_of(program, profile)
        found, plain = time_under(program, demands), time_under(program, demands, jumps=False)
        assert found.ticks == plain.ticks
        assert np.array_equal(found.busy, plain.busy)
        assert np.array_equal(found.group_ends, plain.group_ends)
        jumped += found.jumped.sum() > 0
    assert jumped > 1000
