"""SIM-1: programs run on flat byte memories, address for address."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from compiler.errors import RequestError
from compiler.ir.layout import strides_of
from compiler.program.errors import ProgramError
from compiler.program.loops.proof import prove
from compiler.program.program import OUTPUT, Decode, Opcode, Program, Resident, Role, Step
from compiler.simulator.values import Chip
from tests.compiler.program.builder import (
    CORE0,
    DRAM,
    IODMA0,
    LINK0,
    NRAM0,
    NRAM1,
    SRAM,
    WRAM0,
    Bound,
    Builder,
    changed,
)

RANDOM_SEED = 5


def floats(*shape: int) -> Any:
    """Values that are neither 0 nor alike."""
    return np.random.default_rng(RANDOM_SEED).standard_normal(shape).astype(np.float32)


def ran(program: Program, **given: Any) -> Chip:
    """The chip after a verified program has run on these values."""
    prove(program)
    chip = Chip(program)
    for name, array in given.items():
        chip.write(name, array)
    chip.run()
    return chip


def test_tensors_are_written_and_read_in_the_order_of_their_axes() -> None:
    """A region whose channels lie innermost takes and gives N, C, H, W."""
    builder = Builder()
    builder.region("x", Role.INPUT, (1, 3, 4, 5))
    order = (0, 2, 3, 1)
    builder.regions[0] = replace(builder.regions[0], order=order, strides=strides_of((1, 3, 4, 5), order, 4))
    chip = Chip(builder.build())
    values = floats(1, 3, 4, 5)
    chip.write("x", values)
    assert np.array_equal(chip.read("x"), values)
    assert chip.read("x").flags.c_contiguous
    in_memory = np.ascontiguousarray(values.transpose(order)).tobytes()
    assert chip.memory(DRAM).tobytes() == in_memory
    other = Chip(builder.build())
    other.load_weights("x", in_memory)
    assert np.array_equal(other.read("x"), values)


def test_wrong_tensors_are_refused_by_name() -> None:
    builder = Builder()
    builder.region("x", Role.INPUT, (2, 3))
    chip = Chip(builder.build())
    with pytest.raises(RequestError, match=r"'x'.*float32\[3, 2\].*float32\[2, 3\]"):
        chip.write("x", floats(3, 2))
    with pytest.raises(RequestError, match="element type"):
        chip.write("x", np.zeros((2, 3), np.float64))
    with pytest.raises(RequestError, match="no tensor 'z'"):
        chip.read("z")
    with pytest.raises(RequestError, match="bytes"):
        chip.load_weights("x", b"short")


def test_a_transfer_reads_all_before_it_writes_and_reaches_all_targets() -> None:
    builder = Builder()
    x, y = builder.region("x", Role.INPUT, (16,)), builder.region("y", Role.OUTPUT, (2, 16))
    builder.transfer(Opcode.LOAD, IODMA0, (DRAM, x), (NRAM0, 0), 64)
    # onto itself, one element further; then every second element, backwards, to both cores
    builder.transfer(Opcode.MOVE, CORE0, (NRAM0, 0), (NRAM0, 4), 60)
    builder.transfer(Opcode.BROADCAST, LINK0, (NRAM0, 60), (NRAM0, 256), 4, (2, 8), (0, -8), (32, 4), targets=2)
    builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 256), (DRAM, y), 64)
    builder.transfer(Opcode.EXCHANGE, LINK0, (NRAM1, 256), (NRAM0, 512), 64)
    builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 512), (DRAM, y + 64), 64)
    x_values = floats(16)
    moved = np.concatenate([x_values[:1], x_values[:15]])
    expected = np.tile(moved[::-2], 2)
    found = ran(builder.build(), x=x_values).read("y")
    assert np.array_equal(found, np.stack([expected, expected]))


def test_a_broadcast_onto_its_own_source_reaches_others_as_it_was() -> None:
    """Three bytes, one further in both cores: a word would be too wide."""
    builder = Builder()
    x, y = builder.region("x", Role.INPUT, (4,), "uint8"), builder.region("y", Role.OUTPUT, (2, 3), "uint8")
    builder.transfer(Opcode.LOAD, IODMA0, (DRAM, x), (NRAM0, 0), 4)
    builder.transfer(Opcode.BROADCAST, LINK0, (NRAM0, 0), (NRAM0, 1), 3, targets=2)
    builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 1), (DRAM, y), 3)
    builder.transfer(Opcode.STORE, IODMA0 + 1, (NRAM1, 1), (DRAM, y + 3), 3)
    found = ran(builder.build(), x=np.array([5, 6, 7, 8], np.uint8)).read("y")
    assert found.tolist() == [[5, 6, 7], [5, 6, 7]]


def test_every_step_is_observed_when_its_last_command_has_run() -> None:
    builder = Builder()
    x, y = builder.region("x", Role.INPUT, (4,)), builder.region("y", Role.OUTPUT, (4,))
    builder.transfer(Opcode.LOAD, IODMA0, (DRAM, x), (NRAM0, 0), 16)
    builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 0), (DRAM, y), 16)
    program = changed(builder.build(), commands=(1, "step", 1))
    program = replace(program, steps=(*program.steps, Step(group="h", nodes=("m",), tensor="y")))
    chip = Chip(program)
    chip.write("x", floats(4))
    seen: list[tuple[int, str, float]] = []
    chip.run(lambda number, step, found: seen.append((number, step.tensor, float(found.read("y").sum()))))
    assert seen == [(0, "t", 0.0), (1, "y", float(floats(4).sum()))]


def convolution(pieces: bool) -> Program:
    """A 3×3 convolution in four tiles whose halos are cut at the border; with pieces rows lie in two buffers."""
    builder = Builder()
    x = builder.region("x", Role.INPUT, (1, 2, 6, 6))
    w = builder.region("w", Role.WEIGHT, (3, 2, 3, 3))
    y = builder.region("y", Role.OUTPUT, (1, 3, 6, 6))
    table = builder.table(
        "Conv",
        ((1, 2, 6, 6), (3, 2, 3, 3)),
        (1, 3, 6, 6),
        dilations=(1, 1),
        group=1,
        kernel_shape=(3, 3),
        pads=(1, 1, 1, 1),
        strides=(1, 1),
    )
    builder.transfer(Opcode.LOAD, IODMA0, (DRAM, w), (WRAM0, 0), 216)
    weights = (1, Bound(place=WRAM0, address=0, box=((0, 3), (0, 2), (0, 3), (0, 3))))
    for tile in range(4):
        row, column = 3 * (tile // 2), 3 * (tile % 2)
        box = ((0, 1), (0, 3), (row, row + 3), (column, column + 3))
        rows, columns = (max(0, row - 1), min(6, row + 4)), (max(0, column - 1), min(6, column + 4))
        cuts = [rows[0], rows[0] + 1, rows[1]] if pieces else [*rows]
        bounds = []
        for number, (low, high) in enumerate(pairwise(cuts)):
            width = columns[1] - columns[0]
            size = 4 * (high - low) * width
            at = 512 * number
            builder.transfer(
                *(Opcode.LOAD, IODMA0, (DRAM, x + 24 * low + 4 * columns[0]), (NRAM0, at), 4 * width),
                *((2, high - low), (144, 24), (size, 4 * width)),
            )
            bounds.append((0, Bound(place=NRAM0, address=at, box=((0, 1), (0, 2), (low, high), columns))))
        builder.call(CORE0, table, box, (*bounds, weights, (OUTPUT, Bound(place=NRAM0, address=1024, box=box))))
        builder.transfer(
            *(Opcode.STORE, IODMA0, (NRAM0, 1024), (DRAM, y + 24 * row + 4 * column), 12),
            *((3, 3), (36, 12), (144, 24)),
        )
    return builder.build()


@pytest.mark.parametrize("pieces", [False, True])
def test_tiles_of_a_convolution_make_the_whole(pieces: bool) -> None:
    """Against loops over taps; borders are those of the tensor, wherever the tile lies."""
    x, w = floats(1, 2, 6, 6), floats(3, 2, 3, 3)
    padded = np.pad(x[0], ((0, 0), (1, 1), (1, 1)))
    expected = np.zeros((3, 6, 6), np.float32)
    for r in range(3):
        for s in range(3):
            expected += np.einsum("kc,chw->khw", w[:, :, r, s], padded[:, r : r + 6, s : s + 6])
    found = ran(convolution(pieces), x=x, w=w).read("y")
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_partial_sums_add_up_and_are_finished_in_place(dtype: str) -> None:
    """TILE-6: sums wait in the accumulator's type; bias, factors and narrowing come last.

    The result's binding is larger than the boxes that are computed, one after another.
    """
    builder = Builder()
    size = np.dtype(dtype).itemsize
    shapes = {"a": (3, 8), "b": (8, 4), "c": (4,)}
    at = {
        name: builder.region(name, Role.INPUT if name == "a" else Role.WEIGHT, s, dtype) for name, s in shapes.items()
    }
    y = builder.region("y", Role.OUTPUT, (3, 4), dtype)
    places = {"a": (NRAM0, 0), "b": (WRAM0, 0), "c": (WRAM0, 512)}
    for name, shape in shapes.items():
        builder.transfer(Opcode.LOAD, IODMA0, (DRAM, at[name]), places[name], int(np.prod(shape)) * size)
    accumulator = "int32" if dtype == "int32" else "float32"
    attributes: dict[str, Any] = {} if dtype == "int32" else {"alpha": 0.5, "beta": 2.0}
    table = builder.table(
        "Gemm", tuple(shapes.values()), (3, 4), dtype, accumulator=accumulator, transA=0, transB=0, **attributes
    )
    box = ((0, 3), (0, 4))
    bounds = [
        (number, Bound(place=places[name][0], address=places[name][1], box=tuple((0, extent) for extent in shape)))
        for number, (name, shape) in enumerate(shapes.items())
    ]
    result = (OUTPUT, Bound(place=NRAM0, address=512, box=box))
    for rows, parts in product(((0, 1), (1, 3)), ((0, 3), (3, 7), (7, 8))):
        is_last = parts[1] == 8
        builder.call(
            *(CORE0, table, (rows, box[1]), (*bounds[: 3 if is_last else 2], result)),
            sums=parts,
            begins=int(parts[0] == 0),
            ends=int(is_last),
            waits=(0, 1, 2),
        )
    builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 512), (DRAM, y), 12 * size, waits=(8,))
    given = {name: np.rint(floats(*shape) * 4).astype(dtype) for name, shape in shapes.items()}
    wide = {name: array.astype(np.float64) for name, array in given.items()}
    expected = wide["a"] @ wide["b"] * attributes.get("alpha", 1) + attributes.get("beta", 1) * wide["c"]
    found = ran(builder.build(), **given).read("y")
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=1e-3)


def test_quantised_weights_are_decoded_as_they_are_used() -> None:
    """A weight keeps its stored element type in memory; scale and zero point are the unit's."""
    builder = Builder()
    x, w = builder.region("x", Role.INPUT, (2, 4)), builder.region("w", Role.WEIGHT, (4, 3), "int8")
    y = builder.region("y", Role.OUTPUT, (2, 3))
    builder.transfer(Opcode.LOAD, IODMA0, (DRAM, x), (NRAM0, 0), 32)
    builder.transfer(Opcode.LOAD, IODMA0, (DRAM, w), (WRAM0, 0), 12)
    table = builder.table("MatMul", ((2, 4), (4, 3)), (2, 3))
    scale, zero = np.array([0.5, 0.25, 2.0], np.float32), np.array([1, -2, 0], np.int8)
    unit = builder.units[0]
    operand = unit.operands[1]
    assert operand is not None
    decode = Decode(scale=scale.tobytes(), zero=zero.tobytes(), shape=(1, 3), dtype="float32")
    for column in range(3):
        box = ((0, 2), (column, column + 1))
        builder.call(
            *(CORE0, table, box),
            (
                (0, Bound(place=NRAM0, address=0, box=((0, 2), (0, 4)))),
                (1, Bound(place=WRAM0, address=column, box=((0, 4), (column, column + 1)), strides=(3, 1))),
                (OUTPUT, Bound(place=NRAM0, address=256 + 4 * column, box=box, strides=(12, 4))),
            ),
        )
    builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 256), (DRAM, y), 24)
    quantised = replace(operand, stored_dtype="int8")
    builder.units[0] = replace(unit, operands=(unit.operands[0], replace(quantised, decode=decode)))
    x_values, w_values = floats(2, 4), np.arange(-6, 6, dtype=np.int8).reshape(4, 3)
    found = ran(builder.build(), x=x_values, w=w_values).read("y")
    expected = x_values @ ((w_values.astype(np.float32) - zero) * scale)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    builder.units[0] = replace(unit, operands=(unit.operands[0], quantised))
    with pytest.raises(ProgramError, match="how operand 1 is decoded"):
        ran(builder.build(), x=x_values, w=w_values)


def gathering() -> Program:
    """Rows of a table in DRAM, named by indices that lie on the chip."""
    builder = Builder()
    table_at, i = builder.region("t", Role.WEIGHT, (10, 4)), builder.region("i", Role.INPUT, (2, 3), "int64")
    y = builder.region("y", Role.OUTPUT, (2, 3, 4))
    builder.transfer(Opcode.LOAD, IODMA0, (DRAM, i), (NRAM0, 0), 48)
    table = builder.table("Gather", ((10, 4), (2, 3)), (2, 3, 4), dtypes=("float32", "int64"), gathers=0, axis=0)
    for row in range(2):
        box = ((row, row + 1), (0, 3), (1, 4))
        bounds = (
            (0, Bound(place=DRAM, address=table_at, box=((0, 10), (0, 4)))),
            (1, Bound(place=NRAM0, address=0, box=((0, 2), (0, 3)))),
            (OUTPUT, Bound(place=NRAM0, address=256 + 52 * row, box=box)),
        )
        builder.call(IODMA0, table, box, bounds, opcode=Opcode.GATHER)
        whole = ((row, row + 1), (0, 3), (0, 1))
        builder.call(
            IODMA0,
            table,
            whole,
            (*bounds[:2], (OUTPUT, Bound(place=NRAM0, address=512, box=whole))),
            opcode=Opcode.GATHER,
        )
        builder.transfer(
            Opcode.STORE, IODMA0, (NRAM0, 256 + 52 * row), (DRAM, y + 48 * row + 4), 12, (3,), (12,), (16,)
        )
        builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 512), (DRAM, y + 48 * row), 4, (3,), (4,), (16,))
    return builder.build()


def test_rows_that_indices_name_are_gathered() -> None:
    """Only the rows that are named are read; negative indices count from the end."""
    table, indices = floats(10, 4), np.array([[0, -1, 3], [9, -10, 3]])
    assert np.array_equal(ran(gathering(), t=table, i=indices).read("y"), table[indices])


@pytest.mark.parametrize("index", [10, -11, 1 << 62, -(1 << 63)])
def test_an_index_outside_the_table_is_an_error_that_names_it(index: int) -> None:
    with pytest.raises(ProgramError) as found:
        ran(gathering(), t=floats(10, 4), i=np.array([[0, 1, 2], [3, 4, index]]))
    error = found.value
    assert (error.violation, error.command, error.actual, error.limit) == ("index", 5, index, "-10 to 9")


def test_a_program_that_leaves_its_memories_does_not_run() -> None:
    """The simulator believes no program, verified or not."""
    program = convolution(False)
    Chip(program)
    with pytest.raises(ProgramError) as found:
        Chip(changed(program, commands=(1, "target_address", 2000)))
    assert (found.value.violation, found.value.command) == ("address", 1)
    with pytest.raises(ProgramError) as found:
        Chip(changed(program, bindings=(0, "address", 1996)))
    assert found.value.violation == "address"


def test_a_call_that_cannot_be_computed_is_the_programs_fault() -> None:
    """PROG-4: attributes that no import would make end in an error that names the command, whatever they are."""
    program = convolution(False)
    unit = program.units[0]
    attributes = {**dict(unit.attributes), "pads": (1 << 40, 1, 1, 1)}
    with pytest.raises(ProgramError):
        ran(replace(program, units=(replace(unit, attributes=tuple(attributes.items())),)), x=floats(1, 2, 6, 6))
    attributes = {**dict(unit.attributes), "group": 0}
    with pytest.raises(ProgramError):
        ran(replace(program, units=(replace(unit, attributes=tuple(attributes.items())),)), x=floats(1, 2, 6, 6))


def test_weights_that_stay_are_in_place_before_the_program_runs() -> None:
    builder = Builder()
    builder.region("w", Role.WEIGHT, (4, 6))
    y = builder.region("y", Role.OUTPUT, (2, 3))
    builder.residents.append(Resident(place=WRAM0, address=64, region=0, starts=(1, 2), lengths=(2, 3), strides=(4, 8)))
    builder.transfer(Opcode.MOVE, CORE0, (WRAM0, 64), (NRAM0, 0), 24)
    builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 0), (DRAM, y), 4, (2, 3), (4, 8), (12, 4))
    w = floats(4, 6)
    assert np.array_equal(ran(builder.build(), w=w).read("y"), w[1:3, 2:5])


def test_memory_on_the_chip_holds_nothing_useful_before_it_is_written() -> None:
    """What reads it gets what is no number, so that a program that relies on it fails visibly."""
    builder = Builder()
    y = builder.region("y", Role.OUTPUT, (4,))
    builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 0), (DRAM, y), 16)
    with pytest.raises(ProgramError, match="nobody has written"):
        prove(builder.build())
    chip = Chip(builder.build())
    chip.run()
    assert np.isnan(chip.read("y")).all()
    assert len(chip.memory(SRAM)) == 0
