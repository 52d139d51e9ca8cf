"""PROG-4: what the verifier proves, each with a program that holds and its neighbour that does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from compiler.program.errors import ProgramError
from compiler.program.fields import ProgramLimits
from compiler.program.loops.proof import prove
from compiler.program.program import OUTPUT, Opcode, Program, Queue, Resident, Role
from tests.compiler.program.builder import (
    BUS,
    CORE0,
    CORE1,
    DRAM,
    GDMA,
    IODMA0,
    IODMA1,
    LINK0,
    LINK1,
    MVDMA0,
    NRAM0,
    NRAM1,
    SRAM,
    WRAM0,
    Bound,
    Builder,
    changed,
)

BOX = ((0, 4), (0, 8))


def refused(program: Program, **options: Any) -> ProgramError:
    """The error with which a program is refused."""
    with pytest.raises(ProgramError) as found:
        prove(program, **options)
    error = found.value
    assert error.to_dict()["violation"] == error.violation
    return error


def simple(change: Callable[[Builder], None] | None = None) -> Program:
    """Load x, y = relu(x) beside it, store y: commands 0, 1, 2."""
    builder = Builder()
    x, y = builder.region("x", Role.INPUT, (4, 8)), builder.region("y", Role.OUTPUT, (4, 8))
    builder.transfer(Opcode.LOAD, IODMA0, (DRAM, x), (NRAM0, 0), 128)
    table = builder.table("Relu", ((4, 8),), (4, 8))
    bounds = ((0, Bound(place=NRAM0, address=0, box=BOX)), (OUTPUT, Bound(place=NRAM0, address=128, box=BOX)))
    builder.call(CORE0, table, BOX, bounds)
    builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 128), (DRAM, y), 128)
    if change is not None:
        change(builder)
    return builder.build()


def test_a_sound_program_is_described() -> None:
    verified = prove(simple())
    assert verified.peak_bytes == (256, 0, 256, 0, 0, 0)
    assert verified.commands == ((Opcode.LOAD, 1), (Opcode.STORE, 1), (Opcode.COMPUTE, 1))
    assert verified.touched_bytes == 6 * 128


def test_a_program_that_does_nothing_is_safe() -> None:
    verified = prove(Builder().build())
    assert verified.commands == ()
    assert set(verified.peak_bytes) == {0}


FIELDS: tuple[tuple[str, str, int, str, int], ...] = (
    ("opcode", "commands", 0, "opcode", 8),
    ("queue", "commands", 0, "queue", 10),
    ("queue", "commands", 0, "queue", -1),
    ("step", "commands", 0, "step", 1),
    ("place", "commands", 0, "source", 6),
    ("place", "commands", 0, "target", -1),
    ("place", "commands", 0, "targets", 0),
    ("place", "commands", 0, "targets", 3),
    ("place", "commands", 0, "targets", 5),
    ("place", "commands", 0, "targets", 1 << 30),
    ("extent", "commands", 0, "run_bytes", 0),
    ("extent", "commands", 0, "counts.3", -(1 << 63)),
    ("overflow", "commands", 0, "run_bytes", (1 << 63) - 1),
    ("twice", "commands", 0, "counts.3", (1 << 63) - 1),
    ("address", "commands", 0, "target_address", 2048 - 127),
    ("address", "commands", 0, "target_address", -1),
    ("overflow", "commands", 0, "target_address", -(1 << 63)),
    ("region", "commands", 0, "source_address", 1),
    ("call", "commands", 1, "call", 1),
    ("call", "calls", 0, "table", 1),
    ("call", "calls", 0, "entry", 1),
    ("call", "calls", 0, "entry", -1),
    ("call", "calls", 0, "first", 1),
    ("call", "calls", 0, "count", 0),
    ("binding", "bindings", 0, "operand", 1),
    ("binding", "bindings", 0, "operand", -2),
    ("place", "bindings", 0, "place", 6),
    ("alignment", "bindings", 0, "address", 2),
    ("alignment", "bindings", 0, "strides.0", 30),
    ("address", "bindings", 0, "address", -4),
    ("address", "bindings", 0, "strides.0", 1 << 12),
    ("overflow", "bindings", 0, "strides.0", -(1 << 63)),
    ("binding", "bindings", 0, "starts.0", 1),
    ("extent", "bindings", 0, "starts.0", -1),
    ("extent", "bindings", 0, "lengths.0", (1 << 63) - 1),
    ("cover", "bindings", 0, "lengths.0", 3),
    ("cover", "bindings", 1, "lengths.1", 7),
    ("waits", "waits", 0, "", 1),
    ("waits", "waits", 0, "", -1),
    ("waits", "wait_offsets", 1, "", 5),
    ("waits", "wait_offsets", 0, "", 1),
)


@pytest.mark.parametrize(("violation", "table", "row", "field", "value"), FIELDS)
def test_fields_that_name_nothing_or_are_beyond_reason_are_refused(
    violation: str, table: str, row: int, field: str, value: int
) -> None:
    program = simple()
    prove(program)
    error = refused(changed(program, **{table: (row, field, value)}))
    assert error.violation == violation
    assert error.code == "invalid_program"


def test_an_error_names_command_violation_amount_and_limit() -> None:
    error = refused(changed(simple(), commands=(2, "source_address", 2000)))
    assert (error.command, error.violation, error.actual, error.limit) == (2, "address", 2128, 2048)
    assert str(error).startswith("command 2: an access leaves its memory (stage program); actual 2128; limit 2048. ")


@pytest.mark.parametrize(
    ("field", "value"),
    [("starts", 1), ("starts", -1), ("lengths", 0), ("lengths", 1 << 62), ("begins", 2), ("ends", 0), ("sum_stop", 3)],
)
def test_entries_outside_the_tensor_or_without_meaning_are_refused(field: str, value: int) -> None:
    program = simple()
    entries = program.tables[0].entries.copy()
    entries[field][0] = value
    assert refused(replace(program, tables=(replace(program.tables[0], entries=entries),))).violation == "entry"


def test_a_unit_that_is_no_op_or_does_not_fit_is_refused() -> None:
    program = simple()
    unit, table = program.units[0], program.tables[0]
    for wrong in (replace(unit, kind="Nothing"), replace(unit, gathers=3), replace(unit, accumulator_dtype="int5")):
        assert refused(replace(program, units=(wrong,))).violation == "unit"
    for extent in (2**64, -1):
        assert refused(replace(program, units=(replace(unit, extents=(4, extent)),))).violation == "unit"
    wrong = replace(unit, kind="Conv")
    assert refused(replace(program, units=(wrong,))).violation == "table"
    wrong = replace(unit, extents=(4, 7))
    assert refused(replace(program, units=(wrong,))).violation == "entry"
    assert refused(replace(program, tables=(replace(table, unit=1),))).violation == "table"
    assert refused(replace(program, tables=(replace(table, operand_shapes=((4,),)),))).violation == "table"


def test_a_unit_whose_op_objects_to_its_attributes_is_refused_without_advice_for_models() -> None:
    builder = Builder()
    x, y = builder.region("x", Role.INPUT, (4, 8)), builder.region("y", Role.OUTPUT, (4, 2))
    builder.transfer(Opcode.LOAD, IODMA0, (DRAM, x), (NRAM0, 0), 128)
    table = builder.table("FusedAttention", ((4, 8), (8, 6), (6, 2)), (4, 2))
    bounds = tuple(
        (number, Bound(place=NRAM0, address=0, box=((0, rows), (0, columns))))
        for number, (rows, columns) in ((0, (4, 8)), (1, (8, 6)), (2, (6, 2)), (OUTPUT, (4, 2)))
    )
    builder.call(CORE0, table, ((0, 4), (0, 2)), bounds)
    builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 0), (DRAM, y), 32)
    program = builder.build()
    steps = (("steps", ("sideways",)), ("numbers", (1.0,)))
    (unit,) = program.units
    error = refused(replace(program, units=(replace(unit, attributes=steps),)))
    assert error.violation == "table"
    assert "an unknown step of the scores: sideways" in str(error)
    assert "export the model" not in str(error)


def test_reading_what_nobody_wrote_is_refused() -> None:
    error = refused(changed(simple(), commands=(0, "run_bytes", 124)))
    assert (error.violation, error.command) == ("unwritten", 1)
    assert "nram 0" in error.message


def test_an_output_that_is_not_written_completely_is_refused() -> None:
    assert refused(changed(simple(), commands=(2, "run_bytes", 124))).violation == "incomplete"

    def never(builder: Builder) -> None:
        builder.region("z", Role.OUTPUT, (1,))

    assert refused(simple(never)).violation == "incomplete"


def test_the_dram_is_written_once_and_its_inputs_never() -> None:
    def again(builder: Builder) -> None:
        builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 128), (DRAM, 192), 4)

    assert refused(simple(again)).violation == "write-once"

    def over(builder: Builder) -> None:
        builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 128), (DRAM, 0), 4)

    assert refused(simple(over)).violation == "read-only"


def test_weights_that_stay_on_the_chip_are_there_and_are_not_overwritten() -> None:
    def resident(builder: Builder) -> None:
        builder.region("w", Role.WEIGHT, (8,))
        builder.residents.append(Resident(place=NRAM0, address=512, region=2, starts=(0,), lengths=(8,), strides=(4,)))
        builder.transfer(Opcode.MOVE, CORE0, (NRAM0, 512), (NRAM0, 640), 32)

    assert prove(simple(resident)).peak_bytes[NRAM0] == 672

    def over(builder: Builder) -> None:
        resident(builder)
        builder.transfer(Opcode.MOVE, CORE0, (NRAM0, 640), (NRAM0, 540), 32)

    assert refused(simple(over)).violation == "read-only"

    def beyond(builder: Builder) -> None:
        resident(builder)
        builder.residents[0] = replace(builder.residents[0], address=2040)

    assert refused(simple(beyond)).violation == "address"


def test_two_commands_on_the_same_bytes_are_ordered() -> None:
    """PROG-4: read after write, write after write and write after read; by waits, queues or through others."""
    program = simple()
    for command in (1, 2):
        offsets = program.wait_offsets.copy()
        offsets[command + 1 :] -= 1
        without = program.once(program.commands, offsets, np.delete(program.waits, command - 1))
        error = refused(without)
        assert (error.violation, error.command) == ("dependency", command)

    def after(builder: Builder, waits: tuple[int, ...]) -> None:
        # writes over what command 1 reads
        builder.transfer(Opcode.MOVE, MVDMA0, (NRAM0, 128), (NRAM0, 0), 4, waits=waits)

    assert refused(simple(lambda b: after(b, (0,)))).violation == "dependency"
    prove(simple(lambda b: after(b, (1,))))
    # command 2 waits for command 1
    prove(simple(lambda b: after(b, (2,))))

    def twice(builder: Builder, waits: tuple[int, ...]) -> None:
        builder.transfer(Opcode.LOAD, IODMA0, (DRAM, 0), (NRAM0, 1024), 4, waits=())
        builder.transfer(Opcode.MOVE, MVDMA0, (NRAM0, 0), (NRAM0, 1024), 4, waits=(0, *waits))

    assert refused(simple(lambda b: twice(b, ()))).violation == "dependency"
    prove(simple(lambda b: twice(b, (3,))))


def test_a_barrier_orders_what_it_waits_for_and_what_waits_for_it() -> None:
    def over(builder: Builder) -> None:
        builder.barrier(BUS, (2,))
        builder.transfer(Opcode.MOVE, MVDMA0, (NRAM0, 128), (NRAM0, 0), 4, waits=(3,))

    prove(simple(over))

    def idle(builder: Builder) -> None:
        builder.barrier(BUS, ())
        builder.transfer(Opcode.MOVE, MVDMA0, (NRAM0, 128), (NRAM0, 0), 4, waits=(3,))

    assert refused(simple(idle)).violation == "dependency"


@pytest.mark.parametrize(
    ("violation", "opcode", "queue", "source", "target", "targets"),
    [
        ("", Opcode.LOAD, IODMA1, (DRAM, 0), (NRAM1, 0), 1),
        ("engine", Opcode.LOAD, IODMA0, (DRAM, 0), (NRAM1, 0), 1),
        ("", Opcode.LOAD, IODMA0, (DRAM, 0), (NRAM0, 512), 2),
        ("engine", Opcode.LOAD, GDMA, (DRAM, 0), (NRAM0, 512), 1),
        ("", Opcode.LOAD, GDMA, (DRAM, 0), (SRAM, 0), 1),
        ("engine", Opcode.LOAD, MVDMA0, (DRAM, 0), (NRAM0, 512), 1),
        ("route", Opcode.LOAD, IODMA0, (NRAM0, 0), (WRAM0, 512), 1),
        ("route", Opcode.STORE, IODMA0, (NRAM0, 0), (WRAM0, 512), 1),
        ("", Opcode.MOVE, MVDMA0, (NRAM0, 0), (SRAM, 0), 1),
        ("route", Opcode.MOVE, MVDMA0, (NRAM0, 0), (NRAM1, 0), 1),
        ("", Opcode.EXCHANGE, MVDMA0, (NRAM0, 0), (NRAM1, 0), 1),
        ("engine", Opcode.EXCHANGE, CORE0, (NRAM0, 0), (NRAM1, 0), 1),
        ("engine", Opcode.MOVE, CORE1, (NRAM0, 0), (NRAM0, 512), 1),
        ("route", Opcode.MOVE, LINK0, (NRAM0, 0), (NRAM1, 0), 1),
        ("", Opcode.EXCHANGE, LINK0, (NRAM0, 0), (NRAM1, 0), 1),
        ("route", Opcode.EXCHANGE, LINK0, (NRAM0, 0), (NRAM0, 512), 1),
        ("route", Opcode.EXCHANGE, LINK0, (NRAM0, 0), (NRAM0, 512), 2),
        ("engine", Opcode.EXCHANGE, BUS, (NRAM0, 0), (NRAM1, 512), 1),
        ("", Opcode.BROADCAST, LINK0, (NRAM0, 0), (NRAM0, 512), 2),
        ("engine", Opcode.BROADCAST, BUS, (NRAM0, 0), (NRAM0, 512), 2),
        ("engine", Opcode.BROADCAST, LINK1, (NRAM0, 0), (NRAM0, 512), 2),
        ("engine", Opcode.COMPUTE, IODMA0, (NRAM0, 0), (NRAM0, 512), 1),
        ("engine", Opcode.LOAD, CORE0, (DRAM, 0), (NRAM0, 512), 1),
        ("opcode", Opcode.GATHER, IODMA0, (NRAM0, 0), (NRAM0, 512), 1),
    ],
)
def test_an_engine_does_only_its_own_work(
    violation: str, opcode: Opcode, queue: int, source: tuple[int, int], target: tuple[int, int], targets: int
) -> None:
    """PROF-2: which memories an engine connects, and whose."""

    def add(builder: Builder) -> None:
        builder.transfer(opcode, queue, source, target, 64, targets=targets)
        if opcode in (Opcode.COMPUTE, Opcode.GATHER):
            builder.commands[-1] = (*builder.commands[-1][:-1], 0)

    if violation:
        assert refused(simple(add)).violation == violation
    else:
        prove(simple(add))


def test_a_core_computes_in_its_own_memories_only() -> None:
    program = simple()
    assert refused(changed(program, commands=(1, "queue", CORE1))).violation == "engine"
    assert refused(changed(program, bindings=(0, "place", SRAM))).violation == "engine"


def test_engines_that_are_one_component_share_a_queue() -> None:
    """PROF-2: with `shared` the queue of one serves the memories of the other."""
    builder = Builder(queues=(Queue(engine="mvdma", number=0), Queue(engine="gdma", number=0)))
    builder.region("x", Role.INPUT, (8,))
    builder.transfer(Opcode.LOAD, 0, (DRAM, 0), (NRAM0, 0), 32)
    # a queue of the cluster serves each of its cores
    builder.transfer(Opcode.LOAD, 1, (DRAM, 0), (NRAM1, 0), 32)
    program = builder.build()
    assert refused(program).violation == "engine"
    assert refused(program, shared=(("mvdma", "iodma"),)).violation == "engine"
    prove(program, shared=(("mvdma", "iodma", "gdma"),))


def test_a_write_names_each_byte_once() -> None:
    def strided(builder: Builder, stride: int) -> None:
        builder.transfer(Opcode.MOVE, CORE0, (NRAM0, 0), (NRAM0, 512), 8, (4,), (8,), (stride,))

    prove(simple(lambda b: strided(b, 16)))
    for stride in (0, 4):
        assert refused(simple(lambda b, s=stride: strided(b, s))).violation == "twice"  # type: ignore[misc]


def test_strides_may_run_backwards_and_reads_may_repeat() -> None:
    def reversed_rows(builder: Builder) -> None:
        builder.transfer(Opcode.MOVE, CORE0, (NRAM0, 96), (NRAM0, 512), 32, (4,), (-32,), (32,))
        builder.transfer(Opcode.MOVE, CORE0, (NRAM0, 0), (NRAM0, 640), 32, (4,), (0,), (32,))
        builder.transfer(Opcode.MOVE, CORE0, (NRAM0, 0), (NRAM0, 1024), 32, (4,), (8,), (32,))

    prove(simple(reversed_rows))


def elementwise(operand: Bound, result: Bound, kind: str = "Relu", **attributes: Any) -> Program:
    """x in the first 256 bytes of NRAM 0, and one call of a unary op on them."""
    builder = Builder()
    x = builder.region("x", Role.INPUT, (8, 8))
    builder.transfer(Opcode.LOAD, IODMA0, (DRAM, x), (NRAM0, 0), 256)
    table = builder.table(kind, ((8, 8),), (8, 8), **attributes)
    builder.call(CORE0, table, result.box, ((0, operand), (OUTPUT, result)))
    return builder.build()


def test_a_result_may_lie_on_an_operand_only_position_by_position() -> None:
    box = ((0, 4), (0, 8))
    held = Bound(place=NRAM0, address=0, box=box)
    prove(elementwise(held, held))
    assert refused(elementwise(held, replace(held, address=32))).violation == "overlap"
    other = replace(held, address=128, strides=(-32, 4))
    assert refused(elementwise(held, other)).violation == "overlap"
    # bytes of one that lie between those of the other do not meet
    sparse = Bound(place=NRAM0, address=0, box=((0, 4), (0, 4)), strides=(32, 4))
    prove(elementwise(sparse, replace(sparse, address=16)))
    square = Bound(place=NRAM0, address=0, box=((0, 8), (0, 8)))
    assert refused(elementwise(square, square, "Transpose", perm=(1, 0))).violation == "overlap"


def test_a_result_may_not_lie_on_an_operand_that_other_positions_need() -> None:
    builder = Builder()
    builder.region("x", Role.INPUT, (4, 8))
    builder.transfer(Opcode.LOAD, IODMA0, (DRAM, 0), (NRAM0, 0), 128)
    table = builder.table("Add", ((4, 8), (1, 8)), (4, 8))
    row = ((0, 1), (0, 8))
    left, right = Bound(place=NRAM0, address=0, box=row), Bound(place=NRAM0, address=32, box=row)
    builder.call(CORE0, table, row, ((0, left), (1, right), (OUTPUT, left)))
    prove(builder.build())
    assert refused(changed(builder.build(), bindings=(2, "address", 32))).violation == "overlap"


def test_an_operand_may_be_put_together_from_pieces() -> None:
    """SHAPE-3: several bindings per operand, which together hold the box that the call needs."""
    box = ((0, 4), (0, 8))

    def pieced(*pieces: Bound) -> Program:
        program = Builder()
        x = program.region("x", Role.INPUT, (8, 8))
        program.transfer(Opcode.LOAD, IODMA0, (DRAM, x), (NRAM0, 0), 256)
        table = program.table("Relu", ((8, 8),), (8, 8))
        result = Bound(place=NRAM0, address=512, box=box)
        program.call(CORE0, table, box, (*((0, piece) for piece in pieces), (OUTPUT, result)))
        return program.build()

    top = Bound(place=NRAM0, address=0, box=((0, 2), (0, 8)))
    prove(pieced(top, Bound(place=NRAM0, address=64, box=((2, 4), (0, 8)))))
    # reads may overlap, and reach beyond what is needed
    prove(pieced(top, Bound(place=NRAM0, address=32, box=((1, 5), (0, 8)))))
    error = refused(pieced(top, Bound(place=NRAM0, address=96, box=((3, 5), (0, 8)))))
    assert (error.violation, error.command, error.actual, error.limit) == ("cover", 1, 24.0, 32.0)
    corner = Bound(place=NRAM0, address=64, box=((1, 4), (1, 8)))
    assert refused(pieced(top, corner)).violation == "cover"
    assert refused(pieced()).violation == "cover"


def test_a_result_is_bound_exactly_once() -> None:
    box = ((0, 4), (0, 8))

    def pieced(*pieces: Bound) -> Program:
        program = Builder()
        x = program.region("x", Role.INPUT, (4, 8))
        program.transfer(Opcode.LOAD, IODMA0, (DRAM, x), (NRAM0, 0), 128)
        table = program.table("Relu", ((4, 8),), (4, 8))
        held = Bound(place=NRAM0, address=0, box=box)
        program.call(CORE0, table, box, ((0, held), *((OUTPUT, piece) for piece in pieces)))
        return program.build()

    top = Bound(place=NRAM0, address=512, box=((0, 2), (0, 8)))
    prove(pieced(top, Bound(place=WRAM0, address=64, box=((2, 4), (0, 8)))))
    assert refused(pieced(top, Bound(place=WRAM0, address=64, box=((1, 4), (0, 8))))).violation == "cover"
    assert refused(pieced(top, Bound(place=WRAM0, address=64, box=((3, 4), (0, 8))))).violation == "cover"
    # two pieces, one place
    assert refused(pieced(top, Bound(place=NRAM0, address=544, box=((2, 4), (0, 8))))).violation == "twice"


def partial_sums(*, begins: int = 0, first: tuple[int, int] = (0, 3), dtype: str = "float32") -> Program:
    """A product in two parts of its sum; the second reads what the first has left."""
    builder = Builder()
    builder.region("x", Role.INPUT, (4, 8), dtype)
    builder.region("w", Role.WEIGHT, (8, 8), dtype)
    builder.transfer(Opcode.LOAD, IODMA0, (DRAM, 0), (NRAM0, 0), 32 * builder.regions[0].strides[1])
    builder.transfer(Opcode.LOAD, IODMA0, (DRAM, builder.regions[1].address), (WRAM0, 0), builder.regions[1].size_bytes)
    table = builder.table("MatMul", ((4, 8), (8, 8)), (4, 8), dtype, accumulator="float32")
    bounds = (
        (0, Bound(place=NRAM0, address=0, box=BOX)),
        (1, Bound(place=WRAM0, address=0, box=((0, 8), (0, 8)))),
        (OUTPUT, Bound(place=NRAM0, address=256, box=BOX)),
    )
    builder.call(CORE0, table, BOX, bounds, sums=first, ends=0, waits=(0, 1))
    builder.call(CORE0, table, BOX, bounds, sums=(3, 8), begins=begins, waits=(0, 1))
    return builder.build()


def test_sums_may_be_made_in_parts() -> None:
    prove(partial_sums())
    # 16-bit results: their sums take twice the bytes
    assert prove(partial_sums(dtype="float16")).peak_bytes[NRAM0] == 256 + 4 * 32
    assert refused(partial_sums(begins=1)).violation == "entry"
    assert refused(partial_sums(first=(3, 3))).violation == "entry"
    assert refused(partial_sums(first=(0, 9))).violation == "entry"
    program = partial_sums()
    error = refused(changed(program, calls=(0, "entry", 1)))
    assert (error.violation, error.command) == ("unwritten", 2)


def test_regions_do_not_overlap_and_fit_their_bytes() -> None:
    program = simple()
    x, y = program.regions
    for wrong in (
        replace(y, address=124),
        replace(y, size_bytes=124),
        replace(y, address=1 << 20),
        replace(y, strides=(16, 4)),
        replace(y, strides=(32, 2)),
        replace(y, order=(0, 0)),
        replace(y, dtype="float5"),
        replace(y, shape=(1 << 30, 1 << 30)),
        replace(y, name="x"),
    ):
        assert refused(replace(program, regions=(x, wrong))).violation in ("region", "alignment", "shape", "size")


def test_limits_bound_what_verifying_costs() -> None:
    program = simple()
    for limits in (
        ProgramLimits(commands=2),
        ProgramLimits(bindings=1),
        ProgramLimits(dram_bytes=255),
        ProgramLimits(shadow_bytes=1),
        ProgramLimits(touched_bytes=767),
        ProgramLimits(clock_entries=39),
    ):
        assert refused(program, limits=limits).violation == "size"
    enough = ProgramLimits(
        commands=3, bindings=2, dram_bytes=256, shadow_bytes=4096, touched_bytes=768, clock_entries=40
    )
    prove(program, enough)
