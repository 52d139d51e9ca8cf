"""Numbers, sequences, rows and streams as bytes (PROG-3, SHAPE-2)."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.errors import InternalError, LimitError
from compiler.program.encoding.check import check_program
from compiler.program.encoding.cursor import Budget, Cursor, encode, encode_counts, fold, unfold
from compiler.program.encoding.records import unit_identifier, with_identifier
from compiler.program.encoding.repeats import decode_sequence, encode_sequence
from compiler.program.encoding.rows import Groups, decode_rows, encode_rows
from compiler.program.encoding.sizes import (
    bytes_by_core,
    program_sizes,
    stream_of,
)
from compiler.program.encoding.stream import Stream, decode_entries, decode_stream, encode_entries, encode_stream
from compiler.program.errors import ExecutableError, ProgramError
from compiler.program.executable import _internal
from compiler.program.fields import ProgramLimits
from compiler.program.loops.form import check_loops
from compiler.program.loops.instances import Instances
from compiler.program.loops.loops import Loops
from compiler.program.program import Program, Unit
from tests.compiler.program.arbitrary import looped_programs, programs
from tests.compiler.program.loops.groups import group_programs
from tests.compiler.program.loops.mutants import with_number
from tests.compiler.program.loops.samples import sample
from tests.compiler.program.plain import PlainReader
from tests.compiler.program.tiled import tiled_program, tiled_table
from tests.matrices import tries

INTEGERS = st.integers(-(2**63), 2**63 - 1)


def cursor(data: bytes, limit_bytes: int = 1 << 30) -> Cursor:
    """A cursor at the beginning of some bytes."""
    return Cursor("test", memoryview(data), Budget(len(data), limit_bytes))


def nested(*loops: tuple[int, int]) -> np.ndarray:
    """The addresses that nested loops go through: (count, stride) from the outermost."""
    values = np.zeros(1, dtype=np.int64)
    for count, stride in loops:
        values = (values[:, None] + np.arange(count) * stride).ravel()
    return values


def flat(row: Any) -> list[int]:
    """A row's numbers, arrays number by number."""
    values = (np.atleast_1d(row[name]).tolist() for name in row.dtype.names)
    return [value for part in values for value in part]


def assert_same_stream(got: Stream, expected: Stream) -> None:
    """All arrays are equal, and of equal types."""
    for kind, one, other in ((Stream, got, expected), (Loops, got.loops, expected.loops)):
        for field in fields(kind):
            values, wanted = getattr(one, field.name), getattr(other, field.name)
            if field.name != "loops":
                assert values.dtype == wanted.dtype
                np.testing.assert_array_equal(values, wanted, err_msg=field.name)


@given(st.lists(INTEGERS, max_size=30))
def test_signed_numbers_come_back(values: list[int]) -> None:
    numbers = np.array(values, dtype=np.int64)
    data = encode(fold(numbers))
    reader = cursor(data)
    assert reader.signed(len(numbers)).tolist() == values
    reader.finish()
    assert unfold(fold(numbers)).tolist() == values


def test_small_numbers_of_either_sign_take_one_byte() -> None:
    assert encode(fold(np.array([0, -1, 1, -64, 63]))) == bytes([0, 1, 2, 127, 126])
    assert encode(np.array([128, 300])) == bytes([0x80, 0x01, 0xAC, 0x02])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ends early"),
        (b"\x80", "does not end"),
        (b"\x80" * 10 + b"\x01", "64 bits|does not end"),
    ],
)
def test_a_number_that_does_not_end_is_refused_with_section_and_byte(data: bytes, message: str) -> None:
    with pytest.raises(ExecutableError, match=message) as caught:
        cursor(data).numbers(1)
    assert (caught.value.section, caught.value.offset) == ("test", 0)


def test_bytes_that_nobody_reads_are_refused() -> None:
    reader = cursor(b"\x01\x02")
    reader.numbers(1)
    with pytest.raises(ExecutableError, match="does not end here") as caught:
        reader.finish()
    assert caught.value.offset == 1


def test_counts_are_refused_before_their_memory_is_taken() -> None:
    with pytest.raises(LimitError, match="more memory"):
        cursor(encode_counts(1 << 30)).count("commands", 152)
    with pytest.raises(LimitError, match="more memory"):
        cursor(encode_counts(1000), limit_bytes=100_000).count("commands", 152)
    assert cursor(encode_counts(1000)).count("commands", 152) == 1000


@given(st.lists(st.integers(0, 3), max_size=80) | st.lists(st.integers(0, 2**31), max_size=20).map(lambda x: x * 3))
def test_sequences_come_back_and_their_bytes_are_accounted_for(values: list[int]) -> None:
    sequence = np.array(values, dtype=np.int64)
    data, cost = encode_sequence(sequence)
    reader = cursor(data)
    assert decode_sequence(reader, len(sequence)).tolist() == values
    reader.finish()
    assert len(data) - int(cost.sum()) in (1, 2)


def test_a_sequence_that_repeats_itself_takes_no_more_bytes_when_it_is_longer() -> None:
    short, _ = encode_sequence(np.tile(np.arange(48), 10))
    long, _ = encode_sequence(np.tile(np.arange(48), 1000))
    assert len(long) <= len(short) + 4


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([(0, 3, 1)], "before the sequence"),
        ([(1, 2, 0)], "before the sequence"),
        ([(1, 1, 1)], "do not make up"),
        ([(1, 9, 1)], "longer"),
    ],
)
def test_pieces_that_do_not_make_a_sequence_are_refused(pieces: list[tuple[int, int, int]], message: str) -> None:
    columns = np.array(pieces).T
    data = encode_counts(len(pieces)) + b"".join(encode(column) for column in columns) + b"\0" * 9
    with pytest.raises(ExecutableError, match=message):
        decode_sequence(cursor(data), 3)


@given(st.data(), st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(1, 3))
@settings(max_examples=60)
def test_rows_come_back_and_their_bytes_are_accounted_for(data: st.DataObject, sizes: list[int], width: int) -> None:
    count = sum(sizes)
    noise = st.lists(INTEGERS, min_size=count, max_size=count).map(lambda values: np.array(values, dtype=np.int64))
    loops = st.tuples(st.integers(1, 6), INTEGERS, INTEGERS).map(
        lambda loop: np.arange(count) % loop[0] * np.int64(loop[1] >> 8) + np.arange(count) // loop[0] * loop[2] // 512
    )
    columns = [data.draw(noise | loops) for _ in range(width)]
    anew = np.array([True, *(data.draw(st.booleans()) for _ in sizes[1:])])
    groups = Groups(np.array(sizes), anew)
    encoded, cost = encode_rows(columns, groups)
    reader = cursor(encoded)
    for got, expected in zip(decode_rows(reader, width, groups), columns, strict=True):
        assert got.tolist() == expected.tolist()
    reader.finish()
    assert 0 <= len(encoded) - int(cost.sum()) <= 3 * (2 * width + 4)


@pytest.mark.parametrize(
    "loops", [((300, 64),), ((30, 5000), (10, 64)), ((10, 90_000), (30, 5000), (10, 64)), ((50, 0), (2, 4096))]
)
def test_nested_loops_are_stored_as_base_strides_and_counts(loops: tuple[tuple[int, int], ...]) -> None:
    """SHAPE-2: what a loop repeats takes no bytes, however often it repeats it."""
    column = nested(*loops)
    more = nested((loops[0][0] * 10, loops[0][1]), *loops[1:])
    sizes = []
    for values in (column, more):
        data, _ = encode_rows([values, values * 3], Groups(np.array([len(values)]), np.array([True])))
        sizes.append(len(data))
    inner = len(column) // loops[0][0]
    assert sizes[1] <= sizes[0] + 8
    assert sizes[0] <= 40 + 6 * inner


def test_a_parameter_table_does_not_grow_with_the_shape() -> None:
    """SHAPE-2."""
    small, large = (encode_entries([tiled_table(1, rows, 12).entries])[0] for rows in (20, 400))
    assert len(large) <= len(small) + 16
    reader = cursor(large)
    (entries,) = decode_entries(reader, 1)
    np.testing.assert_array_equal(entries, tiled_table(1, 400, 12).entries)


def test_a_lag_that_is_no_number_of_rows_is_refused() -> None:
    data = encode_counts(1, 1, 0) + encode(fold(np.array([-5]))) + b"\0\0"
    with pytest.raises(ExecutableError, match="lag"):
        decode_rows(cursor(data), 1, Groups(np.array([3]), np.array([True])))


def test_values_beyond_the_last_row_are_refused() -> None:
    for data in (encode_counts(0, 0, 1, 7, 2), encode_counts(0, 0, 2, 2, 2, 2, 2)):
        with pytest.raises(ExecutableError, match="beyond the last row"):
            decode_rows(cursor(data), 1, Groups(np.array([3]), np.array([True])))


@pytest.mark.slow
@given(programs(max_commands=40) | looped_programs(max_commands=40))
@tries(first=20, rest=60)
def test_a_reader_written_from_the_document_reads_the_same(program: Program) -> None:
    """PROG-3, PROG-5: docs/executable.md says enough."""
    stream, loops = stream_of(program), program.loops
    plain = PlainReader(encode_stream(stream, len(program.queues)).data).commands(len(program.queues))
    for name in ("commands", "calls", "bindings"):
        assert plain[name] == [flat(row) for row in getattr(program, name)], name
    for name in ("spaces", "statements"):
        assert plain[name] == [flat(row) for row in getattr(loops, name)], name
    for name in ("runs", "terms", "rings"):
        rows = [flat(row) for row in getattr(loops, name)]
        ends = getattr(loops, f"{name[:-1]}_offsets").tolist()
        assert plain[name] == [rows[start:stop] for start, stop in pairwise(ends)], name
    waits = list(zip(program.waits.tolist(), loops.distances.tolist(), strict=True))
    assert plain["waits"] == [waits[start:stop] for start, stop in pairwise(program.wait_offsets.tolist())]
    entries, _ = encode_entries([table.entries for table in program.tables])
    tables = PlainReader(entries).tables(len(program.tables))
    assert tables == [[flat(row) for row in table.entries] for table in program.tables]


@given(programs() | looped_programs())
@tries(first=30, rest=100)
def test_streams_come_back(program: Program) -> None:
    queues = len(program.queues)
    encoded = encode_stream(stream_of(program), queues)
    reader = cursor(encoded.data)
    assert_same_stream(decode_stream(reader, queues), stream_of(program))
    reader.finish()


def test_loops_of_groups_come_back() -> None:
    for program in (sample(), *group_programs(5)):
        queues = len(program.queues)
        encoded = encode_stream(stream_of(program), queues)
        reader = cursor(encoded.data)
        found = decode_stream(reader, queues)
        assert_same_stream(found, stream_of(program))
        check_loops(replace(program, loops=found.loops))
        reader.finish()


@given(st.data())
@tries(first=50, rest=300)
def test_a_damaged_stream_of_loops_is_refused_or_well_formed(data: st.DataObject) -> None:
    """API-4: whatever the bytes say, reading and checking end with an error that names what is wrong, or with loops."""
    program = sample()
    queues = len(program.queues)
    damaged = bytearray(encode_stream(stream_of(program), queues).data)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_stream(cursor(bytes(damaged)), queues)
        changed = replace(program, **{field.name: getattr(found, field.name) for field in fields(Stream)})
        check_program(changed, _internal)
        check_loops(changed, ProgramLimits(looped_commands=1000))
    except (ExecutableError, LimitError, InternalError, ProgramError):
        return
    assert Instances(changed).total == sum(map(len, Instances(changed).windows(100)))


def test_the_stream_of_a_tiled_program_comes_back_at_three_bytes_a_command() -> None:
    program = tiled_program(cores=4, layers=3, rows=6, columns=9)
    encoded = encode_stream(stream_of(program), len(program.queues))
    reader = cursor(encoded.data)
    assert_same_stream(decode_stream(reader, len(program.queues)), stream_of(program))
    assert len(encoded.data) < 4.5 * len(program.commands)
    longer = tiled_program(cores=4, layers=3, rows=24, columns=9)
    assert program_sizes(longer).program_bytes < 2.5 * len(longer.commands)


def test_the_bytes_of_a_program_are_told_by_queue_and_by_core() -> None:
    """PROF-2: limits are per executable and per core."""
    program = tiled_program(cores=3, layers=2, rows=5, columns=4)
    sizes = program_sizes(program)
    by_queue = sizes.by_queue
    assert len(by_queue) == 6
    assert all(size > 20 for size in by_queue)
    assert 0.8 * sizes.program_bytes < sum(by_queue) <= sizes.program_bytes
    assert bytes_by_core(program, sizes) == {n: by_queue[2 * n] + by_queue[2 * n + 1] for n in range(3)}


def test_what_loops_take_does_not_depend_on_tiles() -> None:
    """PROF-2, PROG-5: program memory holds a command once, with its loops."""
    program = sample()
    more = program
    for name, row, field in (("spaces", 0, "extents.0"), *(("runs", row, "count") for row in (0, 2, 4))):
        more = with_number(more, name, row, field, 63)
    sizes = program_sizes(program)
    assert program_sizes(more) == sizes
    assert sum(sizes.by_queue) < sizes.program_bytes
    taken = {queue.engine for queue, size in zip(program.queues, sizes.by_queue, strict=True) if size}
    assert taken == {"gdma", "iodma", "mvdma", "core"}


def test_what_a_core_takes_does_not_depend_on_the_other_cores() -> None:
    alone, crowd = (tiled_program(cores=cores, layers=2, rows=5, columns=4) for cores in (1, 6))
    one, other = (bytes_by_core(program, program_sizes(program))[0] for program in (alone, crowd))
    assert other == pytest.approx(one, rel=0.1)


def test_tables_and_units_have_sizes_of_their_own() -> None:
    program = tiled_program(cores=2, layers=3, rows=5, columns=4)
    sizes = program_sizes(program)
    assert len(sizes.by_table) == 3
    assert sum(sizes.by_table) <= sizes.table_bytes
    assert sum(sizes.unit_bytes) > 64
    more = program_sizes(replace(program, tables=(*program.tables, program.tables[0])))
    assert more.table_bytes > sizes.table_bytes


def test_the_identifier_of_a_unit_is_that_of_its_definition() -> None:
    """SHAPE-1."""
    unit = tiled_program(cores=1, layers=1, rows=1, columns=1).units[0]
    definition = {field.name: getattr(unit, field.name) for field in fields(Unit) if field.name != "identifier"}
    assert unit_identifier(**definition) == unit.identifier == with_identifier(unit).identifier
    for name, other in {
        "kind": "MaxPool",
        "attributes": (("kernel_shape", (3.0, 3.5)),),
        "opset": 10,
        "operands": unit.operands[:2],
        "output": replace(unit.output, dtype="float16"),
        "extents": (1, 8, 8, 9),
        "gathers": 0,
        "accumulator_dtype": "float32",
    }.items():
        assert unit_identifier(**{**definition, name: other}) != unit.identifier


@pytest.mark.parametrize(
    ("array", "field", "value", "message"),
    [
        ("commands", "opcode", 8, "opcode"),
        ("commands", "queue", 2, "queue"),
        ("commands", "step", 1, "step"),
        ("commands", "source", 2, "source"),
        ("commands", "target", -2, "target"),
        ("commands", "call", 99, "call"),
        ("calls", "table", 1, "table"),
        ("calls", "entry", 99, "entry"),
        ("calls", "entry", -1, "entry"),
        ("calls", "first", -1, "first binding"),
        ("calls", "count", 99, "binding"),
        ("bindings", "place", 2, "place"),
    ],
)
def test_a_program_that_names_what_is_not_there_is_refused(array: str, field: str, value: int, message: str) -> None:
    program = tiled_program(cores=1, layers=1, rows=2, columns=2)
    check_program(program, _internal)
    rows = getattr(program, array).copy()
    rows[field][0] = value
    with pytest.raises(InternalError, match=message):
        check_program(replace(program, **{array: rows}), _internal)


def test_waits_ascend_and_name_earlier_commands() -> None:
    program = tiled_program(cores=1, layers=1, rows=2, columns=2)
    for waits in (program.waits[::-1], np.full_like(program.waits, len(program.commands)), program.waits - 9):
        with pytest.raises(InternalError, match="wait"):
            check_program(replace(program, waits=waits), _internal)
    counts = np.diff(program.wait_offsets)
    first = int(program.wait_offsets[int(np.flatnonzero(counts == 2)[0])])
    swapped = program.waits.copy()
    swapped[[first, first + 1]] = swapped[[first + 1, first]]
    with pytest.raises(InternalError, match="ascend"):
        check_program(replace(program, waits=swapped), _internal)
    with pytest.raises(InternalError, match="waits"):
        check_program(replace(program, wait_offsets=program.wait_offsets[:-1]), _internal)
