"""What engines do with their time, in programs whose times are worked out by hand (SIM-2)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.program.program import OUTPUT, Opcode
from compiler.program.timing.stalls import Spent
from compiler.program.timing.ticks import TICKS_PER_CYCLE
from tests.compiler.program.builder import (
    CORE0,
    CORE1,
    IODMA0,
    IODMA1,
    LINK0,
    MVDMA0,
    NRAM0,
    NRAM1,
    SRAM,
    WRAM0,
    Bound,
)
from tests.compiler.program.timing.command_times import CommandTimes
from tests.compiler.program.timing.test_events import CHIP_STARTUP, DRAM_STARTUP, LANES, LONG, RATE, SIZE, Small, chip


def spent(times: CommandTimes, queue: int) -> dict[Spent, float]:
    """What one engine does, in cycles, parts of no cycles left out."""
    row = times.observed.stalls[queue]
    assert row.sum() == times.ticks
    return {one: row[one] / TICKS_PER_CYCLE for one in Spent if row[one]}


def test_a_call_waits_for_the_dram_and_a_store_for_the_call() -> None:
    """Load 100 + 100, call 50, store 100 + 100."""
    small = Small()
    small.store(IODMA0, NRAM0, (small.call(CORE0, NRAM0, (small.load(IODMA0, NRAM0),)),))
    found = small.times(chip())
    assert spent(found, CORE0) == {Spent.WORK: 50, Spent.DRAM: 200, Spent.DONE: 200}
    assert spent(found, IODMA0) == {Spent.WORK: 200, Spent.STARTUP: 200, Spent.COMPUTE: 50}
    assert spent(found, CORE1) == {Spent.DONE: 450}


def test_a_start_up_that_a_move_hides_is_no_stall() -> None:
    small = Small()
    for part in range(3):
        small.load(IODMA0, NRAM0, at=part * SIZE)
    assert spent(small.times(chip()), IODMA0) == {Spent.WORK: 3 * LONG, Spent.STARTUP: DRAM_STARTUP}


def test_a_load_waits_for_room_where_the_call_before_still_reads() -> None:
    """The second load overwrites what the first call reads: it needs nothing of the call but the room."""
    small = Small()
    first = small.load(IODMA0, NRAM0)
    call = small.call(CORE0, NRAM0, (first,), elements=SIZE // 4)
    small.load(IODMA0, NRAM0, waits=(call,))
    assert spent(small.times(chip(startup=False)), IODMA0) == {Spent.WORK: 2 * LONG, Spent.MEMORY: 50}


def test_a_call_waits_for_what_a_neighbour_sends() -> None:
    small = Small()
    first = small.call(CORE0, NRAM0, (), elements=400)
    sent = small.builder.transfer(Opcode.EXCHANGE, LINK0, (NRAM0, 0), (NRAM1, 0), SIZE, waits=(first,))
    small.call(CORE1, NRAM1, (sent,), elements=40)
    found = small.times(chip())
    assert spent(found, CORE1) == {Spent.WORK: 10, Spent.NEIGHBOUR: 100 + 3 + SIZE / 4}
    assert spent(found, LINK0) == {Spent.COMPUTE: 100, Spent.STARTUP: 3, Spent.WORK: SIZE / 4, Spent.DONE: 10}


def test_a_call_waits_for_weights_for_the_sram_and_for_a_barrier() -> None:
    small = Small()
    weights = small.builder.transfer(Opcode.MOVE, MVDMA0, (SRAM, 0), (WRAM0, 0), SIZE, waits=())
    first = small.call(CORE0, NRAM0, (weights,), elements=LANES)
    data = small.builder.transfer(Opcode.MOVE, MVDMA0, (SRAM, 0), (NRAM0, 0), SIZE, waits=(first,))
    second = small.call(CORE0, NRAM0, (data,), elements=LANES)
    late = small.call(CORE1, NRAM1, (), elements=1000 * LANES)
    barrier = small.builder.barrier(CORE1, (second, late))
    small.call(CORE0, NRAM0, (barrier,), elements=LANES)
    found = small.times(chip())
    moved = CHIP_STARTUP + SIZE / 16
    rest = found.cycles - 3 - 2 * moved
    assert spent(found, CORE0) == {Spent.WORK: 3, Spent.WEIGHTS: moved, Spent.SRAM: moved, Spent.BARRIER: rest}


def test_weights_are_waited_for_as_such_wherever_they_come_from() -> None:
    """A constant that a neighbour sends into the memory that activations have too."""
    small = Small()
    builder = small.builder
    table = builder.table("MatMul", ((2, 8), (8, 4)), (2, 4))
    unit = builder.units[-1]
    left, right = unit.operands
    assert right is not None
    for constant, cause in ((True, Spent.WEIGHTS), (False, Spent.NEIGHBOUR)):
        builder.units[-1] = replace(unit, operands=(left, replace(right, constant=constant)))
        sent = builder.transfer(Opcode.EXCHANGE, LINK0, (NRAM1, 512), (NRAM0, 512), 128, waits=())
        operands = (
            (0, Bound(place=NRAM0, address=0, box=((0, 2), (0, 8)))),
            (1, Bound(place=NRAM0, address=512, box=((0, 8), (0, 4)))),
            (OUTPUT, Bound(place=NRAM0, address=1024, box=((0, 2), (0, 4)))),
        )
        call = builder.call(CORE0, table, ((0, 2), (0, 4)), operands, waits=(sent,))
        found = small.times(chip())
        assert found.waits[call] > 0
        assert found.causes[call] == cause


def test_what_others_take_of_the_dram_is_sharing() -> None:
    small = Small()
    small.load(IODMA0, NRAM0)
    small.load(IODMA1, NRAM1)
    found = small.times(chip(dram=RATE, startup=False))
    assert spent(found, IODMA0) == {Spent.WORK: LONG, Spent.SHARING: LONG}


def test_a_slow_dram_or_link_that_nobody_else_uses_is_not_shared() -> None:
    """The engine could move twice as much; alone it cannot be faster than what it moves over."""
    small = Small()
    small.load(IODMA0, NRAM0)
    assert spent(small.times(chip(dram=RATE / 2, startup=False)), IODMA0) == {Spent.WORK: 2 * LONG}


def test_what_the_ports_of_a_core_add_to_its_calls_is_told_from_what_others_do() -> None:
    """400 elements on 4 lanes are 100 cycles of work; 3,200 bytes at 16 per cycle 200; 800 more of a load 50."""
    small = Small()
    small.call(CORE0, NRAM0, (), elements=400)
    small.load(IODMA0, NRAM0, at=1600)
    found = small.times(chip(startup=False, bytes_per_cycle=16, ports="shared"))
    assert spent(found, CORE0) == {Spent.WORK: 100, Spent.PORTS: 100, Spent.SHARING: 50}


def test_every_engine_s_time_adds_up_in_random_programs() -> None:
    random = np.random.default_rng(3)
    for _ in range(20):
        small = Small()
        for _ in range(60):
            count = len(small.builder.commands)
            waits = tuple(sorted(set(random.integers(count, size=2).tolist()))) if count else ()
            core = int(random.integers(2))
            if random.random() < 0.4:
                small.call((CORE0, CORE1)[core], (NRAM0, NRAM1)[core], waits, elements=int(random.integers(1, 500)))
            elif random.random() < 0.5:
                small.load(
                    (IODMA0, IODMA1)[core], (NRAM0, NRAM1)[core], size=int(random.integers(1, SIZE)), waits=waits
                )
            else:
                small.builder.transfer(
                    Opcode.EXCHANGE, LINK0 + core, (NRAM0 + core, 0), (NRAM1 - core, 0), 8, waits=waits
                )
        found = small.times(chip(dram=10))
        engines = found.observed.stalls
        assert (engines.sum(axis=1) == found.ticks).all()
        assert (engines >= 0).all()
        assert engines[:, Spent.STARTUP].sum() == found.startups.sum()
        waited = engines[:, Spent.DRAM : Spent.DONE].sum()
        assert waited == found.waits.sum()
