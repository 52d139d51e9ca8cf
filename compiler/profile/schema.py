"""The hardware profile: what an accelerator is, as data (PROF-2)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

# Rates and frequencies; the lower bound keeps times finite.
Positive = Annotated[float, Meta(ge=1e-3, le=1e18)]
NonNegative = Annotated[float, Meta(ge=0, le=1e18)]
Bytes = Annotated[int, Meta(ge=1, le=2**50)]
Count = Annotated[int, Meta(ge=1, le=4096)]

# Bytes of a partial sum where a profile states none.
DEFAULT_ACCUMULATOR_BYTES: Final = 4


# Stationary weights begin at multiples of this: bytes of the widest elements.
_RESIDENT_ALIGNMENT: Final = 8


def beside_residents(capacity_bytes: int, resident_bytes: int) -> int:
    """Where stationary weights begin in a memory, at its end: what they leave of it."""
    return (capacity_bytes - resident_bytes) // _RESIDENT_ALIGNMENT * _RESIDENT_ALIGNMENT


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a profile: unknown fields are refused."""


class Dram(_Part, frozen=True, kw_only=True):
    """Off-chip memory of one chip; its bandwidth is shared by all engines that reach it.

    `ports` says where it meets the chip: `every-core` (each core's engine reaches it directly) or `mesh-sides` (it
    reaches the cores over the mesh, from the left and right columns).
    """

    capacity_bytes: Bytes
    bandwidth_bytes_per_s: Positive
    read_pj_per_byte: NonNegative
    write_pj_per_byte: NonNegative
    startup_ns: NonNegative = 0.0
    multicast: bool = False
    ports: Literal["every-core", "mesh-sides"] = "every-core"


class Memory(_Part, frozen=True, kw_only=True):
    """An on-chip memory. With `weight_bytes` it is split: `capacity_bytes` then holds activations only.

    `bytes_per_cycle` is the rate of its ports; None: the engines that reach it are the bound. Ports are `shared` (reads
    and writes together have that rate) or `separate` (each has it for itself). `access_bytes` is the smallest piece
    that one access moves: energy and port time count whole pieces.
    """

    capacity_bytes: Bytes
    read_pj_per_byte: NonNegative
    write_pj_per_byte: NonNegative
    weight_bytes: Bytes | None = None
    bytes_per_cycle: Positive | None = None
    ports: Literal["shared", "separate"] = "shared"
    access_bytes: Annotated[int, Meta(ge=1, le=65536)] = 1


class Engine(_Part, frozen=True, kw_only=True):
    """A transfer engine; start-up counts once per transfer that nothing hides."""

    bytes_per_cycle: Positive
    startup_ns: NonNegative = 0.0


class Link(_Part, frozen=True, kw_only=True):
    """Core-to-core links."""

    topology: Literal["ring", "mesh"]
    bytes_per_cycle: Positive
    hop_cycles: NonNegative = 1.0
    pj_per_byte_hop: NonNegative = 0.0


class Engines(_Part, frozen=True, kw_only=True):
    """The transfer engines that exist; `shared` lists those that are one component and share a queue.

    iodma: DRAM to and from NRAM/WRAM, per core. gdma: DRAM to and from SRAM, per cluster. mvdma: SRAM to and from
    NRAM/WRAM, per core. cdma: SRAM to SRAM between clusters, per cluster. bus: SRAM to one, several or all cores of
    a cluster. link: core to core.
    """

    iodma: Engine | None = None
    gdma: Engine | None = None
    mvdma: Engine | None = None
    cdma: Engine | None = None
    bus: Engine | None = None
    link: Link | None = None
    shared: tuple[tuple[Literal["iodma", "gdma", "mvdma", "cdma", "bus"], ...], ...] = ()


class Array(_Part, frozen=True, kw_only=True):
    """The matrix unit's array for one element type.

    Lanes over output channels (k), input channels (c), output columns (ox) and output rows (oy); all of them work in
    the same cycle, each on one multiply-accumulate.
    """

    k: Count
    c: Count
    ox: Count = 1
    oy: Count = 1


class Buffer(_Part, frozen=True, kw_only=True):
    """Operand storage inside a core's matrix unit; `capacity_bytes` is that of all lanes together."""

    capacity_bytes: Bytes
    read_pj_per_byte: NonNegative
    write_pj_per_byte: NonNegative


class Buffers(_Part, frozen=True, kw_only=True):
    """The matrix unit's buffers by operand.

    Without a stated buffer the matrix unit has one register per lane for that operand, which costs nothing.
    """

    weight: Buffer | None = None
    output: Buffer | None = None
    input: Buffer | None = None


class Matrix(_Part, frozen=True, kw_only=True):
    """The matrix unit of a core: an array and the energy of a multiply-accumulate, by element type.

    `accumulator_bytes` is the size of a partial sum; None: 4 bytes.
    """

    arrays: dict[str, Array]
    pj_per_mac: dict[str, NonNegative]
    buffers: Buffers = Buffers()
    accumulator_bytes: Annotated[int, Meta(ge=1, le=8)] | None = None


class Vector(_Part, frozen=True, kw_only=True):
    """The vector unit of a core: one operation per lane and cycle."""

    lanes: Annotated[int, Meta(ge=1, le=1 << 20)]
    pj_per_operation: NonNegative


class Calls(_Part, frozen=True, kw_only=True):
    """Scalar work of a core for a call of a shape unit: for each, and for each axis whose length comes with the call.

    Prices of parameter tables count it (SHAPE-4); fixed programs are compiled without such lengths.
    """

    cycles: NonNegative = 0.0
    length_cycles: NonNegative = 16.0


class Limits(_Part, frozen=True, kw_only=True):
    """Limits of one executable; None: no limit."""

    program_bytes: Bytes | None = None
    program_bytes_per_core: Bytes | None = None
    weight_bytes: Bytes | None = None
    macs: Annotated[int, Meta(ge=1)] | None = None
    commands: Annotated[int, Meta(ge=1)] | None = None


class Weights(_Part, frozen=True, kw_only=True):
    """Whether weights are streamed from DRAM, and the share of its size a weight takes in on-chip memory.

    Stationary weights lie on the chip, spread over its cores by output channels, before an executable runs.
    """

    mode: Literal["streamed", "stationary"] = "streamed"
    compression: Annotated[float, Meta(gt=0, le=1)] = 1.0


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An accelerator (PROF-2). Sizes in bytes, rates per cycle of `clock_hz`, energies in picojoule.

    `addressing`: how a core's units find the operands of a window in their buffers: by address tables that lie beside
    the weights (ADDR-5), or by strides that the cores' own address generators count with, which take no memory.
    """

    schema: Literal["tessera.profile/1"]
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    description: Annotated[str, Meta(max_length=500)] = ""
    clock_hz: Positive
    chips: Annotated[int, Meta(ge=1, le=64)]
    clusters_per_chip: Count
    cores_per_cluster: Count
    line_bytes: Annotated[int, Meta(ge=1, le=65536)]
    dram: Dram
    sram: Memory | None = None
    nram: Memory
    wram: Memory | None = None
    engines: Engines
    matrix: Matrix
    vector: Vector
    host_link_bytes_per_s: Positive | None = None
    chip_link_bytes_per_s: Positive | None = None
    static_w: NonNegative = 0.0
    limits: Limits = Limits()
    weights: Weights = Weights()
    addressing: Literal["tables", "strides"] = "tables"
    calls: Calls = Calls()

    @property
    def cores(self) -> int:
        """Cores of one chip."""
        return self.clusters_per_chip * self.cores_per_cluster

    @property
    def is_stationary(self) -> bool:
        """True if weights have to lie on the chip before an executable runs."""
        return self.weights.mode == "stationary"

    @property
    def resident_capacity_bytes(self) -> int:
        """Bytes of one core's memory that stationary weights may lie in."""
        return self.weight_memory_bytes

    def beside(self, resident_bytes: int) -> Profile:
        """The profile that is left beside `resident_bytes` of stationary weights in every core.

        Where weights share the activations' memory that one shrinks, else the weight memory does. At least one byte
        is left, so that what does not fit is refused by the tiling and not by the profile.
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

    @property
    def weight_memory_bytes(self) -> int:
        """Bytes per core that hold weights while they are used (WRAM, else NRAM's weight part, else NRAM)."""
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
        return self.matrix.accumulator_bytes or DEFAULT_ACCUMULATOR_BYTES

    @property
    def dram_bytes_per_cycle(self) -> float:
        """The DRAM's total bandwidth in bytes per clock cycle."""
        return self.dram.bandwidth_bytes_per_s / self.clock_hz
