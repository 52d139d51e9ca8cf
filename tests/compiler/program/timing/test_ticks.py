"""Time in whole ticks: shifted programs shift exactly, loops recur exactly, shares lose nothing (SIM-2, PROG-6)."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import LimitError
from compiler.profile.schema import Profile
from compiler.program.program import Opcode
from compiler.program.timing.shares import share
from compiler.program.timing.ticks import (
    AMOUNT_BITS,
    GRAIN_BITS,
    MAX_TICKS,
    TICKS_PER_CYCLE,
    WEIGHT_BITS,
    Ints,
    grains_of_bytes,
    grains_of_call,
    steps_of,
    ticks_of,
    whole_cycles,
)
from tests.compiler.program.builder import CORE0, CORE1, IODMA0, IODMA1, LINK0, NRAM0, NRAM1
from tests.compiler.program.timing.command_times import CommandTimes, times_of
from tests.compiler.program.timing.test_events import LANES, RATE, SIZE, Small, chip
from tests.matrices import tries

# Rates that no power of two divides.
CHIPS = st.builds(
    chip,
    dram=st.sampled_from([7.0, 12.8, 10 / 3, 16.0]),
    startup=st.booleans(),
    bytes_per_cycle=st.sampled_from([None, 9.6, 16.0]),
    ports=st.sampled_from(["shared", "separate"]),
)


def add_randomly(small: Small, seed: int, count: int, after: int) -> None:
    """Loads, calls and exchanges on two cores that wait for one command, and some of them for each other."""
    random = np.random.default_rng(seed)
    first = len(small.builder.commands)
    for number in range(count):
        waits = {after}
        if number and random.random() < 0.5:
            waits.add(first + int(random.integers(number)))
        core, before = int(random.integers(2)), tuple(sorted(waits))
        if random.random() < 0.4:
            small.call((CORE0, CORE1)[core], (NRAM0, NRAM1)[core], before, elements=int(random.integers(1, 500)))
        elif random.random() < 0.7:
            size = int(random.integers(1, SIZE))
            small.load((IODMA0, IODMA1)[core], (NRAM0, NRAM1)[core], size=size, waits=before)
        else:
            places = (NRAM0 + core, 0), (NRAM1 - core, 0)
            small.builder.transfer(Opcode.EXCHANGE, LINK0 + core, *places, 24, waits=before)


def events(times: CommandTimes, first: int, stop: int, since: int) -> list[list[int]]:
    """Issues, begins and ends of commands, from a tick on."""
    columns = times.issues, times.begins, times.ends
    return [(column[first:stop] - since).tolist() for column in columns]


@tries(first=10, rest=25)
@given(profile=CHIPS, seed=st.integers(0, 2**32), cycles=st.integers(1, 10**13))
def test_a_program_that_begins_at_another_tick_has_the_same_events_shifted(
    profile: Profile, seed: int, cycles: int
) -> None:
    small = Small()
    late = small.call(CORE1, NRAM1, (), elements=LANES)
    add_randomly(small, seed, 30, late)
    program, found = small.builder.build(), []
    for length in (1, cycles):
        program.tables[0].entries["lengths"][0, 0] = LANES * length
        times = times_of(program, profile)
        found.append((events(times, 1, 31, int(times.ends[0])), times.last.tolist()))
        assert times.ends[0] >= length * TICKS_PER_CYCLE
    assert found[0] == found[1]


@tries(first=10, rest=25)
@given(profile=CHIPS, seed=st.integers(0, 2**32))
def test_the_same_program_twice_in_a_row_recurs(profile: Profile, seed: int) -> None:
    small, count = Small(), 30
    for _ in range(2):
        begun = small.builder.barrier(CORE0, tuple(range(len(small.builder.commands))))
        add_randomly(small, seed, count, begun)
    times = times_of(small.builder.build(), profile)
    once, again = (events(times, first, first + count, int(times.ends[first - 1])) for first in (1, count + 2))
    assert once == again


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("dram", [7.0, 12.8, 10 / 3])
def test_a_loop_on_two_cores_that_share_the_dram_comes_to_a_rhythm(dram: float) -> None:
    """Loads of unequal size that wait for both cores' tile before the last: soon the ends of calls repeat, shifted."""
    small, iterations = Small(), 200
    calls: list[list[int]] = [[], []]
    for tile in range(iterations):
        free = tuple(sorted(one[-2] for one in calls)) if tile > 1 else ()
        for core, size in ((0, 600), (1, 344)):
            queue, place = (IODMA0, IODMA1)[core], (NRAM0, NRAM1)[core]
            load = small.load(queue, place, at=tile % 2 * SIZE, size=size, waits=free)
            calls[core].append(small.call((CORE0, CORE1)[core], place, (load,), elements=120 + 16 * core))
    ends = times_of(small.builder.build(), chip(dram=dram)).ends[np.array(calls)]
    steady = ends[:, iterations // 2 : -2]
    assert any(not np.diff(steady[:, period:] - steady[:, :-period]).any() for period in range(1, 8))


@st.composite
def movers(draw: st.DrawFn) -> tuple[Ints, list[list[tuple[int, int]]], Ints]:
    """Own rates in steps, resources with weights of each mover, and capacities in parts of a step."""
    capacities = draw(st.lists(st.floats(0.01, 300), min_size=1, max_size=4))
    rates = st.floats(0.01, 100).map(steps_of)
    passes = st.dictionaries(st.integers(0, len(capacities) - 1), st.integers(1, 2 << WEIGHT_BITS), min_size=1)
    drawn = draw(st.lists(st.tuples(rates, passes), min_size=1, max_size=8))
    return (
        np.array([own for own, _ in drawn]),
        [list(of.items()) for _, of in drawn],
        np.array([steps_of(one) << WEIGHT_BITS for one in capacities]),
    )


def shared(own: Ints, passes: list[list[tuple[int, int]]], capacities: Ints) -> list[int]:
    """What `share` gives each mover."""
    count, resources = len(own), len(capacities)
    offsets = np.cumsum([0, *map(len, passes)])
    numbers, weights = (np.array([one[part] for of in passes for one in of]) for part in (0, 1))
    rates, users = np.zeros(count, dtype=np.int64), np.zeros(resources, dtype=np.int64)
    scratch = [np.zeros(resources, dtype=np.int64) for _ in range(3)], [np.zeros(count, dtype=np.int64)] * 2
    (left, levels, used), (unsettled, _) = scratch
    share.py_func(
        np.arange(count),
        own,
        count,
        rates,
        offsets,
        numbers,
        weights,
        capacities,
        left,
        users,
        levels,
        used,
        unsettled,
        np.zeros(count, dtype=np.int64),
    )
    assert not users.any()
    found: list[int] = rates.tolist()
    return found


@given(movers())
def test_shares_are_max_min_fair_within_a_step_and_never_more_than_there_is(
    drawn: tuple[Ints, list[list[tuple[int, int]]], Ints],
) -> None:
    """Whoever has less than it could alone passes a full resource of which nobody has more than it."""
    own, passes, capacities = drawn
    rates = shared(own, passes, capacities)
    taken, weighed = [0] * len(capacities), [0] * len(capacities)
    for rate, of in zip(rates, passes, strict=True):
        for number, weight in of:
            taken[number] += rate * weight
            weighed[number] += weight
    assert all(one <= most for one, most in zip(taken, capacities.tolist(), strict=True))
    most_of = [
        max((rate for rate, of in zip(rates, passes, strict=True) if number in dict(of)), default=0)
        for number in range(len(capacities))
    ]
    for rate, alone, of in zip(rates, own.tolist(), passes, strict=True):
        assert 1 <= rate <= alone
        assert rate == alone or any(
            capacities[number] - taken[number] < weighed[number] and most_of[number] <= rate + 1 for number, _ in of
        )
    order = np.random.default_rng(0).permutation(len(own))
    assert shared(own[order], [passes[i] for i in order], capacities) == [rates[i] for i in order]


@tries(first=10, rest=25)
@given(dram=st.sampled_from([7.0, 12.8, 10 / 3]), sizes=st.lists(st.integers(1, 2000), min_size=1, max_size=12))
def test_a_transfer_moves_all_its_bytes_and_ends_in_the_tick_in_which_the_last_one_has_moved(
    dram: float, sizes: list[int]
) -> None:
    small = Small()
    for number, size in enumerate(sizes):
        small.load((IODMA0, IODMA1)[number % 2], (NRAM0, NRAM1)[number % 2], size=size)
    profile = chip(dram=dram, startup=False)
    times = small.times(profile)
    assert times.observed.usage.bytes["dram"].sum() == pytest.approx(sum(sizes), rel=1e-12)
    rate = min(steps_of(RATE), steps_of(dram))
    assert times.demands.durations.tolist() == [ceil(Fraction(size << GRAIN_BITS, rate)) for size in sizes]
    # both are busy until the shorter queue ends; each tick in which one ends may lose what it could have carried
    short, long = sorted((sum(sizes[::2]), sum(sizes[1::2])))
    least = (2 * short / dram + (long - short) / min(dram, RATE)) * TICKS_PER_CYCLE
    assert least <= times.ticks <= least * (1 + 1e-6) + 2 * len(sizes)


def test_what_ends_at_one_tick_ends_in_the_order_of_the_program() -> None:
    """The call waits for the later one of two loads that end together, on whichever engine that is."""
    for first in (0, 1):
        small = Small()
        loads = [small.load((IODMA0, IODMA1)[core], (NRAM0, NRAM1)[core]) for core in (first, 1 - first)]
        call = small.call(CORE0, NRAM0, tuple(loads))
        found = small.times(chip(startup=False))
        assert found.ends[loads[0]] == found.ends[loads[1]]
        assert found.last[call] == loads[1]


@pytest.mark.parametrize("ports", [{}, {"bytes_per_cycle": 16, "ports": "shared"}])
def test_a_call_of_a_million_million_cycles_is_simulated_and_a_longer_program_refused(ports: dict[str, Any]) -> None:
    small = Small()
    small.call(CORE0, NRAM0, (), elements=LANES)
    program, profile = small.builder.build(), chip(**ports)
    alone = times_of(program, profile).cycles
    program.tables[0].entries["lengths"][0, 0] = LANES * 10**12
    assert times_of(program, profile).cycles == 10**12 * alone
    program.tables[0].entries["lengths"][0, 0] = LANES * (MAX_TICKS // TICKS_PER_CYCLE + 4)
    with pytest.raises(LimitError, match="the program takes longer than can be simulated"):
        times_of(program, profile)


def test_a_transfer_of_more_bytes_than_a_memory_can_have_is_refused() -> None:
    small = Small()
    small.load(IODMA0, NRAM0)
    program = small.builder.build()
    program.commands["counts"][0, 0] = 2**51
    with pytest.raises(LimitError, match="a command moves more than can be simulated in time"):
        times_of(program, chip())


def test_a_rate_that_steps_do_not_tell_is_refused_and_one_above_all_is_the_highest() -> None:
    small = Small()
    small.load(IODMA0, NRAM0)
    with pytest.raises(LimitError, match="the rate of the DRAM is too low to be simulated"):
        small.times(chip(dram=1e-6))
    fast = chip(dram=1e9, startup=False)
    assert small.times(fast).cycles == SIZE / RATE
    engines = msgspec.structs.replace(fast.engines, iodma=None)
    assert small.times(msgspec.structs.replace(fast, engines=engines)).ticks == 1


def test_times_are_rounded_up_and_rates_down() -> None:
    assert (ticks_of(0.0), ticks_of(1.0), ticks_of(1e-9), ticks_of(2 + 1e-9)) == (0, 1024, 1, 2049)
    assert ticks_of(1e30) == 2 * MAX_TICKS
    assert (whole_cycles(0), whole_cycles(1024), whole_cycles(1025)) == (0, 1, 2)
    assert (steps_of(1.0), steps_of(1 / 3), steps_of(1e-30)) == (1 << 24, (1 << 24) // 3, 1)


@given(
    sizes=st.lists(st.integers(0, 2**50), min_size=1), ticks=st.integers(0, MAX_TICKS), steps=st.integers(1, 1 << 46)
)
def test_amounts_have_at_most_so_many_grains_and_lose_none(sizes: list[int], ticks: int, steps: int) -> None:
    amounts, shifts = grains_of_bytes(np.array(sizes))
    for size, amount, shift in zip(sizes, amounts.tolist(), shifts.tolist(), strict=True):
        assert amount <= 1 << AMOUNT_BITS
        assert amount << shift == size << GRAIN_BITS
    amount, shift = grains_of_call(ticks, steps)
    assert amount <= 1 << AMOUNT_BITS
    assert amount == ticks * max(1, steps >> shift)
    assert shift == 0 or steps >> shift == 0 or amount >= 1 << AMOUNT_BITS - 3
