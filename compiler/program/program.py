"""The program of one segment: places, queues, commands, calls of units, parameter tables (PROG-1, SHAPE-1 to SHAPE-3).

Grammar, on one page:

    program   = places  queues  commands*  loops  units*  tables*  regions*  constants*  address tables*
    place     = one memory: the DRAM, a cluster's SRAM, a core's NRAM...; addresses are bytes from its beginning
    queue     = one engine; its commands run one after another, in the order of the program
    command   = transfer(source bytes -> target bytes) | call(table entry, bindings) ; waits: commands it runs after
    loops     = for which tiles each command holds, and what it is there (`loops/loops.py`)
    call      = table, entry, bindings: which buffers hold the operands' boxes
    binding   = operand (OUTPUT, the input's number, or ADDRESSES less the number of an address table), place, address,
                box in the whole tensor, byte strides
    table     = unit, shapes of the whole tensors (common area), entries: output boxes in call order
    region    = a tensor in DRAM: input, output, or handed from group to group

A transfer copies `counts` runs of `run_bytes`, at the strides of either side, outermost first; with `targets` > 1 to
the same address of that many consecutive places. All it reads it reads before it writes. Counts are at least 1; the
ones not used are 1. On the target's side no byte is named twice; strides of either side may be negative, those of the
source 0.

Address tables (ADDR-5). A unit with a window reads input 0 by strides, or through the address tables that its call
binds: each is the words of `Program.addresses` in a memory beside the core, and every piece of the input then lies as
one of them says. A table is a region of the DRAM before it is loaded.

Partial sums. An entry that begins no sum adds to the one in the result's binding, an entry that ends none leaves it
there. Sums lie at the binding's address at its strides times r, where r is the size of the accumulator's element
divided by that of the result's: a binding always gives the strides of the result's own elements. The entry that ends a
sum reads it so, and writes the result at the same address at the strides given, which a buffer of the sums' size holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.address.table import AddressTable
from compiler.ir.graph import MAX_AXES, Attribute
from compiler.program.loops.loops import Loops

# Outer dimensions of one transfer; a binding names up to MAX_AXES axes of a tensor.
MAX_COUNTS: Final = 4
# The operand number of a call's result.
OUTPUT: Final = -1
# The operand number of address table 0; table t is bound as operand ADDRESSES - t.
ADDRESSES: Final = -2

Rows = NDArray[Any]


class Level(StrEnum):
    """The kinds of memory (PROF-2); weights have places of their own where a level is split."""

    DRAM = "dram"
    SRAM = "sram"
    SRAM_WEIGHTS = "sram-weights"
    NRAM = "nram"
    NRAM_WEIGHTS = "nram-weights"
    WRAM = "wram"


class Opcode(IntEnum):
    """What a command does (PROG-1).

    LOAD and STORE: DRAM to and from the chip. MOVE: between the memories of a cluster, or inside one. BROADCAST: one
    source, several consecutive targets; where the source's own bytes are among what it writes they stay as they are.
    EXCHANGE: core to core, cluster to cluster. COMPUTE: a call on a core. GATHER: a call on a
    DMA engine that reads the rows of a table that indices name. BARRIER: nothing; what waits for it waits for all it
    waits for.
    """

    LOAD = 0
    STORE = 1
    MOVE = 2
    BROADCAST = 3
    EXCHANGE = 4
    COMPUTE = 5
    GATHER = 6
    BARRIER = 7


class Role(StrEnum):
    """What a region of the DRAM is for."""

    INPUT = "input"
    OUTPUT = "output"
    INTERMEDIATE = "intermediate"
    WEIGHT = "weight"
    ADDRESSES = "addresses"


COMMAND: Final = np.dtype(
    [
        ("opcode", "<i4"),
        ("queue", "<i4"),
        ("step", "<i4"),
        ("source", "<i4"),
        ("target", "<i4"),
        ("targets", "<i4"),
        ("source_address", "<i8"),
        ("target_address", "<i8"),
        ("run_bytes", "<i8"),
        ("counts", "<i8", (MAX_COUNTS,)),
        ("source_strides", "<i8", (MAX_COUNTS,)),
        ("target_strides", "<i8", (MAX_COUNTS,)),
        ("call", "<i4"),
    ]
)
CALL: Final = np.dtype([("table", "<i4"), ("entry", "<i4"), ("first", "<i4"), ("count", "<i4")])
BINDING: Final = np.dtype(
    [
        ("operand", "<i4"),
        ("place", "<i4"),
        ("address", "<i8"),
        ("starts", "<i8", (MAX_AXES,)),
        ("lengths", "<i8", (MAX_AXES,)),
        ("strides", "<i8", (MAX_AXES,)),
    ]
)
# An entry: the output box, the range of the summed axis (0, 0: all of it), and whether sums begin and end here.
ENTRY: Final = np.dtype(
    [
        ("starts", "<i8", (MAX_AXES,)),
        ("lengths", "<i8", (MAX_AXES,)),
        ("sum_start", "<i8"),
        ("sum_stop", "<i8"),
        ("begins", "<i4"),
        ("ends", "<i4"),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One memory: its level, which one of that level on the chip, and its capacity in bytes."""

    level: Level
    number: int
    capacity_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One engine of the chip: its name in the profile (`core` computes), and which one of that name."""

    engine: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """How a stored quantised constant becomes numbers: (stored − zero) · scale, both broadcast over the tensor."""

    scale: bytes
    zero: bytes
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandType:
    """One operand of a unit: its element type as computed with and as stored, its axes, and whether it is a weight."""

    dtype: str
    stored_dtype: str
    axes: tuple[str, ...]
    constant: bool
    decode: Decode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A shape unit: a core-local routine for one op signature, for output boxes up to `extents` (SHAPE-1).

    `identifier` is the digest of all the rest; `operands` are None where the op omits an input. `gathers`: the operand
    that is read through indices, -1 for none. `accumulator_dtype`: of partial sums.
    """

    identifier: str
    kind: str
    attributes: tuple[tuple[str, Attribute], ...]
    opset: int
    operands: tuple[OperandType | None, ...]
    output: OperandType
    extents: tuple[int, ...]
    gathers: int = -1
    accumulator_dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParameterTable:
    """The calls that cover one op's data: a common area (unit, shapes of the whole tensors) and entries (SHAPE-2)."""

    unit: int
    operand_shapes: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]
    entries: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A tensor in DRAM: its place in memory, its type and axes, and the byte stride of each axis.

    `order` are its axes from the outermost in memory. Weights hold their stored element type.
    """

    name: str
    role: Role
    address: int
    shape: tuple[int, ...]
    dtype: str
    order: tuple[int, ...]
    strides: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """Stationary weights: bytes of a weight region that lie in a place before the program runs."""

    place: int
    address: int
    region: int
    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Addresses:
    """An address table that units of the program use, and the number of the region in which its words lie."""

    region: int
    table: AddressTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What commands work for: a group of the plan, an op's ONNX nodes and the tensor it makes."""

    group: str
    nodes: tuple[str, ...]
    tensor: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """The program of one segment.

    `commands` are rows of COMMAND, `calls` of CALL, `bindings` of BINDING. Command i waits for
    `waits[wait_offsets[i]:wait_offsets[i + 1]]`. By `loops` commands are statements, each given as it is at its first
    tile; a program without loops has those of `Loops.one_iteration`, and its commands wait for earlier ones alone.
    """

    name: str
    places: tuple[Place, ...]
    queues: tuple[Queue, ...]
    steps: tuple[Step, ...]
    commands: Rows
    wait_offsets: Rows
    waits: Rows
    loops: Loops
    calls: Rows
    bindings: Rows
    units: tuple[Unit, ...]
    tables: tuple[ParameterTable, ...]
    regions: tuple[Region, ...]
    residents: tuple[Resident, ...]
    addresses: tuple[Addresses, ...] = ()

    @property
    def group_names(self) -> tuple[str, ...]:
        """The groups of the plan that commands work for, in order."""
        return tuple(dict.fromkeys(step.group for step in self.steps))

    @property
    def group_numbers(self) -> NDArray[np.int64]:
        """Per command the number of its group; of those that work for none, one past the last."""
        names = {name: number for number, name in enumerate(self.group_names)}
        of_step = np.array([*(names[step.group] for step in self.steps), len(names)], dtype=np.int64)
        found: NDArray[np.int64] = of_step[self.commands["step"]]
        return found

    def alone(self, which: NDArray[np.int64]) -> Program:
        """Some of the commands, by ascending numbers, without their waits for others."""
        numbers = np.full(len(self.commands), -1, dtype=np.int64)
        numbers[which] = np.arange(len(which))
        owners = numbers[np.repeat(np.arange(len(self.commands)), np.diff(self.wait_offsets))]
        waits = numbers[self.waits]
        kept = (owners >= 0) & (waits >= 0)
        offsets = np.append(0, np.cumsum(np.bincount(owners[kept], minlength=len(which))))
        return replace(
            self,
            commands=self.commands[which],
            wait_offsets=offsets.astype(self.wait_offsets.dtype),
            waits=waits[kept].astype(self.waits.dtype),
            loops=self.loops.alone(which, self.loops.distances[kept]),
        )

    def once(self, commands: Rows, wait_offsets: Rows, waits: Rows) -> Program:
        """The same program with these commands in place of its own, each done once."""
        return replace(
            self,
            commands=commands,
            wait_offsets=wait_offsets,
            waits=waits,
            loops=Loops.one_iteration(len(commands), len(waits)),
        )
