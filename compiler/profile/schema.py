"""The hardware profile: an accelerator described as data (PROF-2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta


def _amount(unit: str, *, ge: float, le: float) -> Meta:
    """The bounds of a number and its unit, one of `compiler.profile.quantities.UNITS`."""
    return Meta(ge=ge, le=le, extra_json_schema={"unit": unit})


def _means(meaning: str) -> Meta:
    """The one-line meaning of a field, for the JSON schema, the documents and annotated profiles."""
    return Meta(description=meaning)


# Rates and frequencies; the lower bound keeps times finite.
_LEAST, _MOST = 1e-3, 1e18
Hertz = Annotated[float, _amount("Hz", ge=_LEAST, le=_MOST)]
BytesPerSecond = Annotated[float, _amount("B/s", ge=_LEAST, le=_MOST)]
BytesPerCycle = Annotated[float, _amount("B/cycle", ge=_LEAST, le=_MOST)]
Nanoseconds = Annotated[float, _amount("ns", ge=0, le=_MOST)]
Cycles = Annotated[float, _amount("cycles", ge=0, le=_MOST)]
Picojoules = Annotated[float, _amount("pJ", ge=0, le=_MOST)]
PicojoulesPerByte = Annotated[float, _amount("pJ/B", ge=0, le=_MOST)]
Watts = Annotated[float, _amount("W", ge=0, le=_MOST)]
Bytes = Annotated[int, _amount("B", ge=1, le=2**50)]
AccessBytes = Annotated[int, _amount("B", ge=1, le=65536)]
Count = Annotated[int, Meta(ge=1, le=4096)]

# Bytes of a partial sum if a profile states none.
DEFAULT_ACCUMULATOR_BYTES: Final = 4


# Stationary weights begin at multiples of this many bytes, the size of the widest element.
_RESIDENT_ALIGNMENT: Final = 8


def beside_residents(capacity_bytes: int, resident_bytes: int) -> int:
    """The address at which stationary weights begin, at the end of a memory; equals the bytes left before them."""
    return (capacity_bytes - resident_bytes) // _RESIDENT_ALIGNMENT * _RESIDENT_ALIGNMENT


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a profile: unknown fields are refused."""


class Dram(_Part, frozen=True, kw_only=True):
    """Off-chip memory of one chip; its bandwidth is shared by all engines that reach it."""

    capacity_bytes: Annotated[Bytes, _means("size of the memory")]
    bandwidth_bytes_per_s: Annotated[BytesPerSecond, _means("rate of reads and writes together")]
    read_pj_per_byte: Annotated[PicojoulesPerByte, _means("energy of a read")]
    write_pj_per_byte: Annotated[PicojoulesPerByte, _means("energy of a write")]
    startup_ns: Annotated[Nanoseconds, _means("start-up time of a transfer; its engine's counts if larger")] = 0.0
    multicast: Annotated[bool, _means("whether one read may go to several cores")] = False
    ports: Annotated[
        Literal["every-core", "mesh-sides"],
        _means("which cores reach it: all, or the mesh's side columns"),
    ] = "every-core"


class Memory(_Part, frozen=True, kw_only=True):
    """An on-chip memory. With `weight_bytes` it is split: `capacity_bytes` then holds activations only."""

    capacity_bytes: Annotated[Bytes, _means("size; with weight_bytes, of the part for activations")]
    read_pj_per_byte: Annotated[PicojoulesPerByte, _means("energy of a read")]
    write_pj_per_byte: Annotated[PicojoulesPerByte, _means("energy of a write")]
    weight_bytes: Annotated[Bytes | None, _means("size of a separate part for weights")] = None
    bytes_per_cycle: Annotated[
        BytesPerCycle | None, _means("rate of the ports; if absent, the engines' rates count")
    ] = None
    ports: Annotated[Literal["shared", "separate"], _means("whether reads and writes share the rate")] = "shared"
    access_bytes: Annotated[AccessBytes, _means("smallest access; energy and port time count whole accesses")] = 1


class Engine(_Part, frozen=True, kw_only=True):
    """A transfer engine."""

    bytes_per_cycle: Annotated[BytesPerCycle, _means("rate of the engine")]
    startup_ns: Annotated[Nanoseconds, _means("start-up time of a transfer that nothing hides")] = 0.0


class Link(_Part, frozen=True, kw_only=True):
    """Core-to-core links."""

    topology: Annotated[Literal["ring", "mesh"], _means("how the cores are connected")]
    bytes_per_cycle: Annotated[BytesPerCycle, _means("rate of one link")]
    hop_cycles: Annotated[Cycles, _means("latency of a hop")] = 1.0
    pj_per_byte_hop: Annotated[PicojoulesPerByte, _means("energy of a byte for each hop")] = 0.0


class Engines(_Part, frozen=True, kw_only=True):
    """The transfer engines that exist."""

    iodma: Annotated[Engine | None, _means("DRAM to and from NRAM and WRAM, one per core")] = None
    gdma: Annotated[Engine | None, _means("DRAM to and from SRAM, one per cluster")] = None
    mvdma: Annotated[Engine | None, _means("SRAM to and from NRAM and WRAM, one per core")] = None
    cdma: Annotated[Engine | None, _means("SRAM to SRAM between clusters, one per cluster")] = None
    bus: Annotated[Engine | None, _means("broadcast from SRAM to one, several or all cores of a cluster")] = None
    link: Annotated[Link | None, _means("links from core to core")] = None
    shared: Annotated[
        tuple[tuple[Literal["iodma", "gdma", "mvdma", "cdma", "bus"], ...], ...],
        _means("lists of engines that are one component and share a queue"),
    ] = ()


class Array(_Part, frozen=True, kw_only=True):
    """The matrix unit's array for one element type.

    All lanes work in the same cycle, each on one multiply-accumulate. An array may be made of equal blocks, each with
    buffers of its own. Rows of blocks then work on parts of the input channels or on output rows, columns of blocks on
    parts of the output channels or on output columns, whichever suits an op.
    """

    k: Annotated[Count, _means("lanes over output channels")]
    c: Annotated[Count, _means("lanes over input channels")]
    ox: Annotated[Count, _means("lanes over output columns")] = 1
    oy: Annotated[Count, _means("lanes over output rows")] = 1
    block_rows: Annotated[Count, _means("rows of blocks, on parts of the input channels or on output rows")] = 1
    block_columns: Annotated[Count, _means("columns of blocks, on output channels or on output columns")] = 1


class Buffer(_Part, frozen=True, kw_only=True):
    """Operand storage inside a core's matrix unit."""

    capacity_bytes: Annotated[Bytes, _means("size, of all lanes of a block together")]
    read_pj_per_byte: Annotated[PicojoulesPerByte, _means("energy of a read")]
    write_pj_per_byte: Annotated[PicojoulesPerByte, _means("energy of a write")]


class Buffers(_Part, frozen=True, kw_only=True):
    """The matrix unit's buffers by operand.

    Without a stated buffer the matrix unit has one register per lane for that operand, which costs nothing.
    """

    weight: Annotated[Buffer | None, _means("buffer of weights")] = None
    output: Annotated[Buffer | None, _means("buffer of partial sums")] = None
    input: Annotated[Buffer | None, _means("buffer of inputs")] = None
    result: Annotated[Buffer | None, _means("buffer of the whole core, through which finished results leave")] = None


class Matrix(_Part, frozen=True, kw_only=True):
    """The matrix unit of a core: an array and the energy of a multiply-accumulate, by element type."""

    arrays: Annotated[dict[str, Array], _means("the array for each element type of products; int8: also uint8")]
    pj_per_mac: Annotated[dict[str, Picojoules], _means("energy of a multiply-accumulate, by element type")]
    buffers: Annotated[Buffers, _means("operand storage in the matrix unit; if absent, a free register per lane")] = (
        Buffers()
    )
    accumulator_bytes: Annotated[
        Annotated[int, _amount("B", ge=1, le=8)] | None, _means("size of a partial sum in the buffers; if absent, 4")
    ] = None

    @property
    def partial_sum_bytes(self) -> int:
        """Bytes of one partial sum."""
        return self.accumulator_bytes or DEFAULT_ACCUMULATOR_BYTES


class Vector(_Part, frozen=True, kw_only=True):
    """The vector unit of a core."""

    lanes: Annotated[int, Meta(ge=1, le=1 << 20), _means("operations per cycle")]
    pj_per_operation: Annotated[Picojoules, _means("energy of an operation")]


class Calls(_Part, frozen=True, kw_only=True):
    """Scalar work of a core for a call of a shape unit.

    The cost of a parameter table includes it (SHAPE-4); fixed programs are compiled without such lengths.
    """

    cycles: Annotated[Cycles, _means("scalar work of each call")] = 0.0
    length_cycles: Annotated[Cycles, _means("scalar work for each axis whose length comes with the call")] = 16.0


class Limits(_Part, frozen=True, kw_only=True):
    """Limits of one executable; an absent limit means no limit."""

    program_bytes: Annotated[Bytes | None, _means("size of the program")] = None
    program_bytes_per_core: Annotated[Bytes | None, _means("size of one core's share of the program")] = None
    weight_bytes: Annotated[Bytes | None, _means("size of the weights")] = None
    macs: Annotated[Annotated[int, Meta(ge=1)] | None, _means("number of multiply-accumulates")] = None
    commands: Annotated[Annotated[int, Meta(ge=1)] | None, _means("number of statements")] = None


class Weights(_Part, frozen=True, kw_only=True):
    """Placement of weights.

    Stationary weights lie on the chip before an executable runs, spread over its cores by output channels.
    """

    mode: Annotated[Literal["streamed", "stationary"], _means("streamed from DRAM, or resident on the chip")] = (
        "streamed"
    )
    compression: Annotated[
        float, Meta(gt=0, le=1), _means("share of its size that a weight takes in on-chip memory")
    ] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The level of a chip that holds tiles: its clusters with their SRAM, or its cores where there is none.

    `count`: of a chip. `cores`: of each unit, 1 where units are cores. `memory`: what a tile lies in, on memory level
    `level`. `weight_part_bytes`: size of a part for weights alone in a memory that several cores share; None if there
    is none. `dram_engine` moves between DRAM and a unit, `peer_engine` from unit to unit; None where nothing does.
    """

    name: Literal["cluster", "core"]
    count: int
    cores: int
    level: Literal["sram", "nram"]
    memory: Memory
    weight_part_bytes: int | None
    dram_engine: Engine | None
    peer_engine: Engine | Link | None

    @property
    def are_cores(self) -> bool:
        """True if no memory lies between DRAM and the cores' own."""
        return self.name == "core"


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """An accelerator (PROF-2). Sizes in bytes, rates per cycle of `clock_hz`, energies in picojoule."""

    schema: Annotated[Literal["tessera.profile/1"], _means("version of this format")]
    name: Annotated[
        str,
        Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"),
        _means("at most 64 letters, digits, dots, dashes and underscores"),
    ]
    description: Annotated[str, Meta(max_length=500), _means("free text for people")] = ""
    clock_hz: Annotated[Hertz, _means("clock of all units; cycles are counted in it")]
    chips: Annotated[int, Meta(ge=1, le=64), _means("number of chips")]
    clusters_per_chip: Annotated[Count, _means("number of clusters of a chip")]
    cores_per_cluster: Annotated[Count, _means("number of cores of a cluster")]
    line_bytes: Annotated[AccessBytes, _means("memory line; address tables are read in whole lines")]
    dram: Annotated[Dram, _means("off-chip memory, one per chip")]
    sram: Annotated[Memory | None, _means("memory shared by the cores of a cluster, one per cluster")] = None
    nram: Annotated[Memory, _means("memory for activations, one per core")]
    wram: Annotated[Memory | None, _means("memory for weights, one per core; if absent, weights lie in NRAM")] = None
    engines: Annotated[Engines, _means("what moves data between the memories")]
    matrix: Annotated[Matrix, _means("matrix unit, one per core")]
    vector: Annotated[Vector, _means("vector unit, one per core")]
    host_link_bytes_per_s: Annotated[
        BytesPerSecond | None, _means("rate from and to the host; if absent, it takes no time")
    ] = None
    chip_link_bytes_per_s: Annotated[
        BytesPerSecond | None, _means("rate from chip to chip; if absent, it takes no time")
    ] = None
    static_w: Annotated[Watts, _means("static power")] = 0.0
    limits: Annotated[Limits, _means("limits of one executable; if absent, none")] = Limits()
    weights: Annotated[Weights, _means("where weights lie")] = Weights()
    addressing: Annotated[
        Literal["tables", "strides"],
        _means("operands of a window: by tables in memory, or by strides"),
    ] = "tables"
    calls: Annotated[Calls, _means("scalar work of a core for a call of a shape unit")] = Calls()

    @property
    def cores(self) -> int:
        """Cores of one chip."""
        return self.clusters_per_chip * self.cores_per_cluster

    @cached_property
    def units(self) -> Units:
        """What holds tiles on a chip, as data."""
        if self.sram is None:
            return Units(
                name="core",
                count=self.cores,
                cores=1,
                level="nram",
                memory=self.nram,
                weight_part_bytes=None,
                dram_engine=self.engines.iodma,
                peer_engine=self.engines.link,
            )
        return Units(
            name="cluster",
            count=self.clusters_per_chip,
            cores=self.cores_per_cluster,
            level="sram",
            memory=self.sram,
            weight_part_bytes=self.sram.weight_bytes,
            dram_engine=self.engines.gdma,
            peer_engine=self.engines.cdma,
        )

    @property
    def is_stationary(self) -> bool:
        """True if weights have to lie on the chip before an executable runs."""
        return self.weights.mode == "stationary"

    @property
    def resident_capacity_bytes(self) -> int:
        """Bytes of one core's memory that can hold stationary weights."""
        return self.weight_memory_bytes

    def beside(self, resident_bytes: int) -> Profile:
        """The profile with the memory left beside `resident_bytes` of stationary weights in every core.

        If weights share the activations' memory, that memory shrinks, else the weight memory does. At least one byte is
        left, so that the tiling refuses an op that does not fit, not the profile.
        """
        if not resident_bytes:
            return self
        if self.wram is not None:
            left = max(1, beside_residents(self.wram.capacity_bytes, resident_bytes))
            return msgspec.structs.replace(self, wram=msgspec.structs.replace(self.wram, capacity_bytes=left))
        if self.nram.weight_bytes is not None:
            left = max(1, beside_residents(self.nram.weight_bytes, resident_bytes))
            return msgspec.structs.replace(self, nram=msgspec.structs.replace(self.nram, weight_bytes=left))
        left = max(1, beside_residents(self.nram.capacity_bytes, resident_bytes))
        return msgspec.structs.replace(self, nram=msgspec.structs.replace(self.nram, capacity_bytes=left))

    def holding(self, handed_bytes: int) -> Profile:
        """The profile with the memory left in every unit beside so many bytes of what groups hand to each other."""
        if not handed_bytes:
            return self
        name = "nram" if self.sram is None else "sram"
        memory = self.units.memory
        left = max(1, beside_residents(memory.capacity_bytes, handed_bytes))
        return msgspec.structs.replace(self, **{name: msgspec.structs.replace(memory, capacity_bytes=left)})

    @property
    def weight_memory_bytes(self) -> int:
        """Bytes per core that hold weights during use (WRAM, else NRAM's weight part, else NRAM)."""
        if self.wram is not None:
            return self.wram.capacity_bytes
        return self.nram.weight_bytes or self.nram.capacity_bytes

    @property
    def weights_share_activations(self) -> bool:
        """True if weights and activations of a core lie in the same memory."""
        return self.wram is None and self.nram.weight_bytes is None

    @property
    def partial_sum_bytes(self) -> int:
        """Bytes of one partial sum of the matrix unit."""
        return self.matrix.partial_sum_bytes

    @property
    def dram_bytes_per_cycle(self) -> float:
        """The DRAM's total bandwidth in bytes per clock cycle."""
        return self.dram.bandwidth_bytes_per_s / self.clock_hz
