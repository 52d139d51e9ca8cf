"""What a tiled group moves and computes: the bridge from tiling to price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from compiler.cost.array import CoreUse, CoreWork, ElementSizes, arranged_lanes, core_use, register_energy_pj
from compiler.cost.levels import NO_BYTES, LevelBytes
from compiler.cost.model import Carried, StepTraffic, Traffic
from compiler.cost.rates import mac_energy_pj, reads_are_shared, waiting_sum_bytes
from compiler.lazy import lazy
from compiler.ops.op_facts import GraphFacts, OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.arrivals import Arrivals, copied_bytes
from compiler.tiling.geometry import GroupGeometry, reads_own_channels
from compiler.tiling.halos import halos_between_cores, halos_of
from compiler.tiling.handed_moves import HandedMoves, moving_cycles, put_moves, taken_moves
from compiler.tiling.loads import input_reads, table_reads, weight_reads
from compiler.tiling.moves import Moved, Routes, fetched, gathered_part, moves_of, routes_of
from compiler.tiling.pace import (
    Passed,
    Unevenness,
    awaited_cycles,
    copying_cycles,
    filling_cycles,
    hidden_transfers,
    in_turn,
    loads_in_turn,
    turns,
)
from compiler.tiling.tile import Spread, WeightHome
from compiler.tiling.tiled import TiledGroup
from compiler.units import ceil_div


def traffic_of(group: TiledGroup) -> Traffic:
    """Bytes per level, cycles and work of a tiled group, for the whole batch."""
    return GroupWork(group).traffic


class GroupWork:
    """What a tiled group moves and computes, each part of it worked out once it is asked for.

    The price is no less than what DRAM alone takes (`carried`), nor than that and the work of ops (`compute_cycles`).
    """

    def __init__(self, group: TiledGroup) -> None:
        configuration, profile = group.configuration, group.profile
        self.group = group
        self.units = group.walk.units
        self.active = max(1, self.units * configuration.cores)
        self.by_channels = configuration.spread is Spread.CHANNELS
        self.cores_by_channels = configuration.core_spread is Spread.CHANNELS
        self.cores_by_bands = configuration.core_spread is Spread.BANDS
        self.by_bands = group.is_staged and self.cores_by_bands
        self.parts = configuration.cores if self.by_bands else 1
        self.parts_of: dict[tuple[str, tuple[str, ...]], list[tuple[tuple[int, int], ...] | None]] = {}
        self.copies = _channel_copies(group)
        self.turns = turns(group)
        self.port = profile.nram.bytes_per_cycle
        self.product = group.geometry.product
        self.reads = input_reads(group)
        self.from_dram = weight_reads(group)

    @lazy
    def carried(self) -> Carried:
        """What DRAM gives and takes."""
        group, configuration, geometry = self.group, self.group.configuration, self.group.geometry
        loaded, copied = self.input_bytes
        outputs, shared = self.output_bytes, reads_are_shared(group.profile)
        tiles, repeats = group.walk.tiles * group.slices, self.repeats
        overlapped, loads = configuration.double_buffered or repeats == 1, repeats * configuration.input_slices
        return Carried(
            input_bytes=loaded if shared else copied,
            weight_bytes=sum(self.from_dram),
            output_bytes=outputs,
            table_bytes=sum(table_reads(group).values()),
            last_store_bytes=ceil_div(outputs * min(self.units, tiles), tiles),
            units=self.units,
            overlapped=overlapped,
            hidden_transfers=hidden_transfers(geometry, configuration, repeats),
            exposed_transfers=1 if configuration.double_buffered else repeats,
            unit_loads=loads if overlapped and loads > 1 else 0,
            copied_bytes=copied_bytes(group),
            loads_in_turn=loads_in_turn(group, self.turns),
        )

    @lazy
    def repeats(self) -> int:
        """How often a unit takes up a tile, or a slice of its channels."""
        return self.group.walk.rounds * self.group.slices

    @lazy
    def input_bytes(self) -> tuple[int, int]:
        """Bytes of all inputs read from DRAM if units pass on what several need, and if each reads for itself."""
        reads = self.reads.values()
        return sum(loaded for loaded, _ in reads), sum(copied for _, copied in reads)

    @lazy
    def output_bytes(self) -> int:
        """Bytes of all outputs that go to DRAM."""
        names = [name for name in self.group.geometry.outputs if name not in self.group.handed]
        return sum(map(self.group.geometry.facts.tensor_bytes, names))

    @lazy
    def copying(self) -> Sequence[int]:
        """By op the cycles in which the busiest core puts aside what later tiles need."""
        own = [
            sum(its.own for its in (*taken.values(), *put)) if self.group.is_flat else 0
            for taken, put in zip(self.taken, self.put, strict=True)
        ]
        return [copying_cycles(self.group, *of) for of in zip(self.group.geometry.ops, own, strict=True)]

    @lazy
    def taken(self) -> Sequence[Mapping[str, HandedMoves]]:
        """By op how inputs that it is the first to read come which earlier groups left on the chip."""
        group, readers = self.group, self.group.geometry.first_readers
        return [
            {name: taken_moves(group, name) for name in readers.get(op.index, ()) if name in group.taken}
            for op in group.geometry.ops
        ]

    @lazy
    def put(self) -> Sequence[tuple[HandedMoves, ...]]:
        """By op how its result comes to those that hold it, where it stays on the chip."""
        group = self.group
        return [(put_moves(group, op.output),) if op.output in group.handed else () for op in group.geometry.ops]

    @lazy
    def put_cycles(self) -> tuple[float, float]:
        """Cycles in which a result comes to those that hold it: all, and those after the last turn."""
        moves = [its for puts in self.put for its in puts]
        total = sum(moving_cycles(self.group, its, self.repeats) for its in moves)
        return total, total / self.repeats

    @lazy
    def compute_cycles(self) -> Sequence[int]:
        """By op the cycles of the busiest core."""
        pairs = zip(self.copying, self.uses, self.shares, strict=True)
        return [ceil(use.cycles * share) + copying for copying, (_, _, use, _), share in pairs]

    @lazy
    def traffic(self) -> Traffic:
        """All of it."""
        group, carried = self.group, self.carried
        loaded, copied = self.input_bytes
        passed_on = copied - loaded if reads_are_shared(group.profile) else 0
        sram_ends = nram_ends = LevelBytes()
        # of what stays on the chip between groups the parts are written and read once more
        put, got = (sum(map(group.geometry.facts.tensor_bytes, its)) for its in (group.handed, group.taken))
        if not group.is_flat:
            read = passed_on + put + got + (0 if self.routes.outputs else carried.output_bytes)
            sram_ends = LevelBytes(read=read, written=put + got + (0 if self.routes.inputs else copied))
        else:
            nram_ends = LevelBytes(read=got + (0 if group.profile.dram.multicast else passed_on), written=put)
        direct = group.is_flat or self.routes.inputs or not self.routes.weights
        unhidden = (self.arrivals.unhidden_cycles(step, size) for step, size in enumerate(self.from_dram))
        return Traffic(
            **{name: getattr(carried, name) for name in Carried.__dataclass_fields__},
            turns=self.turns,
            parts=group.configuration.input_slices,
            unhidden_cycles=sum(unhidden),
            cores=self.units * group.configuration.cores,
            sram_ends=sram_ends,
            nram_ends=nram_ends,
            put_cycles=self.put_cycles[0],
            last_put_cycles=self.put_cycles[1],
            passed_on_bytes=passed_on,
            loading_share=None if direct else 1 / (1 + group.configuration.cores),
            steps=tuple(map(self.of, range(len(group.geometry.ops)))),
        )

    @lazy
    def moves(self) -> Sequence[Moved]:
        """By op what is filled into and drained from the cores."""
        return [moves_of(self.group, step) for step in range(len(self.group.geometry.ops))]

    @lazy
    def routes(self) -> Routes:
        """Which way bytes go between DRAM and cores."""
        return routes_of(self.group, self.input_bytes[1], self.output_bytes, self.moves)

    @lazy
    def arrivals(self) -> Arrivals:
        """What ops wait for."""
        return Arrivals(self.group, self.routes.weights, self.reads, self.turns)

    @lazy
    def uses(self) -> Sequence[tuple[int, int, CoreUse, float]]:
        """By op channels of a core, positions, what the op costs in a core, and energy of the array's own storage."""
        return [self._use(step) for step in range(len(self.group.geometry.ops))]

    @lazy
    def share(self) -> float:
        """The part of all work on positions that the busiest core does."""
        return _share(self.group, self.by_bands)

    @lazy
    def shares(self) -> Sequence[float]:
        """The same of each op, and how much longer it takes where units work one after another."""
        one_by_one = in_turn(self.group) if self.group.shares_sums else 1.0
        unevenness = Unevenness(self.group)
        return [self.share * unevenness.of(op) * one_by_one for op in self.group.geometry.ops]

    @lazy
    def ways(self) -> int:
        """To how many neighbours a unit passes halos."""
        return max(1, 2 * sum(tiles.both_ways for tiles in self.group.frustums.tiles.values()))

    @lazy
    def cores_in_step(self) -> bool:
        """True if the cores of a unit pass each other halos both ways."""
        rows = self.group.walk.rows
        inside = self.group.core_frustums.tiles if self.group.is_nested and self.cores_by_bands else {}
        return rows in inside and inside[rows].both_ways

    def of(self, step: int) -> StepTraffic:
        """One op."""
        group, routes, units, copies = self.group, self.routes, self.units, self.copies
        move, read_from_dram = self.moves[step], self.from_dram[step]
        profile, configuration, geometry = group.profile, group.configuration, group.geometry
        op, weights, home = geometry.ops[step], group.weights[step], group.homes[step]
        (channels, positions, use, registers_pj), share = self.uses[step], self.shares[step]
        brought = _brought(group, step)
        received_weights = brought * (configuration.cores if self.cores_by_bands else 1)
        # partial sums pass a core's memory, each way, under an input-channel split in time
        passes = configuration.input_slices - 1 if op is self.product else 0
        partial = positions * channels * copies * waiting_sum_bytes(op, profile) * passes
        received, drained = _direct(group, op) if group.is_flat else (move.received, move.drained)
        weight_reads = use.weight_bytes * copies
        nram_read = (use.input_bytes + use.partial_bytes) * copies + drained + partial
        nram_written = (use.output_bytes + use.partial_bytes) * copies + received + partial
        wram = NO_BYTES
        if profile.wram is None:
            nram_read, nram_written = nram_read + weight_reads, nram_written + received_weights
        elif any(operand.constant for operand in op.operands):
            wram = LevelBytes(weight_reads, received_weights)
        else:
            nram_read, wram = nram_read + weight_reads, LevelBytes(0, received_weights)
        filling, draining = _port(self.port, received / self.active), _port(self.port, drained / self.active)
        if profile.nram.ports == "shared":
            filling = draining = filling + draining
        staged = 0 if group.is_flat or (routes.weights and home is not WeightHome.SRAM) else brought
        in_sram = staged
        if home is WeightHome.SRAM:
            in_sram = weights.size_bytes * (1 if group.shares_weights_out else units)
        passed = _passed_weights(group, max(brought, in_sram), read_from_dram)
        halos, halo_hops = halos_of(group, op)
        part = gathered_part(group, op)
        gathered = ceil(geometry.facts.tensor_bytes(op.output) * part) if part else 0
        others = Passed(
            gathered=gathered if self.by_channels else 0,
            among_cores=gathered if self.cores_by_channels else 0,
            senders=configuration.cores if group.is_nested else 1,
            fetched=fetched(group, op),
            unit_share=self.share / (configuration.units if self.by_channels else 1),
            apart=group.is_nested and not self.cores_by_channels,
            halos=halos,
            ways=self.ways,
            beside=halos_between_cores(group, op.output) if self.cores_in_step else 0,
            reduced=_reduced(group, op) if op is self.product else 0,
        )
        taken, first_taken = self._taken_cycles(step)
        # with one buffer nothing comes or goes while cores work
        exposed = 0 if self.carried.overlapped else ceil(taken + (self.put_cycles[0] if self.put[step] else 0.0))
        between_groups = sum(
            its.gathered * (units - 1) + its.scattered for its in (*self.taken[step].values(), *self.put[step])
        )
        awaited = others.gathered * (units - 1) + between_groups + others.halos + others.reduced
        exchanged = awaited + passed
        # what units pass on is read at the one and written at the other; written weights are counted where they arrive
        between = NO_BYTES
        if group.is_flat:
            nram_read, nram_written = nram_read + exchanged, nram_written + awaited
        elif exchanged:
            between = LevelBytes(exchanged, awaited)
        copying = self.copying[step]
        arriving, handed = self.arrivals.inputs(step)
        lasting = self.arrivals.lasting(step, read_from_dram)
        elements = group.core_frustums.made_bytes(op.output) // geometry.facts.tensors[op.output].element_bytes
        return StepTraffic(
            op=op.index,
            # depth-first, and where a core works on its tile alone, there is only one
            stage=0 if (stage := group.stage_of[step]) is None else stage[0],
            dataflow=use.dataflow.value,
            compute_cycles=self.compute_cycles[step],
            array_cycles=ceil(use.array_cycles * share),
            call_cycles=ceil(use.call_cycles * share) + copying,
            nram_read_cycles=ceil(use.read_port_cycles * share) + draining,
            nram_write_cycles=ceil(use.write_port_cycles * share) + filling,
            wram_cycles=ceil(use.weight_port_cycles * share),
            sram=LevelBytes(0 if routes.inputs else move.filled, 0 if routes.outputs else move.drained),
            sram_weights=LevelBytes(staged, in_sram),
            between_units=between,
            broadcast_bytes=move.broadcast + (staged if self.cores_by_bands else 0),
            nram=LevelBytes(nram_read, nram_written),
            wram=wram,
            registers_pj=registers_pj * copies,
            exchanged_bytes=exchanged,
            awaited_bytes=awaited,
            awaited_cycles=awaited_cycles(profile, units, configuration.cores, self.turns, others) + exposed,
            taken_cycles=taken,
            first_taken_cycles=first_taken,
            filling_cycles=filling_cycles(group, step, move.filled, move.broadcast, move.drained),
            exchanged_byte_hops=exchanged - halos + halo_hops,
            arriving_bytes=arriving,
            lasting_bytes=lasting,
            loading_cycles=self.arrivals.loading_cycles(step, arriving, lasting),
            handed_bytes=handed + self.arrivals.handed(step, passed),
            passing=self.arrivals.passing(step, passed),
            macs=op.macs.numerator * elements // op.macs.denominator,
            mac_energy_pj=elements * op.macs.numerator / op.macs.denominator * mac_energy_pj(op, profile),
            vector_ops=op.vector_ops.numerator * elements // op.vector_ops.denominator,
        )

    def _taken_cycles(self, step: int) -> tuple[float, float]:
        """Cycles in which inputs of an op come that stay on the chip: all, and those of the first turn."""
        total = first = 0.0
        for name, moves in self.taken[step].items():
            parts = self.group.configuration.input_slices if name in self.group.reduced else 1
            cycles = moving_cycles(self.group, moves, self.repeats * parts)
            # units that share out channels are all at one tile
            at_once = self.units if self.group.configuration.spread in (Spread.BANDS, Spread.IMAGES) else 1
            _, of = self.arrivals.first_part(name)
            total, first = total + cycles, first + cycles * min(1.0, at_once / of)
        return total, first

    def _parts(self, op: OpFacts, axes: tuple[str, ...]) -> list[tuple[tuple[int, int], ...] | None]:
        """Per arrangement of the array as `TensorBoxes.steps` has it, known by type and axes; None: every position."""
        key = (op.dtype if op.matrix is not None else "", axes)
        found = self.parts_of.get(key)
        if found is None:
            found, rows = [], self.group.walk.rows
            for ox, oy in arranged_lanes(op, self.group.profile):
                lanes = {"W": ox, "H": oy}
                parts = tuple([(self.parts if axis == rows else 1, lanes.get(axis, 1)) for axis in axes])
                found.append(parts if ox * oy * self.parts > 1 else None)
            self.parts_of[key] = found
        return found

    def _use(self, step: int) -> tuple[int, int, CoreUse, float]:
        group = self.group
        geometry, weights, slices = group.geometry, group.weights[step], group.slices
        op = geometry.ops[step]
        boxes, channel = group.core_frustums.of_tensor[op.output], op.channel_axis
        positions = group.core_frustums.positions(op)
        steps = [
            positions if parts is None else boxes.steps(channel, parts) * self.parts
            for parts in self._parts(op, geometry.facts.tensors[op.output].axes)
        ]
        channels = group.channels_of_core(op)
        # slices of weights that pass are worked on one after the other, each on its own channels
        inner = 1 if group.homes[step] is WeightHome.CORE else weights.slices
        work = CoreWork(
            steps=tuple([count * slices * inner for count in steps]),
            positions=positions * slices * inner,
            channels=ceil_div(channels, inner),
            pieces=max(1, _pieces(group, step)) * slices * inner,
            sums=group.input_parts if op is geometry.product else 1,
        )
        return channels, positions * slices, *_used(geometry, op, work, group.profile)


def _used(geometry: GroupGeometry, op: OpFacts, work: CoreWork, profile: Profile) -> tuple[CoreUse, float]:
    """What the op costs in a core, and the energy of the array's storage; the same in all groups."""
    known = geometry.projections.known
    key = ("use", geometry.facts.numbers[op.index], work)
    found: Any = known.get(key)
    if found is None or found[0] is not profile:
        use = core_use(op, work, element_sizes(geometry.facts, op), profile)
        found = known[key] = (profile, use, register_energy_pj(use, profile))
    return found[1], found[2]


def element_sizes(facts: GraphFacts, op: OpFacts) -> ElementSizes:
    """Bytes per element of what an op reads and makes; the second factor of a product without weights is computed."""
    tensors = facts.tensors
    operands = [o for o in op.operands if not o.constant]
    factors = [o for o in op.operands if o.constant] or operands[-1:]
    own = tensors[op.output].element_bytes
    return ElementSizes(
        input=tensors[operands[0].tensor].element_bytes if operands else own,
        weight=tensors[factors[0].tensor].element_bytes if factors else own,
        output=own,
        operands=max(1, len(operands)),
    )


def _port(bytes_per_cycle: float | None, moved: float) -> int:
    return 0 if bytes_per_cycle is None else ceil(moved / bytes_per_cycle)


def _channel_copies(group: TiledGroup) -> int:
    """How many cores work on each position, every one on its channels."""
    copies = group.configuration.cores if group.configuration.core_spread is Spread.CHANNELS else 1
    if group.configuration.spread is Spread.CHANNELS:
        copies *= group.configuration.units
    return copies


def _share(group: TiledGroup, by_bands: bool) -> float:
    """The part of all work on positions that the busiest core does."""
    configuration, walk = group.configuration, group.walk
    share = walk.share
    if group.is_nested:
        # the halo of a tile that several core tiles make one after another is there when the last one is
        share = (walk.share_by_tile if group.core_walk.rounds > 1 else share) * group.core_walk.share
    elif by_bands:
        share /= configuration.cores
    return share


def _pieces(group: TiledGroup, step: int) -> int:
    """How often cores begin an op anew, over all tiles: each time they take up its weights."""
    if group.is_nested:
        return group.core_walk.total
    found = group.stage_of[step]
    return group.walk.tiles * (1 if found is None else found[1].pieces)


def _brought(group: TiledGroup, step: int) -> int:
    """Bytes of a step's weights that come to units, each unit's copy counted once."""
    if group.weights_in_place:
        return 0
    return group.weights[step].size_bytes * group.brought(step)


def _passed_weights(group: TiledGroup, arrived: int, from_dram: int) -> int:
    """Weight bytes that units get from each other: what did not come from DRAM."""
    if group.walk.units == 1 and not group.profile.is_stationary:
        return 0
    return max(0, arrived - from_dram)


def _direct(group: TiledGroup, op: OpFacts) -> tuple[int, int]:
    """Without SRAM: bytes that arrive in the cores from DRAM for an op, and bytes that it sends there."""
    frustums = group.frustums
    first = group.geometry.first_readers.get(op.index, ())
    received = sum(frustums.made_bytes(name) for name in first)
    if group.configuration.spread is Spread.CHANNELS and not reads_own_channels(op):
        received *= group.configuration.units
    drained = group.geometry.facts.tensor_bytes(op.output) if op.output in group.geometry.outputs else 0
    return received, drained


def _reduced(group: TiledGroup, op: OpFacts) -> int:
    """Bytes of a product's partial sums that units pass on to be added up under an input-channel split over units."""
    if group.configuration.spread is not Spread.INPUT_CHANNELS:
        return 0
    tensor = group.geometry.facts.tensors[op.output]
    results = group.geometry.facts.tensor_bytes(op.output) // tensor.element_bytes
    return results * waiting_sum_bytes(op, group.profile) * (group.configuration.units - 1)
