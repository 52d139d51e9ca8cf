"""What a tiled group moves and computes: the bridge from tiling to price."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import Any, NamedTuple

from compiler.cost.array import CoreUse, CoreWork, ElementSizes, arranged_lanes, core_use, register_energy_pj
from compiler.cost.levels import NO_BYTES, LevelBytes
from compiler.cost.model import StepTraffic, Traffic
from compiler.cost.rates import direct_is_as_wide, mac_energy_pj, reads_are_shared, waiting_sum_bytes
from compiler.ops.op_facts import GraphFacts, OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.arrivals import Arrivals, copied_bytes
from compiler.tiling.geometry import GroupGeometry, reads_own_channels
from compiler.tiling.halos import halos_between_cores, halos_of
from compiler.tiling.loads import table_reads, weight_reads
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
from compiler.tiling.placement import Placement
from compiler.tiling.sharing import passed_parts
from compiler.tiling.tile import HaloMode, Spread, WeightHome
from compiler.tiling.tiled import TiledGroup
from compiler.units import ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Which way bytes go between DRAM and cores: True directly by IODMA, False through the SRAM (TILE-7)."""

    inputs: bool
    outputs: bool
    weights: bool


class _Moved(NamedTuple):
    """Bytes of one step between a unit's SRAM and its cores, over all tiles and units.

    filled: read from SRAM for the cores; broadcast: the part of it that goes to all cores of a unit at once.
    received: what arrives in the cores' memories. drained: written back to the SRAM.
    """

    filled: int
    broadcast: int
    received: int
    drained: int


def traffic_of(group: TiledGroup) -> Traffic:
    """Bytes per level, cycles and work of a tiled group, for the whole batch."""
    profile, configuration, geometry = group.profile, group.configuration, group.geometry
    shared = reads_are_shared(profile)
    loaded, copied = input_bytes(group)
    outputs = sum(map(geometry.facts.tensor_bytes, geometry.outputs))
    moves = [_moves(group, step) for step in range(len(geometry.ops))]
    routes = routes_of(group, copied, outputs, moves)
    from_dram = weight_reads(group)
    each = _Steps(group, routes)
    steps = tuple([each.of(step, *its) for step, its in enumerate(zip(moves, from_dram, strict=True))])
    tiles, repeats = group.walk.tiles * group.slices, group.walk.rounds * group.slices
    overlapped, loads = configuration.double_buffered or repeats == 1, repeats * configuration.input_slices
    inputs, passed_on = (loaded, copied - loaded) if shared else (copied, 0)
    sram_ends = nram_ends = LevelBytes()
    if not group.is_flat:
        read = passed_on + (0 if routes.outputs else outputs)
        sram_ends = LevelBytes(read=read, written=0 if routes.inputs else copied)
    elif not profile.dram.multicast:
        nram_ends = LevelBytes(read=passed_on)
    return Traffic(
        input_bytes=inputs,
        weight_bytes=sum(from_dram),
        output_bytes=outputs,
        turns=each.turns,
        parts=configuration.input_slices,
        unhidden_cycles=sum(each.arrivals.unhidden_cycles(step, size) for step, size in enumerate(from_dram)),
        last_store_bytes=ceil_div(outputs * min(group.walk.units, tiles), tiles),
        units=group.walk.units,
        cores=group.walk.units * configuration.cores,
        overlapped=overlapped,
        hidden_transfers=hidden_transfers(geometry, configuration, repeats),
        exposed_transfers=1 if configuration.double_buffered else repeats,
        unit_loads=loads if overlapped and loads > 1 else 0,
        sram_ends=sram_ends,
        nram_ends=nram_ends,
        passed_on_bytes=passed_on,
        copied_bytes=copied_bytes(group),
        loading_share=None if group.is_flat or routes.inputs or not routes.weights else 1 / (1 + configuration.cores),
        steps=steps,
        table_bytes=sum(table_reads(group).values()),
        loads_in_turn=loads_in_turn(group, each.turns),
    )


def input_bytes(group: TiledGroup) -> tuple[int, int]:
    """Bytes of all inputs read from DRAM if units pass on what several need, and if each reads for itself."""
    reads = input_reads(group).values()
    return sum(loaded for loaded, _ in reads), sum(copied for _, copied in reads)


def input_reads(group: TiledGroup) -> dict[str, tuple[int, int]]:
    """The same for each input by name."""
    found = {}
    configuration = group.configuration
    by_channels = configuration.spread is Spread.CHANNELS
    are_bands = configuration.spread is Spread.BANDS and configuration.placement is Placement.BANDS
    for name in group.geometry.inputs:
        constant, shares = group.frustums.factors(name)
        followed = group.frustums.of_tensor[name].followed
        own = constant
        once = constant
        for axis, share in shares.items():
            own *= share.made_sum
            # what is the same for all tiles along an axis reaches the chip once and is passed on
            unchanging = axis not in followed
            cached = unchanging and group.frustums.tiles[axis].mode is not HaloMode.RECOMPUTE
            in_bands = unchanging and axis == group.walk.rows and are_bands
            if by_channels and axis == "C" and group.slices == 1:
                # units that make channels of one group of a convolution need the same
                once *= _distinct(group, name)
            else:
                once *= 1 if cached else ceil_div(share.made_sum, group.walk.units) if in_bands else share.made_sum
        divided = group.channels_are_free and "C" in followed
        whole_output = group.geometry.channels_follow and _follows_channels(group, name)
        own *= group.configuration.units if by_channels and not (divided or whole_output) else 1
        if name in group.reduced and group.is_nested and group.parts_come_again:
            once, own = once * group.core_walk.rounds, own * group.core_walk.rounds
        found[name] = once, max(once, own)
    return found


def _distinct(group: TiledGroup, name: str) -> int:
    """Channels of an input over all ranges that differ: units that share out the output's read equal ones once."""
    ranges = [
        zip(starts.tolist(), stops.tolist(), strict=True)
        for axis, starts, stops in group.frustums.of_tensor[name].ranges
        if axis == "C"
    ]
    return prod(sum(stop - start for start, stop in set(its)) for its in ranges)


def _follows_channels(group: TiledGroup, name: str) -> bool:
    """True if an input's box follows the output's channels, whether or not these are cut in time."""
    boxes = group.geometry.channel_boxes
    return any(axis == "C" for axis, _, _ in boxes[name])


def routes_of(group: TiledGroup, copied: int, outputs: int, moves: list[_Moved]) -> Routes:
    """The DRAM route of each kind of data (TILE-7): directly where the SRAM would serve nobody twice."""
    profile = group.profile
    if group.is_flat or group.profile.engines.iodma is None:
        return Routes(inputs=False, outputs=False, weights=False)
    wide = direct_is_as_wide(profile, group.walk.units, group.configuration.cores)
    filled = sum(move.filled for move in moves)
    broadcast = sum(move.broadcast for move in moves)
    # what several units need of the weights comes to the SRAM of one, which hands it on
    alone = (group.configuration.core_spread is Spread.CHANNELS or group.configuration.cores == 1) and (
        group.walk.units == 1 or group.shares_weights_out
    )
    return Routes(
        inputs=wide and group.is_nested and broadcast == 0 and filled == copied,
        outputs=wide and group.is_nested and sum(move.drained for move in moves) == outputs,
        weights=wide and alone,
    )


def _moves(group: TiledGroup, step: int) -> _Moved:
    """What one step fills into and drains from the cores."""
    if group.is_flat:
        return _Moved(filled=0, broadcast=0, received=0, drained=0)
    return _nested_moves(group, step) if group.is_nested else _staged_moves(group, step)


def _nested_moves(group: TiledGroup, step: int) -> _Moved:
    """Depth-first: group inputs come from the SRAM, outputs return to it, and what waits there for lack of room."""
    geometry, frustums, op = group.geometry, group.core_frustums, group.geometry.ops[step]
    filled = drained = gathered = 0
    inputs = set(geometry.inputs)
    for operand in op.operands:
        if not operand.constant and operand.tensor in inputs:
            filled += frustums.read_bytes(op, operand)
    if op.output in geometry.outputs:
        drained += frustums.made_bytes(op.output)
    waiting = _waiting_in_sram(group, op.output)
    filled, drained = filled + waiting, drained + waiting
    if group.exchanges and group.configuration.core_spread is Spread.BANDS and group.configuration.cores > 1:
        between = halos_between_cores(group, op.output)
        filled, drained = filled + between, drained + between
    part = _gathered_part(group, op)
    if part:
        gathered = ceil(frustums.made_bytes(op.output) * part)
        drained += 0 if op.output in geometry.outputs else gathered
    return _to_cores(group, op, filled, gathered, drained)


def _staged_moves(group: TiledGroup, step: int) -> _Moved:
    """Breadth-first: what a stage reads from outside comes from the SRAM, what it makes returns to it."""
    frustums, op = group.frustums, group.geometry.ops[step]
    _, stage = group.stage_of[step] or (0, None)
    filled = drained = 0
    for operand in op.operands:
        if operand.constant:
            continue
        if stage is None or operand.tensor in stage.inputs:
            again = 1.0 if stage is None else stage.rereads * group.passes(step)[1]
            if stage is not None and not group.configuration.slices_outer:  # pieces come anew for every slice
                again *= 1 if "C" in frustums.of_tensor[operand.tensor].followed else group.slices
            filled += ceil(frustums.read_bytes(op, operand) * again)
        elif operand.tensor in stage.staying:
            filled += ceil(frustums.read_bytes(op, operand) * stage.staying[operand.tensor])
    if stage is None or op.output in stage.results:
        drained = frustums.made_bytes(op.output)
    elif op.output in stage.staying:
        waiting = _waiting_in_sram(group, op.output)
        filled += waiting
        drained = ceil(frustums.made_bytes(op.output) * stage.staying[op.output]) + waiting
    return _to_cores(group, op, filled, 0, drained)


def _fetched(group: TiledGroup, op: OpFacts) -> float:
    """How often, in the turns of its tiles, a core puts parts of a result into the SRAM and takes them back."""
    if not group.is_nested:
        return 0.0
    tiles, along = group.core_frustums.tiles, group.core_frustums.reused_along(op.output)
    outside = [tiles[axis] for axis in along if axis not in group.core_kept_axes]
    return sum(2.0 * (1 + its.both_ways) * (its.count - int(its.restarts.sum())) / its.count for its in outside)


def _waiting_in_sram(group: TiledGroup, name: str) -> int:
    """Bytes of a result that stays in the cores which wait in the SRAM for later tiles, each way."""
    reused = group.core_frustums.reused_along(name)
    return sum(size for axis, size in reused.items() if axis not in group.core_kept_axes)


def _to_cores(group: TiledGroup, op: OpFacts, filled: int, gathered: int, drained: int) -> _Moved:
    """Under a channel spread all cores need what is not cut with the channels: by the bus at once, else one by one."""
    configuration = group.configuration
    cores = configuration.cores if configuration.core_spread is Spread.CHANNELS else 1
    # units that share channels each read the whole for themselves
    units = configuration.units if configuration.spread is Spread.CHANNELS else 1
    own = reads_own_channels(op)
    copies = 1 if own else cores
    filled *= 1 if own else units
    on_bus = copies > 1 and group.profile.engines.bus is not None
    gathered *= units
    read = (filled + gathered) * (1 if on_bus else copies)
    return _Moved(
        filled=read,
        broadcast=filled + gathered if on_bus else 0,
        received=filled * copies + gathered * cores,
        drained=drained,
    )


def _gathered_part(group: TiledGroup, op: OpFacts) -> float:
    """The part of an op's result that cores or units which make its channels in parts need of each other.

    All of it where some waits for later tiles: whoever takes it up then has all channels.
    """
    if group.channels_are_free or group.channel_parts == 1 or op.channel_axis is None:
        return 0.0
    if group.core_frustums.kept_bytes(op.output):
        return 1.0
    return passed_parts(group.geometry, group.channel_parts)[op.index]


class _Steps:
    """The ops of a group one by one: work, ports and bytes; what all of them have in common is worked out once."""

    def __init__(self, group: TiledGroup, routes: Routes) -> None:
        configuration, profile = group.configuration, group.profile
        self.group = group
        self.routes = routes
        self.units = group.walk.units
        self.active = max(1, self.units * configuration.cores)
        self.by_channels = configuration.spread is Spread.CHANNELS
        self.cores_by_channels = configuration.core_spread is Spread.CHANNELS
        self.cores_by_bands = configuration.core_spread is Spread.BANDS
        self.copies = _channel_copies(group)
        self.turns = turns(group)
        by_bands = group.is_staged and self.cores_by_bands
        rows = group.walk.rows
        self.parts = configuration.cores if by_bands else 1
        self.divide = {rows: configuration.cores} if by_bands and rows is not None else {}
        self.share = _share(group, by_bands)
        self.in_turn = in_turn(group) if group.shares_sums else 1.0
        self.unit_share = self.share / (configuration.units if self.by_channels else 1)
        self.port = profile.nram.bytes_per_cycle
        self.unevenness = Unevenness(group)
        self.ways = max(1, 2 * sum(tiles.both_ways for tiles in group.frustums.tiles.values()))
        inside = group.core_frustums.tiles if group.is_nested and self.cores_by_bands else {}
        self.cores_in_step = rows in inside and inside[rows].both_ways
        self.parts_of: dict[tuple[str, tuple[str, ...]], list[tuple[tuple[int, int], ...] | None]] = {}
        self.product = group.geometry.product
        self.arrivals = Arrivals(group, routes.weights, input_reads(group), self.turns)

    def of(self, step: int, move: _Moved, read_from_dram: int) -> StepTraffic:
        """One op; `read_from_dram`: bytes of its weights."""
        group, routes, units, copies = self.group, self.routes, self.units, self.copies
        profile, configuration, geometry = group.profile, group.configuration, group.geometry
        op, weights, home = geometry.ops[step], group.weights[step], group.homes[step]
        channels, positions, use, registers_pj = self._use(step)
        share = self.share * self.unevenness.of(op) * self.in_turn
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
        part = _gathered_part(group, op)
        gathered = ceil(geometry.facts.tensor_bytes(op.output) * part) if part else 0
        others = Passed(
            gathered=gathered if self.by_channels else 0,
            among_cores=gathered if self.cores_by_channels else 0,
            senders=configuration.cores if group.is_nested else 1,
            fetched=_fetched(group, op),
            unit_share=self.unit_share,
            apart=group.is_nested and not self.cores_by_channels,
            halos=halos,
            ways=self.ways,
            beside=halos_between_cores(group, op.output) if self.cores_in_step else 0,
            reduced=_reduced(group, op) if op is self.product else 0,
        )
        awaited = others.gathered * (units - 1) + others.halos + others.reduced
        exchanged = awaited + passed
        # what units pass on is read at the one and written at the other; written weights are counted where they arrive
        between = NO_BYTES
        if group.is_flat:
            nram_read, nram_written = nram_read + exchanged, nram_written + awaited
        elif exchanged:
            between = LevelBytes(exchanged, awaited)
        copying = copying_cycles(group, op)
        arriving, handed = self.arrivals.inputs(step)
        elements = group.core_frustums.made_bytes(op.output) // geometry.facts.tensors[op.output].element_bytes
        return StepTraffic(
            op=op.index,
            # depth-first, and where a core works on its tile alone, there is only one
            stage=0 if (stage := group.stage_of[step]) is None else stage[0],
            dataflow=use.dataflow.value,
            compute_cycles=ceil(use.cycles * share) + copying,
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
            awaited_cycles=awaited_cycles(profile, units, configuration.cores, self.turns, others),
            filling_cycles=filling_cycles(group, step, move.filled, move.broadcast, move.drained),
            exchanged_byte_hops=exchanged - halos + halo_hops,
            arriving_bytes=arriving,
            lasting_bytes=self.arrivals.lasting(step, read_from_dram),
            handed_bytes=handed + self.arrivals.handed(step, passed),
            passing=self.arrivals.passing(step, passed),
            macs=op.macs.numerator * elements // op.macs.denominator,
            mac_energy_pj=elements * op.macs.numerator / op.macs.denominator * mac_energy_pj(op, profile),
            vector_ops=op.vector_ops.numerator * elements // op.vector_ops.denominator,
        )

    def _parts(self, op: OpFacts, axes: tuple[str, ...]) -> list[tuple[tuple[int, int], ...] | None]:
        """Per arrangement of the array as `TensorBoxes.steps` has it, known by type and axes; None: every position."""
        key = (op.dtype if op.matrix is not None else "", axes)
        found = self.parts_of.get(key)
        if found is None:
            found = []
            for ox, oy in arranged_lanes(op, self.group.profile):
                lanes = {"W": ox, "H": oy}
                parts = tuple([(self.divide.get(axis, 1), lanes.get(axis, 1)) for axis in axes])
                found.append(parts if ox * oy * self.parts > 1 else None)
            self.parts_of[key] = found
        return found

    def _use(self, step: int) -> tuple[int, int, CoreUse, float]:
        """Channels of a core, positions, what the op costs in a core, and energy of the array's own storage."""
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
