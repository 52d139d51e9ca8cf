"""Random valid programs: tiles of matrix products and elementwise ops on two cores, with every kind of transfer."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.program.program import OUTPUT, Opcode, Program, Resident, Role
from tests.compiler.program.builder import (
    CORE0,
    DRAM,
    GDMA,
    IODMA0,
    LINK0,
    MVDMA0,
    NRAM0,
    SRAM,
    WRAM0,
    Bound,
    Builder,
)

ROWS, INNER, COLUMNS = 4, 6, 5


def random_program(seed: int) -> tuple[Program, dict[str, Any]]:
    """A program, and values for its inputs and weights; y = relu(x·w) + v tile by tile, in random ways."""
    random = np.random.default_rng(seed)
    builder = Builder()
    tiles = int(random.integers(2, 6))
    shape = (ROWS * tiles, INNER)
    result = (ROWS * tiles, COLUMNS)
    x, w = builder.region("x", Role.INPUT, shape), builder.region("w", Role.WEIGHT, (INNER, COLUMNS))
    v = builder.region("v", Role.INPUT, result)
    y = builder.region("y", Role.OUTPUT, result)
    weights: Box = ((0, INNER), (0, COLUMNS))
    product = builder.table("MatMul", (shape, (INNER, COLUMNS)), result)
    relu, add = builder.table("Relu", (result,), result), builder.table("Add", (result, result), result)
    stays = random.random() < 0.5
    for core in (0, 1):
        if stays:
            builder.residents.append(_resident(WRAM0 + core))
        else:
            size = 4 * INNER * COLUMNS
            builder.transfer(Opcode.LOAD, IODMA0 + core, (DRAM, w), (WRAM0 + core, 0), size)
    spill = builder.region("spill", Role.INTERMEDIATE, result)
    for tile in random.permutation(tiles).tolist():
        core = int(random.integers(2))
        nram, queue = NRAM0 + core, CORE0 + core
        # few addresses, so that tiles meet and have to wait for each other
        half = int(random.integers(2)) * 1024
        box = ((tile * ROWS, tile * ROWS + ROWS), (0, COLUMNS))
        data = ((tile * ROWS, tile * ROWS + ROWS), (0, INNER))
        at, out, other = half, half + 128, half + 256
        _bring(builder, random, core, x + tile * ROWS * INNER * 4, at, ROWS, INNER * 4)
        held = Bound(place=nram, address=out, box=box, strides=(32, 4))
        # one product, or the sum in two parts
        bounds = ((0, Bound(place=nram, address=at, box=data)), (1, Bound(place=WRAM0 + core, address=0, box=weights)))
        if random.random() < 0.5:
            builder.call(queue, product, box, (*bounds, (OUTPUT, held)))
        else:
            cut = int(random.integers(1, INNER))
            builder.call(queue, product, box, (*bounds, (OUTPUT, held)), sums=(0, cut), ends=0)
            builder.call(queue, product, box, (*bounds, (OUTPUT, held)), sums=(cut, INNER), begins=0)
        builder.call(queue, relu, box, ((0, held), (OUTPUT, held)))
        _bring(builder, random, core, v + tile * ROWS * COLUMNS * 4, other, ROWS, COLUMNS * 4)
        bound = Bound(place=nram, address=other, box=box)
        builder.call(queue, add, box, ((0, held), (1, bound), (OUTPUT, held)))
        _send(builder, random, core, out, y, spill, tile)
    values = {
        "x": random.standard_normal(shape).astype(np.float32),
        "w": random.standard_normal((INNER, COLUMNS)).astype(np.float32),
        "v": random.standard_normal(result).astype(np.float32),
    }
    return builder.build(), values


Box = tuple[tuple[int, int], ...]


def expected(values: dict[str, Any]) -> Any:
    """What the random programs compute."""
    return np.maximum(values["x"] @ values["w"], 0) + values["v"]


def _resident(place: int) -> Resident:
    return Resident(place=place, address=0, region=1, starts=(0, 0), lengths=(INNER, COLUMNS), strides=(4 * COLUMNS, 4))


def _bring(
    builder: Builder, random: np.random.Generator, core: int, source: int, at: int, rows: int, row_bytes: int
) -> None:
    """Rows from the DRAM to a core: directly, or by the SRAM; sometimes by way of the other core."""
    way, total = int(random.integers(3)), rows * row_bytes
    if way == 0:
        counts, strides = (rows,), (row_bytes,)
        builder.transfer(
            Opcode.LOAD, IODMA0 + core, (DRAM, source), (NRAM0 + core, at), row_bytes, counts, strides, strides
        )
    elif way == 1:
        buffer = int(random.integers(3)) * 256
        builder.transfer(Opcode.LOAD, GDMA, (DRAM, source), (SRAM, buffer), total)
        builder.transfer(Opcode.MOVE, MVDMA0 + core, (SRAM, buffer), (NRAM0 + core, at), total)
    else:
        other = 1 - core
        builder.transfer(Opcode.LOAD, IODMA0 + other, (DRAM, source), (NRAM0 + other, 768), total)
        builder.transfer(Opcode.EXCHANGE, LINK0 + other, (NRAM0 + other, 768), (NRAM0 + core, at), total)


def _send(builder: Builder, random: np.random.Generator, core: int, out: int, y: int, spill: int, tile: int) -> None:
    """A tile's result to the DRAM, its rows made dense; sometimes spilled and brought back before."""
    nram, row, at = NRAM0 + core, COLUMNS * 4, tile * ROWS * COLUMNS * 4
    if random.random() < 0.3:
        builder.transfer(Opcode.STORE, IODMA0 + core, (nram, out), (DRAM, spill + at), row, (ROWS,), (32,), (row,))
        builder.transfer(Opcode.LOAD, IODMA0 + core, (DRAM, spill + at), (nram, out), row, (ROWS,), (row,), (32,))
    builder.transfer(Opcode.STORE, IODMA0 + core, (nram, out), (DRAM, y + at), row, (ROWS,), (32,), (row,))
