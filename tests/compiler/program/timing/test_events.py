"""Timelines of small programs against times worked out by hand (SIM-2)."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pytest

from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from compiler.program.program import OUTPUT, Opcode, Role
from compiler.program.timing.ticks import TICKS_PER_CYCLE, Ints
from tests.compiler.program.builder import (
    BUS,
    CORE0,
    CORE1,
    DRAM,
    IODMA0,
    IODMA1,
    LINK0,
    NRAM0,
    NRAM1,
    SRAM,
    Bound,
    Builder,
)
from tests.compiler.program.timing.command_times import CommandTimes, times_of
from tests.profiles import profile_values

# Cycles and bytes of the cases below: a transfer of SIZE takes LONG at the rate of a core's DRAM engine.
SIZE, RATE, LONG, DRAM_STARTUP, CHIP_STARTUP, LANES = 800, 8, 100, 100, 10, 4


def chip(*, dram: float = 64.0, startup: bool = True, **memory: Any) -> Profile:
    """Two cores of one cluster at 1 GHz, so that a nanosecond is a cycle; `dram` in bytes per cycle."""
    values = profile_values("cluster4x4")
    values |= {"name": "small", "clock_hz": 1e9, "clusters_per_chip": 1, "cores_per_cluster": 2}
    values["dram"] |= {"bandwidth_bytes_per_s": dram * 1e9, "startup_ns": 0.0}
    values["nram"] |= memory
    dram_startup, chip_startup = (DRAM_STARTUP, CHIP_STARTUP) if startup else (0, 0)
    values["engines"] = {
        "gdma": {"bytes_per_cycle": 64, "startup_ns": dram_startup},
        "iodma": {"bytes_per_cycle": RATE, "startup_ns": dram_startup},
        "mvdma": {"bytes_per_cycle": 16, "startup_ns": chip_startup},
        "bus": {"bytes_per_cycle": 32, "startup_ns": chip_startup},
        "link": {"topology": "ring", "bytes_per_cycle": 4, "hop_cycles": 3},
    }
    values["vector"]["lanes"] = LANES
    return profile_from_values(values)


class Small:
    """A program of loads, calls and stores of SIZE bytes each."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.given = self.builder.region("x", Role.INPUT, (4 * SIZE // 4,))
        self.made = self.builder.region("y", Role.OUTPUT, (4 * SIZE // 4,))
        self.table = self.builder.table("Relu", ((SIZE,),), (SIZE,))

    def load(self, queue: int, place: int, at: int = 0, size: int = SIZE, waits: tuple[int, ...] = ()) -> int:
        """From the DRAM."""
        return self.builder.transfer(Opcode.LOAD, queue, (DRAM, self.given), (place, at), size, waits=waits)

    def store(self, queue: int, place: int, waits: tuple[int, ...], at: int = 0) -> int:
        """To the DRAM."""
        return self.builder.transfer(Opcode.STORE, queue, (place, at), (DRAM, self.made), SIZE, waits=waits)

    def call(self, queue: int, place: int, waits: tuple[int, ...], elements: int = SIZE // 4) -> int:
        """A Relu in place: its elements divided by LANES are its cycles."""
        bound = Bound(place=place, address=0, box=((0, elements),))
        return self.builder.call(queue, self.table, ((0, elements),), ((0, bound), (OUTPUT, bound)), waits=waits)

    def times(self, profile: Profile) -> CommandTimes:
        """Its times."""
        return times_of(self.builder.build(), profile)


def cycles(ticks: Ints) -> list[float]:
    """Ticks in cycles."""
    found: list[float] = (ticks / TICKS_PER_CYCLE).tolist()
    return found


def test_a_load_then_a_call_then_a_store() -> None:
    """Start-up and bytes of the load, the call's elements by lanes, start-up and bytes of the store."""
    small = Small()
    small.store(IODMA0, NRAM0, (small.call(CORE0, NRAM0, (small.load(IODMA0, NRAM0),)),))
    found = small.times(chip())
    called = DRAM_STARTUP + LONG + SIZE // 4 // LANES
    assert cycles(found.begins) == [DRAM_STARTUP, DRAM_STARTUP + LONG, called + DRAM_STARTUP]
    assert cycles(found.ends) == [DRAM_STARTUP + LONG, called, called + DRAM_STARTUP + LONG]
    assert found.last.tolist() == [-1, 0, 1]
    assert found.cycles == 450


def test_double_buffering_hides_all_loads_but_the_first() -> None:
    """Loads and calls of equal length, two buffers: n calls end one load after n of them."""
    small, tiles = Small(), 6
    calls: list[int] = []
    for tile in range(tiles):
        # a buffer is free when the call before the last one has ended
        load = small.load(IODMA0, NRAM0, at=tile % 2 * SIZE, waits=tuple(calls[-2:-1]))
        calls.append(small.call(CORE0, NRAM0, (load,), elements=LONG * LANES))
    found = small.times(chip(startup=False))
    assert found.cycles == (tiles + 1) * LONG


def test_an_engine_prepares_the_next_transfer_while_it_moves_one() -> None:
    """Of several transfers in a row only the first one's start-up shows, if the others are shorter than the data."""
    small = Small()
    for part in range(3):
        small.load(IODMA0, NRAM0, at=part * SIZE)
    assert small.times(chip()).cycles == DRAM_STARTUP + 3 * LONG


def test_short_transfers_cost_their_start_up() -> None:
    """What moves faster than it is prepared takes as long as the preparing."""
    small = Small()
    for part in range(4):
        small.load(IODMA0, NRAM0, at=part * 8, size=8)
    assert small.times(chip()).cycles == 4 * DRAM_STARTUP + 1


def test_two_cores_share_the_dram() -> None:
    """Each has half of it; what is left when one ends is the other's, up to its engine's rate."""
    small = Small()
    small.load(IODMA0, NRAM0)
    small.load(IODMA1, NRAM1, size=SIZE // 2)
    found = small.times(chip(dram=RATE, startup=False))
    assert cycles(found.ends) == [150, 100]
    assert cycles(small.times(chip(dram=2 * RATE, startup=False)).ends) == [100, 50]
    # 12 bytes per cycle: 6 each, then 8 for the one that is left
    ends = small.times(chip(dram=12, startup=False)).ends.tolist()
    first = ceil(400 * TICKS_PER_CYCLE / 6)
    assert ends == [first + ceil((800 * TICKS_PER_CYCLE - 6 * first) / 8), first]


def test_what_is_short_ends_however_late_it_begins() -> None:
    """A few bytes after ten million million cycles take as long as at the beginning."""
    small = Small()
    late = small.call(CORE0, NRAM0, (), elements=4)
    for part in range(20):
        small.load(IODMA0, NRAM0, size=1 + part % 3, waits=(late,))
        small.load(IODMA1, NRAM1, size=2, waits=(late,))
    program, profile = small.builder.build(), chip(dram=RATE - 1, startup=False)
    early = times_of(program, profile)
    program.tables[0].entries["lengths"][0, 0] = LANES * 10**13
    found = times_of(program, profile)
    assert found.ends[0] == 10**13 * TICKS_PER_CYCLE
    assert (found.ends - found.ends[0]).tolist() == (early.ends - early.ends[0]).tolist()


@pytest.mark.parametrize(("also", "cycles"), [(True, CHIP_STARTUP + 25), (False, CHIP_STARTUP + 50)])
def test_a_broadcast_takes_half_as_long_as_two_transfers(also: bool, cycles: int) -> None:
    """The bus hands the same bytes to both cores at once."""
    small = Small()
    if also:
        small.builder.transfer(Opcode.BROADCAST, BUS, (SRAM, 0), (NRAM0, 0), SIZE, targets=2, waits=())
    else:
        for place in (NRAM0, NRAM1):
            small.builder.transfer(Opcode.MOVE, BUS, (SRAM, 0), (place, 0), SIZE, waits=())
    assert small.times(chip()).cycles == cycles


def test_a_call_waits_for_what_another_core_sends() -> None:
    """An exchange that stalls: core 1 stands still until core 0 has made the bytes and the link has carried them."""
    small = Small()
    first = small.call(CORE0, NRAM0, (), elements=400)
    sent = small.builder.transfer(Opcode.EXCHANGE, LINK0, (NRAM0, 0), (NRAM1, 0), SIZE, waits=(first,))
    alone = small.call(CORE1, NRAM1, (), elements=40)
    stalled = small.call(CORE1, NRAM1, (sent,), elements=40)
    found = small.times(chip())
    assert cycles(found.ends[[alone, sent]]) == [10, 100 + 3 + SIZE / 4]
    assert found.begins[stalled] == found.ends[sent]
    assert found.last[stalled] == sent


def test_ports_of_a_memory_are_shared_by_calls_and_transfers() -> None:
    """A call reads and writes its core's memory; a load into that memory slows both where the port is their bound."""
    alone, both = Small(), Small()
    for small in (alone, both):
        small.call(CORE0, NRAM0, (), elements=400)
    both.load(IODMA0, NRAM0, at=1600)
    # 400 elements of 4 bytes, read and written: 3,200 bytes at 16 per cycle
    profile = chip(startup=False, bytes_per_cycle=16, ports="shared")
    assert alone.times(profile).cycles == 200
    found = both.times(profile)
    assert found.cycles == (3200 + SIZE) / 16


def test_nothing_ends_before_it_begins_and_rates_are_never_exceeded() -> None:
    """Of random transfers over one DRAM: no more bytes than its rate allows, and never two at once on one engine."""
    random = np.random.default_rng(7)
    small, queues = Small(), (IODMA0, IODMA1)
    for _ in range(60):
        engine = int(random.integers(2))
        size = int(random.integers(1, SIZE))
        number = len(small.builder.commands)
        waits = tuple(sorted({int(random.integers(number))})) if number and random.random() < 0.5 else ()
        small.load(queues[engine], (NRAM0, NRAM1)[engine], size=size, waits=waits)
    found = small.times(chip(dram=10))
    moved = found.demands.moved
    assert (found.ends >= found.begins).all()
    assert (found.begins >= found.issues + DRAM_STARTUP * TICKS_PER_CYCLE).all()
    for queue in queues:
        rows = np.flatnonzero(found.program.commands["queue"] == queue)
        assert (found.begins[rows[1:]] >= found.ends[rows[:-1]]).all()
        assert ((found.ends - found.begins)[rows] * RATE >= moved[rows] * TICKS_PER_CYCLE).all()
    for begin in found.begins.tolist():
        inside = found.begins >= begin
        assert moved[inside].sum() * TICKS_PER_CYCLE <= 10 * (found.ticks - begin)
    offsets, waits_of = found.program.wait_offsets, found.program.waits
    for number in range(len(found.begins)):
        its = waits_of[offsets[number] : offsets[number + 1]]
        assert (found.issues[number] >= found.ends[its]).all()
