"""The order that a simulation gives a program: legal, and without waits that an engine need not take (PROG-1)."""

from __future__ import annotations

import numpy as np

from compiler.program.program import Opcode, Program
from compiler.program.timing.order import in_time
from tests.compiler.program.builder import CORE0, IODMA0, NRAM0, happens_before
from tests.compiler.program.timing.command_times import times_of
from tests.compiler.program.timing.test_events import LONG, Small, chip


def tiles_in_turn(count: int) -> tuple[Program, np.ndarray]:
    """Tile after tile: load, call, store, on two buffers; loads and stores are streams of one engine."""
    small = Small()
    streams: list[int] = []
    calls: list[int] = []
    stores: list[int] = []
    for tile in range(count):
        # the buffer is free when what it held has been stored
        load = small.load(IODMA0, NRAM0, at=tile % 2 * 800, waits=tuple(stores[-2:-1]))
        calls.append(small.call(CORE0, NRAM0, (load,), elements=4 * LONG))
        stores.append(small.store(IODMA0, NRAM0, (calls[-1],), at=tile % 2 * 800))
        streams += [0, 0, 1]
    return small.builder.build(), np.array(streams, dtype=np.int64)


def test_the_next_tile_is_loaded_before_the_last_one_is_stored() -> None:
    program, streams = tiles_in_turn(4)
    profile = chip(startup=False)
    timeline = in_time(program, profile, streams)
    found = timeline.program
    opcodes = [Opcode(number).name for number in found.commands["opcode"].tolist()]
    assert opcodes[:4] in (["LOAD", "COMPUTE", "LOAD", "STORE"], ["LOAD", "LOAD", "COMPUTE", "STORE"])
    # as emitted every load waits behind the store of the tile before; in time the engine never stands still
    assert times_of(program, profile).cycles == 4 * 3 * LONG
    assert timeline.cycles == times_of(found, profile).cycles == 4 * 2 * LONG


def test_every_command_still_comes_after_all_that_it_came_after() -> None:
    """What a command waited for, in its stream or by its waits, happens before it in the new program too."""
    program, streams = tiles_in_turn(9)
    profile = chip()
    found = in_time(program, profile, streams).program
    assert len(found.commands) == len(program.commands)
    # commands are told apart by their order in queue and stream, which is kept
    queues = program.commands["queue"].astype(np.int64)
    kinds = queues * 2 + streams
    new_streams = np.where(found.commands["opcode"] == Opcode.STORE, 1, 0)
    new_kinds = found.commands["queue"].astype(np.int64) * 2 + new_streams
    place = np.empty(len(kinds), dtype=np.int64)
    for kind in np.unique(kinds).tolist():
        place[np.flatnonzero(kinds == kind)] = np.flatnonzero(new_kinds == kind)
    after = happens_before(found)
    for number in range(len(kinds)):
        its = program.waits[program.wait_offsets[number] : program.wait_offsets[number + 1]].tolist()
        earlier = [other for other in range(number) if kinds[other] == kinds[number]]
        assert {int(place[other]) for other in (*its, *earlier)} <= after[int(place[number])]


def test_the_order_is_the_same_each_time_and_of_no_commands_there_is_none() -> None:
    program, streams = tiles_in_turn(5)
    first, second = (in_time(program, chip(), streams).program for _ in range(2))
    assert first.commands.tobytes() == second.commands.tobytes()
    assert first.waits.tobytes() == second.waits.tobytes()
    empty = Small().builder.build()
    assert in_time(empty, chip(), np.zeros(0, dtype=np.int64)).program is empty
