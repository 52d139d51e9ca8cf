"""The energy of small programs, worked out by hand (SIM-2)."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.cost.levels import LevelBytes
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from compiler.program.program import OUTPUT, Opcode, Role
from compiler.program.timing.energy import energy_by_level
from compiler.program.timing.levels import moved_by
from tests.compiler.program.builder import (
    BUS,
    CORE0,
    DRAM,
    IODMA0,
    LINK0,
    MVDMA0,
    NRAM0,
    NRAM1,
    SRAM,
    WRAM0,
    Bound,
    Builder,
)
from tests.compiler.program.timing.test_events import SIZE, Small, chip
from tests.profiles import profile_values

# Elements of SIZE bytes of float32.
ELEMENTS = SIZE // 4


def priced(**values: Any) -> Profile:
    """The small chip with round prices: pJ per byte read and written by memory, 3 per byte and hop, 2 W."""
    found = profile_values("cluster4x4")
    given = chip()
    found |= {"name": "priced", "clock_hz": 1e9, "clusters_per_chip": 1, "cores_per_cluster": 2, "static_w": 2.0}
    for name, (read, written) in {"dram": (100, 200), "sram": (10, 20), "nram": (1, 2), "wram": (3, 4)}.items():
        found[name] |= {"read_pj_per_byte": read, "write_pj_per_byte": written}
    found["dram"] |= {"bandwidth_bytes_per_s": 64e9, "startup_ns": 0.0}
    found["engines"] = {
        "gdma": {"bytes_per_cycle": 64},
        "iodma": {"bytes_per_cycle": 8},
        "mvdma": {"bytes_per_cycle": 16},
        "bus": {"bytes_per_cycle": 32},
        "link": {"topology": "ring", "bytes_per_cycle": 4, "hop_cycles": 3, "pj_per_byte_hop": 3.0},
    }
    found["vector"] = {"lanes": given.vector.lanes, "pj_per_operation": 5.0}
    found |= values
    return profile_from_values(found)


def energy_of(small: Small) -> dict[str, float]:
    """The energy of a program under the prices above."""
    time = small.times(priced()).time
    return energy_by_level(time, priced(), time.moved())


def test_every_byte_and_operation_and_the_time_cost_energy() -> None:
    small = Small()
    small.store(IODMA0, NRAM0, (small.call(CORE0, NRAM0, (small.load(IODMA0, NRAM0),)),))
    times = small.times(priced())
    assert energy_by_level(times.time, priced(), times.time.moved()) == {
        "dram": SIZE * 100 + SIZE * 200,
        "sram": 0.0,
        # loaded and stored, and an operand read and a result written by the call
        "nram": 2 * SIZE * 1 + 2 * SIZE * 2,
        "wram": 0.0,
        "registers": 0.0,
        "link": 0.0,
        "mac": 0.0,
        "vector": ELEMENTS * 5.0,
        "static": pytest.approx(2.0 * times.cycles * 1e3),
    }


def test_a_broadcast_is_read_once_and_written_in_each_memory() -> None:
    small = Small()
    small.builder.transfer(Opcode.BROADCAST, BUS, (SRAM, 0), (NRAM0, 0), SIZE, targets=2, waits=())
    small.builder.transfer(Opcode.MOVE, MVDMA0, (SRAM, 0), (WRAM0, 0), SIZE, waits=())
    found = moved_by(small.builder.build(), small.times(priced()).demands)
    assert found.memories == {
        "dram": LevelBytes(),
        "sram": LevelBytes(read=2 * SIZE),
        "nram": LevelBytes(written=2 * SIZE),
        "wram": LevelBytes(written=SIZE),
    }


def test_links_cost_by_hop() -> None:
    small = Small()
    small.builder.transfer(Opcode.EXCHANGE, LINK0, (NRAM0, 0), (NRAM1, 0), SIZE, waits=())
    energy = energy_of(small)
    assert energy["link"] == SIZE * 3.0
    assert energy["nram"] == SIZE * (1 + 2)


def test_a_product_in_parts_reads_and_writes_its_sums() -> None:
    """Of three parts of a sum the last two read what is there, and the first two leave sums, not results."""
    small = Small()
    small.builder = parts_of_a_product()
    rows, depth, columns = 2, 12, 4
    demands = small.times(priced()).demands
    works = [work for kind in demands.kinds.tolist() if (work := demands.works[kind]) is not None]
    results = rows * columns
    assert [work.sums for work in works] == [
        LevelBytes(written=results * (4 - 2)),
        LevelBytes(read=results * 4, written=results * (4 - 2)),
        LevelBytes(read=results * 4),
    ]
    uses = [work.use for work in works]
    read = sum(use.input_bytes + use.partial_bytes + use.weight_bytes for use in uses) + 2 * results * 4
    written = sum(use.output_bytes + use.partial_bytes for use in uses) + 2 * results * (4 - 2)
    assert moved_by(small.builder.build(), demands).memories["nram"] == LevelBytes(read=read, written=written)
    assert sum(work.macs for work in works) == rows * depth * columns
    assert energy_of(small)["mac"] == rows * depth * columns * 0.4


def parts_of_a_product() -> Builder:
    """A product of 2 x 12 and 12 x 4 in three parts of the sum, in one memory."""
    rows, depth, columns = 2, 12, 4
    builder = Builder()
    builder.region("x", Role.INPUT, (rows, depth), "float16")
    table = builder.table(
        "MatMul", ((rows, depth), (depth, columns)), (rows, columns), "float16", accumulator="float32"
    )
    for part in range(3):
        low, high = part * 4, part * 4 + 4
        bound = (
            (0, Bound(place=NRAM0, address=0, box=((0, rows), (low, high)))),
            (1, Bound(place=NRAM0, address=512, box=((low, high), (0, columns)))),
            (OUTPUT, Bound(place=NRAM0, address=1024, box=((0, rows), (0, columns)))),
        )
        builder.call(
            CORE0,
            table,
            ((0, rows), (0, columns)),
            bound,
            sums=(low, high),
            begins=int(part == 0),
            ends=int(part == 2),
            waits=(),
        )
    return builder


def test_what_a_gather_brings_is_read_and_written() -> None:
    """Three rows of a table and the indices that name them, from the DRAM into a core's memory."""
    builder = Builder()
    at = builder.region("table", Role.INPUT, (50, 16))
    ids = builder.region("ids", Role.INPUT, (3,), "int64")
    table = builder.table("Gather", ((50, 16), (3,)), (3, 16), dtypes=("float32", "int64"), gathers=0, axis=0)
    bound = (
        (0, Bound(place=DRAM, address=at, box=((0, 50), (0, 16)))),
        (1, Bound(place=DRAM, address=ids, box=((0, 3),))),
        (OUTPUT, Bound(place=NRAM0, address=0, box=((0, 3), (0, 16)))),
    )
    builder.call(IODMA0, table, ((0, 3), (0, 16)), bound, opcode=Opcode.GATHER, waits=())
    small = Small()
    small.builder = builder
    found = moved_by(builder.build(), small.times(priced()).demands).memories
    assert found["dram"] == LevelBytes(read=3 * 64 + 3 * 8)
    assert found["nram"] == LevelBytes(written=3 * 64)
