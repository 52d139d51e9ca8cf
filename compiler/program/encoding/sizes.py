"""What a program takes in an executable: the bytes that a profile's limits count (PROF-2, PROG-3)."""

from __future__ import annotations

from dataclasses import dataclass, fields

from compiler.program.encoding.records import canonical, program_record
from compiler.program.encoding.stream import EncodedStream, Stream, encode_entries, encode_stream
from compiler.program.loops.loops import LoopedProgram, Loops
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


def program_sizes(program: Program | LoopedProgram) -> ProgramSizes:
    """All sizes of a program; it is encoded once for them."""
    stream, listed = _encoded(program), LoopedProgram.of(program).program
    record = program_record(listed)
    entries, by_table = encode_entries([table.entries for table in listed.tables])
    common = [len(canonical(table)) for table in record.tables]
    return ProgramSizes(
        program_bytes=len(stream.data),
        by_queue=stream.by_queue,
        table_bytes=len(entries) + sum(common),
        by_table=tuple(size + area for size, area in zip(by_table, common, strict=True)),
        unit_bytes=tuple(len(canonical(unit)) for unit in record.units),
    )


def program_bytes(program: Program | LoopedProgram) -> int:
    """Bytes of commands, loops, calls, bindings and waits."""
    return len(_encoded(program).data)


def program_bytes_by_queue(program: Program | LoopedProgram) -> tuple[int, ...]:
    """Bytes of each queue's commands with their loops, calls, bindings and waits."""
    return _encoded(program).by_queue


def _encoded(program: Program | LoopedProgram) -> EncodedStream:
    return encode_stream(stream_of(program), len(LoopedProgram.of(program).program.queues))


def program_bytes_by_core(program: Program | LoopedProgram) -> dict[int, int]:
    """Bytes by core: what the queues of its own engines take (`core`, `iodma`, `mvdma`, `link`)."""
    return bytes_by_core(program, program_sizes(program))


def bytes_by_core(program: Program | LoopedProgram, sizes: ProgramSizes) -> dict[int, int]:
    """As `program_bytes_by_core`, for sizes that are known."""
    by_core: dict[int, int] = {}
    for queue, size in zip(program.queues, sizes.by_queue, strict=True):
        if queue.engine in ("core", "iodma", "mvdma", "link"):
            by_core[queue.number] = by_core.get(queue.number, 0) + size
    return dict(sorted(by_core.items()))


def table_bytes(program: Program | LoopedProgram) -> int:
    """Bytes of all parameter tables."""
    return program_sizes(program).table_bytes


def unit_bytes(program: Program | LoopedProgram) -> int:
    """Bytes of all units."""
    return sum(program_sizes(program).unit_bytes)


def stream_of(program: Program | LoopedProgram) -> Stream:
    """The arrays of a program that are stored as a stream."""
    looped = LoopedProgram.of(program)
    listed = looped.program
    return Stream(
        commands=listed.commands,
        wait_offsets=listed.wait_offsets,
        waits=listed.waits,
        calls=listed.calls,
        bindings=listed.bindings,
        loops=looped.loops,
    )


def array_bytes(program: Program | LoopedProgram) -> int:
    """Bytes that a program's commands, loops, calls, bindings, waits and entries take in memory."""
    stream, listed = stream_of(program), LoopedProgram.of(program).program
    arrays = (stream.commands, stream.wait_offsets, stream.waits, stream.calls, stream.bindings)
    loops = (getattr(stream.loops, field.name) for field in fields(Loops))
    entries = (table.entries for table in listed.tables)
    return sum(array.nbytes for array in (*arrays, *loops, *entries))
