"""What a program takes in an executable: the bytes that a profile's limits count (PROF-2, PROG-3)."""

from __future__ import annotations

from dataclasses import dataclass, fields

from compiler.program.encoding.records import canonical, program_record
from compiler.program.encoding.stream import Stream, encode_entries, encode_stream
from compiler.program.loops.loops import Loops
from compiler.program.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSizes:
    """Bytes of one program as stored.

    `program_bytes`: commands, loops, calls, bindings and waits, a command that loops once; `by_queue`: what each
    queue's own take of it (the rest says whose turn it is, and holds the spaces of loops). `table_bytes`: entries and
    common areas of all parameter tables; `by_table`: of each. `unit_bytes`: of each unit.
    """

    program_bytes: int
    by_queue: tuple[int, ...]
    table_bytes: int
    by_table: tuple[int, ...]
    unit_bytes: tuple[int, ...]


def program_sizes(program: Program) -> ProgramSizes:
    """All sizes of a program; it is encoded once for them."""
    stream, record = encode_stream(stream_of(program), len(program.queues)), program_record(program)
    entries, by_table = encode_entries([table.entries for table in program.tables])
    common = [len(canonical(table)) for table in record.tables]
    return ProgramSizes(
        program_bytes=len(stream.data),
        by_queue=stream.by_queue,
        table_bytes=len(entries) + sum(common),
        by_table=tuple(size + area for size, area in zip(by_table, common, strict=True)),
        unit_bytes=tuple(len(canonical(unit)) for unit in record.units),
    )


def bytes_by_core(program: Program, sizes: ProgramSizes) -> dict[int, int]:
    """Bytes by core: what the queues of its own engines take (`core`, `iodma`, `mvdma`, `link`)."""
    by_core: dict[int, int] = {}
    for queue, size in zip(program.queues, sizes.by_queue, strict=True):
        if queue.engine in ("core", "iodma", "mvdma", "link"):
            by_core[queue.number] = by_core.get(queue.number, 0) + size
    return dict(sorted(by_core.items()))


def stream_of(program: Program) -> Stream:
    """The arrays of a program that are stored as a stream."""
    return Stream(
        commands=program.commands,
        wait_offsets=program.wait_offsets,
        waits=program.waits,
        calls=program.calls,
        bindings=program.bindings,
        loops=program.loops,
    )


def array_bytes(program: Program) -> int:
    """Bytes that a program's commands, loops, calls, bindings, waits and entries take in memory."""
    arrays = (program.commands, program.wait_offsets, program.waits, program.calls, program.bindings)
    loops = (getattr(program.loops, field.name) for field in fields(Loops))
    entries = (table.entries for table in program.tables)
    return sum(array.nbytes for array in (*arrays, *loops, *entries))
