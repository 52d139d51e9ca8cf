"""What groups cost at least under any tiling: bounds from below, as arrays over groups (FUSE-O).

A group reads what its results need of its inputs and of its weights once and writes its output. Its ops keep the
arrays as long as their products fill them, for each way in which positions and channels can be spread over units and
cores. Where an op needs all channels of what another op of the group makes, channels cannot be worked on one slice
after another; then memory bounds rounds from below: what is live of the whole map, divided by the rounds, has to fit
beside the weights, or weights come again each round. Few rounds leave much of the first load and the last store
exposed. docs/cost-model.md has the prices that these stay below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf, prod
from operator import add
from typing import Any, Final

import numpy as np

from compiler.cost.array import CoreWork, arranged_lanes, arrangements, least_core_energy_pj
from compiler.cost.rates import dram_port_bytes_per_cycle, dram_startup_cycles, mac_energy_pj, reads_are_shared
from compiler.fusion.bounds import elements_of, needed_by_reader, needed_of
from compiler.fusion.segment_graph import SegmentGraph, bits, mask_of
from compiler.ops.op_facts import GraphFacts, OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.geometry import reads_own_channels
from compiler.tiling.traffic import element_sizes
from compiler.tiling.weights import slices_tried, weight_slice_bytes
from compiler.units import ceil_div

Floats = np.ndarray[Any, np.dtype[np.float64]]

# A bound is compared with a price that other roundings made: it stays this much below, relatively.
_ROUNDING: Final = 1e-9
# Rounds beyond the fewest that memory allows, at which a bound is evaluated; between two of them what grows is taken
# at the first and what falls at the second.
_ROUNDS: Final = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 1024, 1 << 30)
# Bounds of so many groups are worked out together: what lies between takes some kilobytes a group.
_TOGETHER: Final = 1 << 12
# Figures of a group that add up over its ops, before cycles by spread.
_WEIGHTS, _ENERGY, _GATHERED = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpreadOver:
    """How work may be spread: positions over units and over a unit's cores, channels over units or over cores."""

    units: int
    cores: int
    channel_units: int
    channel_cores: int

    @property
    def channels(self) -> int:
        """Parts of the output channels."""
        return self.channel_units * self.channel_cores


class GroupFloors:
    """Bounds from below of the groups of one segment, for one profile. Lives as long as the search."""

    def __init__(self, graph: SegmentGraph, profile: Profile) -> None:
        self.profile = profile
        self._graph = graph
        facts = graph.facts
        self._needed = needed_by_reader(facts)
        self._names: dict[int, str] = {op.index: op.output for op in facts.ops}
        numbers = {name: number for number, name in self._names.items()}
        self._reads: dict[int, int] = {}
        self._readers: dict[int, list[int]] = {}
        self._rows: dict[int, tuple[float, ...]] = {}
        self._spreads = _spreads(profile)
        # ops that need all channels of what they read; asked once of each, not of each reader of a result
        self._mixing = frozenset(op for op in graph.ops if not reads_own_channels(facts.ops[op]))
        for op in graph.ops:
            mask = 0
            for operand in facts.ops[op].operands:
                if operand.constant:
                    continue
                number = numbers.setdefault(operand.tensor, len(numbers))
                self._names[number] = operand.tensor
                if not mask >> number & 1:
                    mask |= 1 << number
                    self._readers.setdefault(number, []).append(op)
            self._reads[op] = mask
        self._readers_mask = {number: mask_of(readers) for number, readers in self._readers.items()}
        self._in_place = mask_of(op for op in graph.ops if facts.ops[op].in_place)
        self._output_bytes = {op: facts.tensor_bytes(facts.ops[op].output) for op in graph.ops}
        for op in graph.ops:
            self._rows[op] = self._row(facts.ops[op])
        self._products = mask_of(op for op in graph.ops if facts.ops[op].matrix is not None)
        self._summable = mask_of(op for op in graph.ops if _is_summable(facts.ops[op]))
        self._most = {op: self._most_of(facts.ops[op]) for op in graph.ops}
        self._shares = {op: self._share(op) for op in graph.ops}
        self._summed: dict[int, tuple[tuple[float, ...], int, tuple[float, ...]]] = {}
        self._tensor_bytes: dict[int, tuple[tuple[int, int], ...]] = {}

    def of(self, groups: Sequence[int]) -> Floats:
        """DRAM bytes, cycles and pJ that no tiling of a single-output group goes below: [groups, 3]."""
        if not groups:
            return np.zeros((0, 3))
        return np.concatenate([self._of(groups[at : at + _TOGETHER]) for at in range(0, len(groups), _TOGETHER)])

    def _of(self, groups: Sequence[int]) -> Floats:
        """The same of so many that their figures take little memory."""
        sums, most, ends = [], [], []
        for group in groups:
            figures, reads, highest = self._sums(group)
            sums.append(figures)
            most.append(highest)
            begins, output = (group & -group).bit_length() - 1, group.bit_length() - 1
            tensors = reads & ~group, self._not_taken_over(reads & ~group, group), self._reads[begins] & ~group
            ends.append((*(self._read_bytes(its, group) for its in tensors), self._output_bytes[output]))
        shares = np.array([self._share_of(group) for group in groups], dtype=np.float64)
        columns = tuple(np.array(ends, dtype=np.float64).T)
        in_parts = np.array([self._is_in_parts(group) for group in groups])
        self._summed.clear()
        table, highest_of = np.array(sums, dtype=np.float64), np.array(most, dtype=np.float64)
        return self._bounds(table, shares, columns, highest_of, in_parts)

    def _bounds(
        self, table: Floats, shares: Floats, ends: tuple[Floats, ...], most: Floats, in_parts: np.ndarray
    ) -> Floats:
        """The least over all ways of spreading, orders and rounds.

        `ends`: bytes read, read into what nothing is written over, read by the first op, for which all others wait, and
        written. `in_parts` as in `_is_in_parts`.
        """
        profile = self.profile
        result = np.full((len(table), 3), np.inf)
        read, kept, begun, written = ends
        weights = table[:, _WEIGHTS]
        rate = dram_port_bytes_per_cycle(profile, profile.units.count)
        startup = ceil(2 * dram_startup_cycles(profile))
        mixing = table[:, _GATHERED] > 0
        for number, spread in enumerate(self._spreads):
            busy = shares[:, number] * table[:, _GATHERED + 1 + number] * (1 - _ROUNDING)
            passing = np.zeros(len(table))
            if spread.channel_units > 1:
                # results that later ops need with all channels, and inputs, go from unit to unit
                busy = np.maximum(busy, table[:, _GATHERED] / self._passing_rate())
                passing = np.where(mixing, read / self._passing_rate(), 0.0)
            elif spread.units > 1 and reads_are_shared(profile):
                # weights are read once, and go from unit to unit, but where units sum up parts of a product
                busy = np.maximum(busy, np.where(in_parts, 0.0, weights / self._passing_rate()))
            held = _Held(live=kept + most[:, 0], ends=read + written, weights=weights, passing=most[:, 1 + number])
            for fewest, again in self._orders(spread, held):
                possible = (fewest < np.inf) | ~mixing
                fewest, again = np.where(mixing & possible, fewest, 1.0), np.where(mixing, again, 0.0)
                copies = spread.channel_units
                for first, second in pairwise(_ROUNDS):
                    moved = read + weights + written + (fewest + first - 1) * again
                    exposed = np.where(mixing, np.minimum(1.0, copies / (fewest + second - 1)), 0.0)
                    cycles = np.maximum(passing, np.maximum(moved / rate, busy + (begun + written) * exposed / rate))
                    cycles = np.floor(cycles * (1 - _ROUNDING)) + np.where(moved > 0, startup, 0)
                    energy = table[:, _ENERGY] + (moved - written) * profile.dram.read_pj_per_byte
                    energy += written * profile.dram.write_pj_per_byte
                    energy += cycles * profile.static_w / profile.clock_hz * 1e12
                    figures = np.stack([moved, cycles, energy * (1 - _ROUNDING)], axis=1)
                    figures[~possible] = np.inf
                    result = np.minimum(result, figures)
        return result

    def _orders(self, spread: _SpreadOver, held: _Held) -> list[tuple[Floats, Floats]]:
        """By depth order and home of weights: the fewest rounds (infinite: impossible), and the bytes of weights that
        come again each round.
        """
        profile, none = self.profile, np.zeros(len(held.weights))
        inside = held.weights * (float(profile.weights.compression) * (1 - _ROUNDING))
        in_cores = inside / spread.channels
        room, channels = profile.weight_memory_bytes, spread.channels / float(profile.weights.compression)
        if profile.units.are_cores:
            capacity = float(profile.nram.capacity_bytes)
            beside = capacity if profile.weights_share_activations else inf
            resident = np.minimum(capacity, beside - in_cores)
            streamed = np.minimum(capacity, beside - held.passing)
            again = np.maximum(0.0, held.weights - channels * (room - held.passing))
            return [
                (_rounds(held.live, spread.units, np.where(in_cores <= room, resident, 0)), none),
                (_rounds(held.live, spread.units, streamed), again * (1 - _ROUNDING)),
            ]
        capacity, weight_part = float(profile.units.memory.capacity_bytes), profile.units.weight_part_bytes
        in_unit = inside / spread.channel_units
        fits = np.where(in_cores <= room, capacity, 0)
        nested, staged = (_rounds(b, spread.units, fits) for b in (held.ends, held.live))
        again = np.maximum(0.0, held.weights - channels * room)
        if weight_part is not None:
            again = np.maximum(0.0, again - spread.channel_units * weight_part)
            streamed = _rounds(held.live, spread.units, capacity + none)
            return [(nested, none), (streamed, again * (1 - _ROUNDING))]
        waiting = _rounds(held.live, spread.units, capacity - in_unit)
        streamed = _rounds(held.live, spread.units, capacity - held.passing)
        return [(nested, none), (staged, none), (waiting, none), (streamed, again * (1 - _ROUNDING))]

    def _passing_rate(self) -> float:
        """Bytes per cycle of the engine that passes results from unit to unit."""
        engine = self.profile.units.peer_engine
        return inf if engine is None else engine.bytes_per_cycle

    def _sums(self, group: int) -> tuple[tuple[float, ...], int, tuple[float, ...]]:
        """What adds up over a group's ops, what they read, and what is greatest: kept for the groups it grows into."""
        known = self._summed.get(group)
        if known is None:
            first = (group & -group).bit_length() - 1
            rest = group & (group - 1)
            row, most = self._rows[first], self._most[first]
            if rest:
                sums, reads, highest = self._sums(rest)
                known = tuple(map(add, sums, row)), reads | self._reads[first], tuple(map(max, highest, most))
            else:
                # nothing in the group reads the output
                row = (*row[:_GATHERED], 0.0, *row[_GATHERED + 1 :])
                known = row, self._reads[first], (0.0, *most[1:])
            self._summed[group] = known
        return known

    def _read_bytes(self, tensors: int, group: int) -> int:
        """Bytes that a group needs of tensors that it does not make."""
        total = 0
        for number in bits(tensors):
            readers = self._tensor_bytes.get(number)
            if readers is None:
                readers = self._tensor_bytes[number] = self._readers_of(number)
            total += readers[0][1] if len(readers) == 1 else max(size for op, size in readers if group >> op & 1)
        return total

    def _not_taken_over(self, tensors: int, group: int) -> int:
        """Those of the tensors that a group reads which no result of it may be written over."""
        found = tensors
        for number in bits(tensors):
            inside = self._readers_mask[number] & group
            if not inside & (inside - 1) and inside & self._in_place:
                found &= ~(1 << number)
        return found

    def _readers_of(self, number: int) -> tuple[tuple[int, int], ...]:
        """By reader the bytes that it needs of a tensor; one entry where all need the same."""
        name = self._names[number]
        width = self._graph.facts.tensors[name].element_bytes
        sizes = dict.fromkeys(self._readers[number], 0)
        for op, part in self._needed.get(name, ()):
            if op in sizes:
                sizes[op] = max(sizes[op], elements_of(part) * width)
        return tuple(sizes.items()) if len(set(sizes.values())) > 1 else tuple(sizes.items())[:1]

    def _most_of(self, op: OpFacts) -> tuple[float, ...]:
        """Bytes of an op's result and of what is made from it, where a reader needs all its channels at once; and by
        spread what its weights take at least where they pass.
        """
        facts, live = self._graph.facts, 0
        for user in self._graph.successors[op.index]:
            if user in self._mixing and not facts.ops[user].in_place:
                live = max(live, self._made_bytes(op.index) + self._made_bytes(user))
        return (float(live), *(self._passing(op, spread) for spread in self._spreads))

    def _passing(self, op: OpFacts, spread: _SpreadOver) -> float:
        """Bytes that an op's weights take on their way in the most slices: without SRAM in a core, else in there.

        They come in the fewest that fit, or in less than twice as many where that leaves fewer lanes idle.
        """
        profile = self.profile
        if profile.is_stationary or not op.weight_bytes:
            return 0.0
        unit = op.weight_bytes * float(profile.weights.compression) / spread.channel_units
        core = unit / spread.channel_cores
        shape = self._graph.facts.tensors[op.output].shape
        channels = 1 if op.channel_axis is None else shape[op.channel_axis]
        mine = ceil_div(channels, spread.channel_units * spread.channel_cores)
        slices = slices_tried(max(1, ceil(core)), mine, weight_slice_bytes(profile))[-1]
        if profile.units.are_cores:
            return core / slices * min(2, slices) * (1 - _ROUNDING)
        return min(unit, core / slices * profile.cores_per_cluster) * (1 - _ROUNDING)

    def _made_bytes(self, op: int) -> int:
        """Bytes of an op's result that are needed."""
        facts, name = self._graph.facts, self._graph.facts.ops[op].output
        wanted = self._needed.get(name)
        if not wanted:
            return 0
        return elements_of(needed_of(facts, name, [part for _, part in wanted])) * facts.tensors[name].element_bytes

    def _is_in_parts(self, group: int) -> bool:
        """True if units may each sum up their part of the input channels: of the only product, which comes first."""
        first = group & -group
        return bool(first & self._summable) and not group & self._products & ~first

    def _share_of(self, group: int) -> tuple[float, ...]:
        """Per spread, the least part of a group's positions, or of its sums, that its busiest core has."""
        if not self._is_in_parts(group):
            return self._shares[group.bit_length() - 1]
        return tuple(1 / spread.units / spread.cores for spread in self._spreads)

    def _share(self, op: int) -> tuple[float, ...]:
        """Per spread, the least part of the positions of a group with this output that its busiest core has."""
        output = self._graph.facts.ops[op]
        tensor = self._graph.facts.tensors[output.output]
        positions = prod(e for axis, e in zip(tensor.axes, tensor.shape, strict=True) if axis != "C") or 1
        return tuple(ceil_div(positions, spread.units) / positions / spread.cores for spread in self._spreads)

    def _row(self, op: OpFacts) -> tuple[float, ...]:
        """What an op adds to its group: bytes of weights, pJ inside the cores, bytes that a later op needs with all
        channels, cycles on one core by spread.
        """
        facts, profile = self._graph.facts, self.profile
        wanted = self._needed.get(op.output)
        weights = 0
        if not profile.is_stationary:
            for name in dict.fromkeys(o.tensor for o in op.operands if o.constant):
                readers = self._needed.get(name, ())
                if len(readers) == 1 and readers[0][0] == op.index:
                    weights += elements_of(readers[0][1]) * facts.tensors[name].element_bytes
        users = self._graph.successors[op.index]
        mixed = any(user in self._mixing for user in users)
        gathered = float(facts.tensor_bytes(op.output)) if mixed else 0.0
        if not wanted:
            return (float(weights), 0.0, gathered, *(0.0 for _ in self._spreads))
        elements = elements_of(needed_of(facts, op.output, [part for _, part in wanted]))
        energy = elements * float(op.macs) * mac_energy_pj(op, profile)
        energy += int(elements * float(op.vector_ops)) * profile.vector.pj_per_operation
        shape = facts.tensors[op.output].shape
        channels = shape[op.channel_axis] if op.channel_axis is not None else 1
        positions = elements / max(1, channels)
        energy += _operand_energy(facts, op, positions, channels, profile)
        cycles = (_cycles(op, positions, channels, spread.channels, profile) for spread in self._spreads)
        return (float(weights), energy, gathered, *cycles)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """By group, in bytes: what is live of the whole map, inputs and outputs, weights, and weights as they pass."""

    live: Floats
    ends: Floats
    weights: Floats
    passing: Floats


def _rounds(held: Floats, units: int, capacity: Floats) -> Floats:
    """The fewest rounds in which a part of the map fits; infinite where there is no capacity."""
    rounds = np.ceil(held * (1 - _ROUNDING) / (units * np.maximum(capacity, 1e-3)))
    return np.where(capacity > 0, np.maximum(1.0, rounds), np.inf)


def _is_summable(op: OpFacts) -> bool:
    """True if a product's input channels may be cut."""
    return op.matrix is not None and op.sums_in_parts and op.matrix.in_channels > 1


def _spreads(profile: Profile) -> tuple[_SpreadOver, ...]:
    """All ways of spreading over all units, or one, and all cores; what uses fewer takes longer."""
    units, cores = profile.units.count, profile.units.cores
    over_units = [(units, 1), (1, units), (1, 1)] if units > 1 else [(1, 1)]
    over_cores = [(cores, 1), (1, cores)] if cores > 1 else [(1, 1)]
    return tuple(
        _SpreadOver(units=by_unit, cores=by_core, channel_units=unit_channels, channel_cores=core_channels)
        for by_unit, unit_channels in over_units
        for by_core, core_channels in over_cores
    )


def _cycles(op: OpFacts, positions: float, channels: int, parts: int, profile: Profile) -> float:
    """Cycles of one core for all positions and its part of the channels: on the array, or on the vector lanes."""
    mine = ceil_div(channels, parts)
    vector = float(op.vector_ops) * positions * mine / profile.vector.lanes
    array = profile.matrix.arrays.get(op.dtype)
    if op.matrix is None or array is None:
        return vector
    shape, on_array = op.matrix, inf
    for lanes in arrangements(array):
        together = min(shape.out_channels, lanes.k)
        steps = mine / together if shape.groups > 1 else ceil_div(mine, lanes.k)
        depth = ceil_div(shape.in_channels, lanes.c) * shape.taps
        on_array = min(on_array, positions / (lanes.ox * lanes.oy) * steps * depth)
    return vector + min(on_array, 2 * float(op.macs) * positions * mine / profile.vector.lanes)


def _operand_energy(facts: GraphFacts, op: OpFacts, positions: float, channels: int, profile: Profile) -> float:
    """pJ of an op's operands and results inside the cores at least: of one core that works on all of it at once."""
    if positions * channels < 1:
        return 0.0
    work = CoreWork(steps=_steps(op, positions, profile), positions=int(positions), channels=channels, pieces=1)
    return least_core_energy_pj(op, work, element_sizes(facts, op), profile)


def _steps(op: OpFacts, positions: float, profile: Profile) -> tuple[int, ...]:
    lanes = arranged_lanes(op, profile) if op.dtype in profile.matrix.arrays else ((1, 1),)
    return tuple(max(1, int(positions / (ox * oy))) for ox, oy in lanes)
