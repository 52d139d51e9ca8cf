"""The closed-form price of one group under one tiling.

Ops that pass the cores together make a stage: computation and the transfers that serve it overlap, and the stage
takes as long as its slowest part. Stages of a group follow one another on the cores, and DRAM transfers run beside
them all, but for the first tile's load and the last tile's store. Groups run one after another. docs/cost-model.md
derives the formulas and names their sources.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Final, Literal, NamedTuple

from compiler.cost.levels import NO_BYTES, LevelBytes
from compiler.cost.rates import (
    dram_hops,
    dram_port_bytes_per_cycle,
    dram_startup_cycles,
    dram_transfer_cycles,
    handed_bytes_per_cycle,
)
from compiler.cost.turns import Needs, Passing, turns_cycles
from compiler.profile.schema import Memory, Profile

BoundBy = Literal["dram", "compute", "on-chip"]

# Cycles that several roundings made are no more than a whole number of them.
_ROUNDING: Final = 1e-12
# What a price may fall below a bound because numbers are added up in another order.
_LEAST_ROUNDING: Final = 1e-9


class StepTraffic(NamedTuple):
    """What one op of a group moves and computes; bytes on the whole chip, cycles of the busiest core.

    stage: ops of equal number pass the cores together. call_cycles: compute_cycles, or longer where the ports of the
    core's memories give and take no faster. nram_read_cycles, nram_write_cycles, wram_cycles: how long the
    ports of the core's memories are kept. sram: bytes between SRAM and cores; sram_weights the same for weights;
    between_units: SRAM bytes of what units pass each other, on both sides. broadcast_bytes: the part that the bus
    hands to all cores of a unit at once. exchanged_bytes: passed between units; exchanged_byte_hops: the same times
    the links crossed. awaited_bytes: of activations; awaited_cycles: for how long cores wait for
    what other units, or other cores of theirs, made. taken_cycles: in which inputs come that earlier groups left on
    the chip, beside the work of cores; first_taken_cycles: of these the ones before the first turn. filling_cycles:
    for how long cores wait until the first piece of a stage has come, and the last one has left. arriving_bytes: of
    inputs that DRAM brings for the first turn; lasting_bytes of weights, handed_bytes what units then hand on of both;
    loading_cycles: what the engine that brings them takes for them by itself. passing: weights that come in every turn.
    """

    op: int
    stage: int
    dataflow: str
    compute_cycles: int
    array_cycles: int
    call_cycles: int = 0
    nram_read_cycles: int = 0
    nram_write_cycles: int = 0
    wram_cycles: int = 0
    sram: LevelBytes = NO_BYTES
    sram_weights: LevelBytes = NO_BYTES
    between_units: LevelBytes = NO_BYTES
    broadcast_bytes: int = 0
    nram: LevelBytes = NO_BYTES
    wram: LevelBytes = NO_BYTES
    registers_pj: float = 0.0
    exchanged_bytes: int = 0
    exchanged_byte_hops: int = 0
    awaited_bytes: int = 0
    awaited_cycles: int = 0
    taken_cycles: float = 0.0
    first_taken_cycles: float = 0.0
    filling_cycles: int = 0
    arriving_bytes: int = 0
    lasting_bytes: int = 0
    handed_bytes: int = 0
    loading_cycles: float = 0.0
    passing: Passing | None = None
    macs: int = 0
    mac_energy_pj: float = 0.0
    vector_ops: int = 0


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What DRAM gives and takes for a group under a tiling; bytes and counts for the whole batch.

    last_store_bytes: what leaves after the last turn. units: in use. hidden_transfers: loads and stores of tiles that a
    unit makes beside its work, weights apart. exposed_transfers: loads (and as many stores) whose start-up nothing
    hides. table_bytes: address tables that are loaded, which take time and energy and are no DRAM bytes (SPEC 5.1).
    copied_bytes: what the DRAM's engines put aside in the SRAMs for later tiles. loads_in_turn: how many times as long
    these engines take because units load one after another. unit_loads: how often a unit loads a tile, or a part of
    one, beside its work.
    """

    input_bytes: int
    weight_bytes: int
    output_bytes: int
    last_store_bytes: int
    units: int
    overlapped: bool
    exposed_transfers: int
    hidden_transfers: int
    copied_bytes: int
    table_bytes: int = 0
    loads_in_turn: float = 1.0
    unit_loads: int = 0

    @property
    def read_bytes(self) -> int:
        """Bytes read from DRAM: inputs and weights, address tables apart."""
        return self.input_bytes + self.weight_bytes

    @property
    def moved_bytes(self) -> int:
        """All bytes that are read and written."""
        return self.read_bytes + self.table_bytes + self.output_bytes

    @property
    def dram_bytes(self) -> int:
        """DRAM reads plus writes, address tables apart."""
        return self.read_bytes + self.output_bytes


@dataclass(frozen=True, kw_only=True)
class Traffic(Carried):
    """What a group moves and computes under a tiling; bytes, cycles and counts for the whole batch.

    turns: how often cores go through the ops, each time in `parts` of what a product sums. unhidden_cycles: what they
    wait for weights that give way to more of them in one buffer. sram_ends, nram_ends: bytes through these of what
    comes from and goes to DRAM, and of inputs handed on. passed_on_bytes: input bytes that units hand on to each other.
    put_cycles: in which a result comes to units that hold it for later groups, beside the work of cores;
    last_put_cycles: of these the ones after the last turn.
    loading_share: what of the DRAM's rate inputs get while the cores' own engines load weights; None where one engine
    loads one after the other. cores: in use.
    """

    turns: int
    unhidden_cycles: float
    cores: int
    sram_ends: LevelBytes
    nram_ends: LevelBytes
    passed_on_bytes: int
    loading_share: float | None
    steps: tuple[StepTraffic, ...]
    parts: int = 1
    put_cycles: float = 0.0
    last_put_cycles: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """The cycles of ops that pass the cores together: what exceeds their sum are stalls of cause `bound_by`.

    `ops`: each op's index, its dataflow and its own compute cycles. Of all, `awaited_cycles` are those between ops, for
    what others made, and `filling_cycles` those at the stage's ends, for what comes and leaves.
    """

    ops: tuple[tuple[int, str, int], ...]
    cycles: int
    compute_cycles: int
    awaited_cycles: int
    filling_cycles: int
    bound_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The price of a group: bytes, cycles and energy; `bound_by` names the largest part of the cycles.

    `stalls`: cycles beyond computation by cause. `energy_by_level`: pJ by memory level, unit and link; they add up to
    `energy_pj`. `array_cycles`: cycles in which the busiest core's array works. `table_read_bytes`: address tables that
    are loaded, which no figure of DRAM bytes holds (SPEC 5.1).
    """

    dram_read_bytes: int
    dram_write_bytes: int
    weight_read_bytes: int
    table_read_bytes: int
    dram_cycles: int
    onchip_cycles: int
    compute_cycles: int
    array_cycles: int
    cycles: int
    energy_pj: float
    bound_by: BoundBy
    macs: int
    vector_ops: int
    sram: LevelBytes
    nram: LevelBytes
    wram: LevelBytes
    exchanged_bytes: int
    stalls: tuple[tuple[str, int], ...]
    energy_by_level: tuple[tuple[str, float], ...]
    stages: tuple[StageCost, ...]

    @property
    def dram_bytes(self) -> int:
        """DRAM reads plus writes."""
        return self.dram_read_bytes + self.dram_write_bytes


def price(traffic: Traffic, profile: Profile) -> Cost:
    """Bytes, cycles and energy of a group (SPEC section 5.1: groups add up, inside a group things overlap)."""
    reads, moved = traffic.read_bytes, traffic.moved_bytes
    rate = dram_port_bytes_per_cycle(profile, traffic.units)
    dram_cycles = _dram_cycles(traffic, profile)
    whole = _parts(_together(traffic.steps), traffic, profile)
    stages = _stage_costs(traffic, whole, profile)
    on_cores = sum(stage.cycles for stage in stages)
    compute = sum(step.compute_cycles for step in traffic.steps)
    taken = sum(step.taken_cycles for step in traffic.steps)
    handing = 1 / handed_bytes_per_cycle(profile, traffic.units)
    handed = ceil(_handed_on_bytes(traffic) * handing)
    passing = ceil(handed + taken + traffic.put_cycles)
    # with one buffer cores wait for what comes, and until units have handed on its inputs
    between = traffic.passed_on_bytes * handing
    loading = sum(step.loading_cycles for step in traffic.steps) - dram_startup_cycles(profile)
    loading = max(moved / rate, loading)
    busy, units_decide = on_cores + ceil(loading + between), between > loading
    if traffic.overlapped:
        turning = _turns_cycles(traffic, rate, on_cores, profile) + traffic.unhidden_cycles
        # of several turns, or parts of one, the last one works when all the others' bytes have moved
        times = traffic.turns * traffic.parts
        last = max(moved / rate, taken) + on_cores / times if times > 1 else 0.0
        after = max(traffic.last_store_bytes / rate, traffic.last_put_cycles)
        busy = ceil(max(turning + after, last) * (1 - _ROUNDING))
        units_decide = taken > moved / rate if last > turning + after else _units_take_longer(traffic, rate, profile)
    startup = _startup_cycles(traffic, profile)
    # two buffers, through each of which a part comes from DRAM, is passed on and worked on, one after the other
    starting = traffic.unit_loads * dram_startup_cycles(profile)
    through = ceil((ceil(reads / rate) + starting + handed + taken + on_cores) / 2)
    cycles = max(dram_cycles, passing, busy, through) + startup
    onchip = max(passing, *whole.values())
    stalls: dict[str, int] = {}
    for stage in stages:
        rest = stage.cycles - stage.compute_cycles - stage.awaited_cycles - stage.filling_cycles
        waits = ((stage.bound_by, rest), ("exchange", stage.awaited_cycles), ("move", stage.filling_cycles))
        for cause, count in waits:
            if count:
                stalls[cause] = stalls.get(cause, 0) + count
    waiting = cycles - startup - on_cores
    if waiting:
        by_units = max(passing, through) > max(dram_cycles, busy) or (busy > dram_cycles and units_decide)
        cause = "exchange" if by_units else "dram"
        stalls[cause] = stalls.get(cause, 0) + waiting
    if startup:
        stalls["start-up"] = startup
    parts: dict[BoundBy, int] = {"dram": dram_cycles, "compute": compute, "on-chip": onchip}
    levels = _energy_by_level(traffic, profile, cycles)
    return Cost(
        dram_read_bytes=reads,
        dram_write_bytes=traffic.output_bytes,
        weight_read_bytes=traffic.weight_bytes,
        table_read_bytes=traffic.table_bytes,
        dram_cycles=dram_cycles,
        onchip_cycles=onchip,
        compute_cycles=compute,
        array_cycles=sum(step.array_cycles for step in traffic.steps),
        cycles=cycles,
        energy_pj=sum(energy for _, energy in levels),
        bound_by=max(parts, key=lambda name: parts[name]),
        macs=sum(step.macs for step in traffic.steps),
        vector_ops=sum(step.vector_ops for step in traffic.steps),
        sram=_sram(traffic),
        nram=_nram(traffic),
        wram=_sum(step.wram for step in traffic.steps),
        exchanged_bytes=traffic.passed_on_bytes + sum(step.exchanged_bytes for step in traffic.steps),
        stalls=tuple(sorted(stalls.items())),
        energy_by_level=levels,
        stages=stages,
    )


def least(carried: Carried, compute_cycles: int, profile: Profile) -> tuple[int, float, float]:
    """DRAM bytes, and cycles and energy that no price of a group goes below whose ops take so many cycles of a core."""
    alone = carried.last_store_bytes if carried.overlapped else carried.moved_bytes
    busy = compute_cycles + alone / dram_port_bytes_per_cycle(profile, carried.units)
    cycles = max(_dram_cycles(carried, profile), busy * (1 - _LEAST_ROUNDING)) + _startup_cycles(carried, profile)
    energy = _dram_pj(carried, profile) + _static_pj(cycles, profile)
    return carried.dram_bytes, cycles, energy * (1 - _LEAST_ROUNDING)


def _dram_cycles(carried: Carried, profile: Profile) -> int:
    """Cycles of DRAM transfers that go on beside all else."""
    moved, hidden = carried.moved_bytes, carried.hidden_transfers
    copied, in_turn = carried.copied_bytes, carried.loads_in_turn
    return ceil(dram_transfer_cycles(profile, carried.units, moved, hidden, copied, in_turn))


def _startup_cycles(carried: Carried, profile: Profile) -> int:
    """Cycles of start-ups of DRAM transfers that nothing hides."""
    return ceil(2 * carried.exposed_transfers * dram_startup_cycles(profile)) if carried.moved_bytes else 0


def _turns_cycles(traffic: Traffic, rate: float, on_cores: float, profile: Profile) -> float:
    """Cycles of all turns with what ops wait for; `on_cores`: the cycles of all stages, which wait for nothing."""
    steps = traffic.steps
    own = [step.compute_cycles + step.awaited_cycles + step.filling_cycles for step in steps]
    total = sum(own)
    each = on_cores / traffic.turns / (total or len(own))
    handing = 1 / handed_bytes_per_cycle(profile, traffic.units)
    needs = []
    for step, cycles in zip(steps, own, strict=True):
        filling = step.filling_cycles / traffic.turns
        work = each * (cycles if total else 1) - filling
        handed = step.handed_bytes * handing + step.first_taken_cycles
        brought = step.arriving_bytes, step.lasting_bytes, step.loading_cycles
        needs.append(Needs(*brought, handed, step.passing, filling, work))
    # the start-up of the first transfer is among those that nothing hides
    return turns_cycles(needs, traffic.turns, rate, traffic.loading_share, dram_startup_cycles(profile))


def _units_take_longer(traffic: Traffic, rate: float, profile: Profile) -> bool:
    """True if before the first turn and after the last one more comes from and goes to other units than DRAM."""
    handed = sum(step.handed_bytes for step in traffic.steps) / handed_bytes_per_cycle(profile, traffic.units)
    between = handed + sum(step.first_taken_cycles for step in traffic.steps) + traffic.last_put_cycles
    brought = sum(step.arriving_bytes + step.lasting_bytes for step in traffic.steps)
    return between > (brought + traffic.last_store_bytes) / rate


def _stage_costs(traffic: Traffic, whole: dict[str, int], profile: Profile) -> tuple[StageCost, ...]:
    """The stages of a group in order: each takes as long as its slowest part; `whole`: the parts of all together."""
    members: dict[int, list[StepTraffic]] = {}
    for step in traffic.steps:
        members.setdefault(step.stage, []).append(step)
    result = []
    for steps in members.values():
        compute = sum(step.compute_cycles for step in steps)
        resources = whole if len(members) == 1 else _parts(_together(tuple(steps)), traffic, profile)
        parts = {"compute": compute, **resources}
        bound = max(parts, key=lambda name: parts[name])
        awaited = sum(step.awaited_cycles for step in steps)
        filling = sum(step.filling_cycles for step in steps)
        result.append(
            StageCost(
                ops=tuple((step.op, step.dataflow, step.compute_cycles) for step in steps),
                cycles=parts[bound] + awaited + filling,
                compute_cycles=compute,
                awaited_cycles=awaited,
                filling_cycles=filling,
                bound_by=bound,
            )
        )
    return tuple(result)


def _parts(step: StepTraffic, traffic: Traffic, profile: Profile) -> dict[str, int]:
    """Cycles of each on-chip resource that an op keeps, spread evenly over the units in use.

    With two buffers the turns know when what units hand each other is there; with one its weights are a part here.
    """
    engines, sram = profile.engines, profile.units.memory
    handed = 0 if traffic.overlapped else step.exchanged_bytes - step.awaited_bytes
    calls = step.call_cycles if step.call_cycles > step.compute_cycles else 0
    parts = {"nram": max(step.nram_read_cycles, step.nram_write_cycles, calls), "wram": step.wram_cycles}
    if profile.units.are_cores:
        link = engines.link
        if link is not None and handed > 0:
            parts["link"] = ceil(handed / handed_bytes_per_cycle(profile, traffic.units) + link.hop_cycles)
        return parts
    data = step.sram + step.between_units
    if sram.bytes_per_cycle is not None:
        rate = sram.bytes_per_cycle * traffic.units
        separate_part = sram.weight_bytes is not None
        reading = data.read + (0 if separate_part else step.sram_weights.read)
        writing = data.written + (0 if separate_part else step.sram_weights.written)
        busiest = max(reading, writing) if sram.ports == "separate" else reading + writing
        weights = step.sram_weights
        if separate_part:
            alone = max(weights.read, weights.written) if sram.ports == "separate" else weights.read + weights.written
            busiest = max(busiest, alone)
        parts["sram"] = ceil(busiest / rate)
    if engines.mvdma is not None:
        moved = step.sram.read + step.sram.written + step.sram_weights.read - step.broadcast_bytes
        parts["move"] = ceil(max(0, moved) / (engines.mvdma.bytes_per_cycle * traffic.cores))
    if engines.bus is not None:
        parts["bus"] = ceil(step.broadcast_bytes / (engines.bus.bytes_per_cycle * traffic.units))
    if engines.cdma is not None and handed > 0:
        parts["exchange"] = ceil(handed / handed_bytes_per_cycle(profile, traffic.units))
    return parts


def _together(steps: tuple[StepTraffic, ...]) -> StepTraffic:
    """Several steps as one: what each resource carries in all."""
    if len(steps) == 1:
        return steps[0]
    return StepTraffic(
        op=-1,
        stage=-1,
        dataflow="",
        compute_cycles=sum(step.compute_cycles for step in steps),
        array_cycles=0,
        call_cycles=sum(step.call_cycles for step in steps),
        nram_read_cycles=sum(step.nram_read_cycles for step in steps),
        nram_write_cycles=sum(step.nram_write_cycles for step in steps),
        wram_cycles=sum(step.wram_cycles for step in steps),
        sram=_sum(step.sram for step in steps),
        sram_weights=_sum(step.sram_weights for step in steps),
        between_units=_sum(step.between_units for step in steps),
        broadcast_bytes=sum(step.broadcast_bytes for step in steps),
        exchanged_bytes=sum(step.exchanged_bytes for step in steps),
        awaited_bytes=sum(step.awaited_bytes for step in steps),
    )


def _handed_on_bytes(traffic: Traffic) -> int:
    """All that several units need and one has read, weights too, and that the others get from there."""
    return traffic.passed_on_bytes + sum(step.exchanged_bytes - step.awaited_bytes for step in traffic.steps)


def _sum(levels: Iterable[LevelBytes]) -> LevelBytes:
    read = written = 0
    for level in levels:
        read, written = read + level.read, written + level.written
    return LevelBytes(read=read, written=written)


def _sram(traffic: Traffic) -> LevelBytes:
    """All bytes through the SRAM, weights included."""
    levels = (level for step in traffic.steps for level in (step.sram, step.sram_weights, step.between_units))
    return _sum(levels) + traffic.sram_ends


def _nram(traffic: Traffic) -> LevelBytes:
    """All bytes through the cores' activation memories."""
    return _sum(step.nram for step in traffic.steps) + traffic.nram_ends


def _energy_by_level(traffic: Traffic, profile: Profile, cycles: int) -> tuple[tuple[str, float], ...]:
    """Every byte at every level and direction, every product and vector operation, and static power."""
    weights = profile.wram or profile.nram
    levels = {
        "dram": _dram_pj(traffic, profile),
        "sram": _level_pj(_sram(traffic), profile.sram),
        "nram": _level_pj(_nram(traffic), profile.nram),
        "wram": _level_pj(_sum(step.wram for step in traffic.steps), weights),
        "registers": sum(step.registers_pj for step in traffic.steps),
        "link": _link_pj(traffic, profile),
        "mac": sum(step.mac_energy_pj for step in traffic.steps),
        "vector": sum(step.vector_ops for step in traffic.steps) * profile.vector.pj_per_operation,
        "static": _static_pj(cycles, profile),
    }
    return tuple(levels.items())


def _dram_pj(carried: Carried, profile: Profile) -> float:
    reads = carried.read_bytes + carried.table_bytes
    return reads * profile.dram.read_pj_per_byte + carried.output_bytes * profile.dram.write_pj_per_byte


def _static_pj(cycles: float, profile: Profile) -> float:
    return profile.static_w * cycles / profile.clock_hz * 1e12


def _link_pj(traffic: Traffic, profile: Profile) -> float:
    """Energy of the links: what passes between units, and what crosses the mesh to reach DRAM."""
    link = profile.engines.link
    if link is None or not profile.units.are_cores:
        return 0.0
    hops = traffic.passed_on_bytes + sum(step.exchanged_byte_hops for step in traffic.steps)
    return (hops + traffic.moved_bytes * dram_hops(profile)) * link.pj_per_byte_hop


def _level_pj(level: LevelBytes, memory: Memory | None) -> float:
    if memory is None:
        return 0.0
    return level.read * memory.read_pj_per_byte + level.written * memory.write_pj_per_byte
