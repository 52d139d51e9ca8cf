"""A program as tiling makes it: cores that load, compute and store tile after tile, with double buffers."""

from __future__ import annotations

import numpy as np

from compiler.program.encoding.records import with_identifier
from compiler.program.loops.loops import Loops
from compiler.program.program import (
    BINDING,
    CALL,
    COMMAND,
    ENTRY,
    Level,
    Opcode,
    OperandType,
    ParameterTable,
    Place,
    Program,
    Queue,
    Region,
    Role,
    Step,
    Unit,
)

CHANNELS = 8
TILE = 8
_NONE = (0, 0, 0, 0)


def tiled_program(*, cores: int, layers: int, rows: int, columns: int) -> Program:
    """Layers of 3×3 convolutions over tiles, every core with its own output channels; float32, NHWC.

    The last row and column of tiles are narrower. Each core has two queues: its DMA and itself.
    """
    made = _Made()
    height, width = rows * TILE - 3, columns * TILE - 2
    for layer in range(layers):
        for tile in range(rows * columns):
            for core in range(cores):
                made.tile(layer, tile // columns, tile % columns, core, height, width, columns)
    map_bytes = height * width * CHANNELS * cores * 4
    operand = OperandType(dtype="float32", stored_dtype="float32", axes=("N", "C", "H", "W"), constant=False)
    unit = Unit(
        identifier="",
        kind="Conv",
        attributes=(("kernel_shape", (3, 3)), ("pads", (1, 1, 1, 1))),
        opset=9,
        operands=(operand, operand, None),
        output=operand,
        extents=(1, CHANNELS, TILE, TILE),
    )
    counts = [len(waits) for waits in made.waits]
    return Program(
        name="tiled",
        places=(
            Place(level=Level.DRAM, number=0, capacity_bytes=1 << 33),
            *(Place(level=Level.NRAM, number=core, capacity_bytes=1 << 19) for core in range(cores)),
        ),
        queues=tuple(Queue(engine=engine, number=core) for core in range(cores) for engine in ("iodma", "core")),
        steps=tuple(Step(group=f"g{n}", nodes=(f"conv{n}",), tensor=f"y{n}") for n in range(layers)),
        commands=np.array(made.commands, dtype=COMMAND),
        wait_offsets=np.cumsum([0, *counts]).astype(np.int32),
        waits=np.array([wait for waits in made.waits for wait in waits], dtype=np.int32),
        loops=Loops.one_iteration(len(made.commands), sum(counts)),
        calls=np.array(made.calls, dtype=CALL),
        bindings=np.array(made.bindings, dtype=BINDING),
        units=(with_identifier(unit),),
        tables=tuple(tiled_table(cores, rows, columns) for _ in range(layers)),
        regions=tuple(
            Region(
                name=f"x{n}",
                role=Role.INPUT if n == 0 else Role.OUTPUT if n == layers else Role.INTERMEDIATE,
                address=n * map_bytes,
                shape=(1, CHANNELS * cores, height, width),
                dtype="float32",
                order=(0, 2, 3, 1),
                strides=(map_bytes, 4, width * CHANNELS * cores * 4, CHANNELS * cores * 4),
                size_bytes=map_bytes,
            )
            for n in range(layers + 1)
        ),
        residents=(),
    )


def tiled_table(cores: int, rows: int, columns: int) -> ParameterTable:
    """The parameter table of one layer: all its tiles, channel block by channel block."""
    height, width = rows * TILE - 3, columns * TILE - 2
    entries = np.zeros(cores * rows * columns, dtype=ENTRY)
    core, row, column = (axis.ravel() for axis in np.indices((cores, rows, columns)))
    for axis, starts, size, end in (
        (1, core, CHANNELS, cores * CHANNELS),
        (2, row, TILE, height),
        (3, column, TILE, width),
    ):
        entries["starts"][:, axis] = starts * size
        entries["lengths"][:, axis] = np.minimum(size, end - starts * size)
    entries["lengths"][:, 0] = entries["begins"] = entries["ends"] = 1
    channels = cores * CHANNELS
    shapes = ((1, channels, height, width), (channels, channels, 3, 3))
    return ParameterTable(unit=0, operand_shapes=shapes, shape=(1, channels, height, width), entries=entries)


class _Made:
    """Commands, calls, bindings and waits so far, and the last commands that used each buffer."""

    def __init__(self) -> None:
        self.commands: list[tuple[object, ...]] = []
        self.waits: list[list[int]] = []
        self.calls: list[tuple[int, ...]] = []
        self.bindings: list[tuple[object, ...]] = []
        self._read: dict[tuple[int, int], int] = {}
        self._stored: dict[tuple[int, int], int] = {}

    def tile(self, layer: int, row: int, column: int, core: int, height: int, width: int, columns: int) -> None:
        """Load with halo, compute, store."""
        turn = (row * columns + column) % 2
        pixel = CHANNELS * 4
        top, left = max(0, row * TILE - 1), max(0, column * TILE - 1)
        high, wide = min(height, row * TILE + TILE + 1) - top, min(width, column * TILE + TILE + 1) - left
        out_high, out_wide = min(TILE, height - row * TILE), min(TILE, width - column * TILE)
        place, buffer, result = 1 + core, turn * 32768, 65536 + turn * 16384
        source = (layer * height * width + top * width + left) * pixel
        self._add(
            (
                *(Opcode.LOAD, 2 * core, layer, 0, place, 1, source, buffer, wide * pixel, (1, 1, 1, high)),
                *((0, 0, 0, width * pixel), (0, 0, 0, wide * pixel), -1),
            ),
            [self._read[core, turn]] if (core, turn) in self._read else [],
        )
        first = len(self.bindings)
        self._bind(0, place, buffer, (0, 0, top, left), (1, CHANNELS, high, wide))
        self._bind(
            -1, place, result, (0, core * CHANNELS, row * TILE, column * TILE), (1, CHANNELS, out_high, out_wide)
        )
        stored = [self._stored[core, turn]] if (core, turn) in self._stored else []
        call = (Opcode.COMPUTE, 2 * core + 1, layer, -1, -1, 0, 0, 0, 0, _NONE, _NONE, _NONE, len(self.calls))
        rows = -(-height // TILE)
        self.calls.append((layer, (core * rows + row) * columns + column, first, 2))
        self._read[core, turn] = self._add(call, [*stored, len(self.commands) - 1])
        target = ((layer + 1) * height * width + row * TILE * width + column * TILE) * pixel
        self._stored[core, turn] = self._add(
            (
                *(Opcode.STORE, 2 * core, layer, place, 0, 1, result, target, out_wide * pixel, (1, 1, 1, out_high)),
                *((0, 0, 0, out_wide * pixel), (0, 0, 0, width * pixel), -1),
            ),
            [len(self.commands) - 1],
        )

    def _add(self, command: tuple[object, ...], waits: list[int]) -> int:
        self.commands.append(command)
        self.waits.append(sorted(waits))
        return len(self.commands) - 1

    def _bind(self, operand: int, place: int, address: int, starts: tuple[int, ...], lengths: tuple[int, ...]) -> None:
        rest = (0, 0, 0, 0)
        _, channels, high, wide = lengths
        strides = (high * wide * channels * 4, 4, wide * channels * 4, channels * 4)
        self.bindings.append((operand, place, address, starts + rest, lengths + rest, strides + rest))
