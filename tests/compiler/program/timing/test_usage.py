"""Usage over time and the roofline of small programs, worked out by hand (SIM-2)."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from compiler.program.program import OUTPUT
from compiler.program.timing.observed import observe
from compiler.program.timing.roofline import roofline_of
from compiler.program.timing.ticks import TICKS_PER_CYCLE
from tests.compiler.program.builder import CORE0, IODMA0, IODMA1, NRAM0, NRAM1, Bound
from tests.compiler.program.timing.command_times import times_of
from tests.compiler.program.timing.test_events import LANES, LONG, RATE, SIZE, Small, chip


def test_two_loads_fill_the_dram_until_one_is_left() -> None:
    """12 bytes per cycle: both at 6 until the short one's 400 bytes have moved, then the other at its engine's 8."""
    small = Small()
    small.load(IODMA0, NRAM0)
    small.load(IODMA1, NRAM1, size=SIZE // 2)
    profile = chip(dram=12, startup=False)
    times = small.times(profile)
    both = SIZE / 2 / 6
    slices = 7
    found = observe(times.time, profile, slices=slices).usage
    width = (both + SIZE / 2 / RATE) / slices
    edges = np.arange(slices + 1) * width
    moved = np.minimum(edges, both) * 12 + np.maximum(0.0, edges - both) * RATE
    assert found.slice_cycles == pytest.approx(width, rel=1e-4)
    assert found.bytes["dram"] == pytest.approx(np.diff(moved), rel=1e-4)
    assert found.capacities == {"dram": 12}


def test_a_call_is_spread_over_its_time_and_all_cores_are_the_peak() -> None:
    """A load of 100 cycles, then all lanes of one of two cores for 100 cycles."""
    small = Small()
    small.call(CORE0, NRAM0, (small.load(IODMA0, NRAM0),), elements=LONG * LANES)
    profile = chip(startup=False)
    found = observe(small.times(profile).time, profile, slices=4).usage
    assert found.bytes["dram"] == pytest.approx([SIZE / 2, SIZE / 2, 0, 0])
    assert found.vector == pytest.approx([0, 0, 0.5, 0.5])
    assert found.array == pytest.approx([0] * 4)


def test_slices_add_up_to_all_that_is_moved_and_none_exceeds_the_rate() -> None:
    random = np.random.default_rng(11)
    small = Small()
    for number in range(200):
        core = int(random.integers(2))
        waits = (int(random.integers(number)),) if number else ()
        if random.random() < 0.5:
            small.load((IODMA0, IODMA1)[core], (NRAM0, NRAM1)[core], size=int(random.integers(1, SIZE)), waits=waits)
        else:
            small.call(CORE0 + core, NRAM0 + core, waits, elements=int(random.integers(1, 500)))
    profile = chip(dram=10, bytes_per_cycle=40)
    times = small.times(profile)
    found = times.observed.usage
    assert found.bytes["dram"].sum() == pytest.approx(times.demands.moved.sum(), rel=1e-12)
    assert (found.bytes["dram"] <= 10 * found.slice_cycles * (1 + 1e-9)).all()
    assert set(found.bytes) == {"dram", "nram"}
    assert (found.bytes["nram"] <= 80 * found.slice_cycles * (1 + 1e-9)).all()
    assert found.vector.max() <= 1 + 1e-9


def test_the_roof_is_the_dram_or_the_units_whichever_takes_longer() -> None:
    """800 bytes at 64 per cycle; 200 operations on 2 cores of 4 lanes."""
    small = Small()
    small.call(CORE0, NRAM0, (small.load(IODMA0, NRAM0),))
    profile = chip()
    times = small.times(profile)
    whole, (group,) = roofline_of(times.time, [times.time.ticks], profile)
    assert whole.bounds == {"dram": SIZE / 64, "array": 0.0, "vector": SIZE / 4 / (2 * LANES)}
    assert (whole.operations, whole.dram_bytes, whole.cycles) == (SIZE / 4, SIZE, times.cycles)
    assert (group.name, group.bounds, group.cycles) == ("g", whole.bounds, whole.cycles)


def test_products_on_the_vector_lanes_are_bounded_by_these() -> None:
    """A depthwise convolution uses few lanes of the array: 18 operations for each of 8 x 4 x 4 results."""
    small = Small()
    shapes = ((1, 8, 6, 6), (8, 1, 3, 3))
    table = small.builder.table(
        "Conv", shapes, (1, 8, 4, 4), group=8, kernel_shape=(3, 3), strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0)
    )
    bound = [Bound(place=NRAM0, address=0, box=tuple((0, extent) for extent in shapes[0]))]
    bound.append(Bound(place=NRAM0, address=1152, box=tuple((0, extent) for extent in shapes[1])))
    result = Bound(place=NRAM0, address=1440, box=((0, 1), (0, 8), (0, 4), (0, 4)))
    operands = (*enumerate(bound), (OUTPUT, result))
    small.builder.call(CORE0, table, result.box, operands, waits=())
    profile = chip()
    time = small.times(profile).time
    whole, _ = roofline_of(time, [time.ticks], profile)
    assert whole.macs == 128 * 9
    assert whole.bounds["array"] == 0
    assert whole.bounds["vector"] >= 2 * 9 * 128 / (2 * LANES)
    assert whole.bounds["vector"] <= whole.cycles


def test_bytes_of_moves_shorter_than_a_tick_are_all_counted() -> None:
    """Late in a long program, over a DRAM that could carry more in a tick than they are."""
    small = Small()
    late = small.call(CORE0, NRAM0, (), elements=4)
    for _ in range(20):
        small.load(IODMA0, NRAM0, size=1, waits=(late,))
        small.load(IODMA1, NRAM1, size=2, waits=(late,))
    program = small.builder.build()
    program.tables[0].entries["lengths"][0, 0] = LANES * 10**9
    engines = chip(dram=1e9, startup=False).engines
    assert engines.iodma is not None
    fast = msgspec.structs.replace(engines, iodma=msgspec.structs.replace(engines.iodma, bytes_per_cycle=1e9))
    profile = msgspec.structs.replace(chip(dram=1e9, startup=False), engines=fast)
    times = times_of(program, profile)
    assert (times.ends - times.begins).tolist() == [10**9 * TICKS_PER_CYCLE, *[1] * 40]
    assert times.observed.usage.bytes["dram"].sum() == 20 * (1 + 2)
