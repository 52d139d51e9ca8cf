"""Memory as a map of address x time, from what commands write and read (PROG-2)."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.program.program import Level
from compiler.program.timing.occupancy import MAX_RECTANGLES, Occupancy
from compiler.program.timing.ticks import TICKS_PER_CYCLE
from tests.compiler.program.builder import CORE0, IODMA0, IODMA1, NRAM0, NRAM1
from tests.compiler.program.timing.command_times import CommandTimes
from tests.compiler.program.timing.test_events import LONG, SIZE, Small, chip


def map_of(times: CommandTimes, level: Level = Level.NRAM) -> Occupancy:
    (found,) = (one for one in times.observed.occupancies if one.level is level)
    return found


def test_a_buffer_is_held_from_its_writing_until_its_last_reading() -> None:
    """Loaded in 0 to 100, read and overwritten in place by a call until 150, stored until 250."""
    small = Small()
    small.store(IODMA0, NRAM0, (small.call(CORE0, NRAM0, (small.load(IODMA0, NRAM0),)),))
    found = map_of(small.times(chip(startup=False)))
    assert (found.number, found.capacity_bytes, found.step_ticks) == (0, 2048, 2.5 * TICKS_PER_CYCLE)
    assert found.rectangles.tolist() == [[0, SIZE, 0, 100, 0]]
    assert found.held_bytes().tolist() == [SIZE] * 100


def test_what_is_between_the_last_reading_and_the_next_writing_is_free() -> None:
    """Two buffers in turn; the first is free between its store and the second load, which another engine delays."""
    small = Small()
    stored = small.store(IODMA0, NRAM0, (small.load(IODMA0, NRAM0),))
    calls = [small.call(CORE0, NRAM1, (stored,)) for _ in range(2 * LONG // 50)]
    small.store(IODMA0, NRAM0, (small.load(IODMA0, NRAM0, waits=(calls[-1],)),))
    times = small.times(chip(startup=False))
    assert times.cycles == 600
    found = map_of(times)
    assert found.step_ticks == 6 * TICKS_PER_CYCLE
    # 200 to 400 is free
    assert found.rectangles.tolist() == [[0, SIZE, 0, 34, 0], [0, SIZE, 66, 100, 0]]


def test_what_is_read_without_having_been_written_was_there_before() -> None:
    small = Small()
    first = small.load(IODMA1, NRAM1)
    small.store(IODMA0, NRAM0, (first,))
    found = map_of(small.times(chip(startup=False)))
    assert found.number == 0
    assert found.rectangles.tolist() == [[0, SIZE, 0, 100, -1]]


@pytest.mark.slow
def test_a_map_is_small_however_long_the_program_and_misses_nothing() -> None:
    random = np.random.default_rng(5)
    small = Small()
    for number in range(3000):
        at = 8 * int(random.integers(150))
        waits = (number - 1,) if number else ()
        if random.random() < 0.5:
            small.load(IODMA0, NRAM0, at=at, size=int(random.integers(1, 400)), waits=waits)
        else:
            small.store(IODMA0, NRAM0, waits, at=at)
    times = small.times(chip())
    found = map_of(times)
    assert 0 < len(found.rectangles) <= MAX_RECTANGLES
    used = int(found.rectangles[:, :2].sum(axis=1).max())
    assert (found.held_bytes() <= used).all()
    # every load's bytes are held at its end
    rows = times.program.commands
    addresses, sizes, begins, ends, _ = found.rectangles.T
    for number in np.flatnonzero(rows["opcode"] == 0).tolist():
        step = min(int(times.begins[number] / found.step_ticks), 10**9)
        low = int(rows["target_address"][number])
        assert ((addresses <= low) & (low < addresses + sizes) & (begins <= step) & (step < ends)).any()


def test_maps_of_levels_are_those_of_their_fullest_memory() -> None:
    small = Small()
    small.load(IODMA0, NRAM0)
    small.load(IODMA1, NRAM1, at=SIZE)
    found = small.times(chip()).observed.occupancies
    assert [(one.level, one.number) for one in found] == [(Level.DRAM, 0), (Level.NRAM, 1)]


def test_a_result_stays_in_the_dram_to_the_end() -> None:
    """Stored until 200; then only a call works, until 250."""
    small = Small()
    stored = small.store(IODMA0, NRAM0, (small.load(IODMA0, NRAM0),))
    small.call(CORE0, NRAM0, (stored,))
    found = map_of(small.times(chip(startup=False)), Level.DRAM)
    given, made = found.rectangles.tolist()
    # what was loaded is not needed any more after 100
    assert given[2:] == [0, 40, -1]
    assert made[2:] == [40, 100, 0]
    assert made[0] <= small.builder.regions[1].address
    assert made[0] + made[1] >= small.builder.regions[1].address + SIZE
