"""What no plan can go below, and the yardstick beside it: floor, reference, roofline (SPEC section 5.1)."""

from __future__ import annotations

from math import ceil, prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.fusion.none import main_chains
from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.ir.box import AxisMap
from compiler.ops.op_facts import GraphFacts
from compiler.profile.schema import Profile

Ranges = tuple[tuple[int, int], ...]
# Which positions of an axis are needed: a range, or a mask where there are gaps.
Needed = tuple[int, int] | NDArray[np.bool_]
Positions = tuple[Needed, ...]
# A union of more sets than this is bounded by its largest one: still a true floor.
_UNION_SETS: Final = 48
_UNION_CELLS: Final = 1_000_000


def needed_by_reader(facts: GraphFacts) -> dict[str, list[tuple[int | None, Positions]]]:
    """Per tensor, what each of its readers (op index) needs of it so that all graph outputs can be made.

    Exact to the position per axis: a strided convolution leaves rows out, and no tiling has to read them. Reader None,
    the first: what leaves the chip, all of it. Ops whose result nobody needs read nothing.
    """
    needed: dict[str, list[tuple[int | None, Positions]]] = {
        name: [(None, _all(facts, name))] for name in facts.graph.chip_outputs if name in facts.tensors
    }
    for op in reversed(facts.ops):
        wanted = needed.get(op.output)
        if not wanted:
            continue
        output = needed_of(facts, op.output, [part for _, part in wanted])
        for operand in op.operands:
            shape = facts.tensors[operand.tensor].shape
            part = tuple(_positions(m, output, extent) for m, extent in zip(operand.access, shape, strict=True))
            needed.setdefault(operand.tensor, []).append((op.index, part))
    return needed


def needed_positions(facts: GraphFacts) -> dict[str, list[Positions]]:
    """Per tensor, what its readers need of it so that all graph outputs can be made, see `needed_by_reader`."""
    return {name: [part for _, part in readers] for name, readers in needed_by_reader(facts).items()}


def dram_floor_bytes(facts: GraphFacts, needed: dict[str, list[Positions]], profile: Profile) -> int:
    """Floor: the parts of graph inputs and weights that the outputs need, once, plus the outputs, once.

    What the host makes and the chip reads counts as an input, what the host reads of the chip's as an output;
    stationary weights do not count (SPEC section 5.1).

    Where several ops need different parts of a tensor, their union counts, for separate groups may read just that.
    """
    return sum(floor_by_tensor(facts, needed, profile).values())


def floor_by_tensor(facts: GraphFacts, needed: dict[str, list[Positions]], profile: Profile) -> dict[str, int]:
    """The floor's bytes of each tensor that counts."""
    graph = facts.graph
    outputs = set(graph.chip_outputs)
    found: dict[str, int] = {}
    for name, parts in needed.items():
        if profile.is_stationary and facts.tensors[name].constant:
            continue
        producer = graph.producer.get(name)
        if producer is not None and producer not in graph.on_host:
            if name in outputs:
                found[name] = _bytes(facts, name, _whole(facts, name))
            continue
        found[name] = union_bytes(facts, name, parts[1:] if name in outputs else parts)
    return found


def union_bytes(facts: GraphFacts, name: str, parts: list[Positions]) -> int:
    """Bytes of the positions of a tensor that any of the parts holds."""
    return _union_size(parts, facts.tensors[name].shape) * facts.tensors[name].element_bytes


def _all(facts: GraphFacts, name: str) -> Positions:
    return tuple((0, extent) for extent in facts.tensors[name].shape)


def _mask(needed: Needed, extent: int) -> NDArray[np.bool_]:
    if isinstance(needed, np.ndarray):
        return needed
    mask = np.zeros(extent, dtype=np.bool_)
    mask[needed[0] : needed[1]] = True
    return mask


def elements_of(part: Positions) -> int:
    """Elements in what is needed of a tensor."""
    return prod(map(_count, part))


def _count(needed: Needed) -> int:
    """How many positions of an axis are needed."""
    return int(needed.sum()) if isinstance(needed, np.ndarray) else needed[1] - needed[0]


def needed_of(facts: GraphFacts, name: str, parts: list[Positions]) -> Positions:
    """Per axis, what any of the parts of a tensor needs: what a single group that serves them all has to make."""
    if len(parts) == 1:
        return parts[0]
    result: list[Needed] = []
    for axis, extent in zip(zip(*parts, strict=True), facts.tensors[name].shape, strict=True):
        first = axis[0]
        joined = first if all(other is first for other in axis) else _joined(axis, extent)
        result.append(np.logical_or.reduce([_mask(other, extent) for other in axis]) if joined is None else joined)
    return tuple(result)


def _joined(axis: tuple[Needed, ...], extent: int) -> tuple[int, int] | None:
    """What an axis' parts hold as one range; None if there are gaps."""
    ranges = sorted(needed for needed in axis if not isinstance(needed, np.ndarray))
    if (0, extent) in ranges:
        return (0, extent)
    begin, end = ranges[0] if ranges else (0, 0)
    for other_begin, other_end in ranges[1:]:
        if other_begin > end:
            return None
        end = max(end, other_end)
    return (begin, end) if len(ranges) == len(axis) else None


def _positions(axis_map: AxisMap, output: Positions, extent: int) -> Needed:
    """Input positions of one axis that the output positions need."""
    if axis_map.axis is None:
        return (0, extent)
    wanted = output[axis_map.axis]
    if axis_map.is_identity:
        return wanted
    if not isinstance(wanted, np.ndarray) and axis_map.is_gapless:
        return axis_map.project_one(*wanted, extent)
    outputs = np.flatnonzero(wanted) if isinstance(wanted, np.ndarray) else np.arange(*wanted)
    starts, stops = axis_map.project(outputs, outputs + 1, extent)
    edges = np.zeros(extent + 1, dtype=np.int64)
    np.add.at(edges, starts, 1)
    np.add.at(edges, stops, -1)
    return np.asarray(np.cumsum(edges[:-1]) > 0)


def _union_size(parts: list[Positions], shape: tuple[int, ...]) -> int:
    """Elements in the union of product sets: positions of an axis that belong to the same sets count together."""
    sizes = [elements_of(part) for part in parts]
    if not sizes:
        return 0
    if len(parts) == 1 or len(parts) > _UNION_SETS or max(sizes) == prod(shape):
        return max(sizes)
    patterns = [_patterns(axis, extent) for axis, extent in zip(zip(*parts, strict=True), shape, strict=True)]
    if prod(len(values) for values, _ in patterns) > _UNION_CELLS:
        return max(sizes)
    members, counts = patterns[0]
    for values, extents in patterns[1:]:
        members = (members[:, None] & values[None, :]).ravel()
        counts = (counts[:, None] * extents[None, :]).ravel()
    return int(counts[members != 0].sum())


def _patterns(axis: tuple[Needed, ...], extent: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which sets positions of an axis belong to, a bit for each set, and how many positions belong to just these.

    Positions are looked at one by one only where a set has gaps: an axis may have 10^8 of them.
    """
    masks = any(isinstance(needed, np.ndarray) for needed in axis)
    ends = {end for needed in axis if not isinstance(needed, np.ndarray) for end in needed}
    edges = np.arange(extent + 1) if masks else np.array(sorted({0, extent, *ends}))
    begins, lengths = edges[:-1], np.diff(edges)
    members = np.zeros(len(begins), dtype=np.int64)
    for bit, needed in enumerate(axis):
        inside = needed if isinstance(needed, np.ndarray) else (needed[0] <= begins) & (begins < needed[1])
        members |= inside.astype(np.int64) << bit
    values, which = np.unique(members, return_inverse=True)
    counts = np.zeros(len(values), dtype=np.int64)
    np.add.at(counts, which, lengths)
    return values, counts


def dram_reference_bytes(facts: GraphFacts, segments: tuple[SegmentGraph, ...], profile: Profile) -> int:
    """Reference: the groups of `none`, capacity ignored; each group's needed inputs, weights and outputs once."""
    total = 0
    graph = facts.graph
    outputs = set(graph.outputs)
    for segment in segments:
        for group in main_chains(segment, segment.all):
            members = list(bits(group))
            made = {facts.ops[op].output for op in members}
            boxes: dict[str, list[Ranges]] = {}
            for index in reversed(members):
                op = facts.ops[index]
                users = graph.consumers.get(op.output, ())
                leaves = op.output in outputs or any(not group >> user & 1 for user in users)
                wanted = boxes.get(op.output, [])
                output = _whole(facts, op.output) if leaves or not wanted else _hull(wanted)
                if leaves:
                    total += _bytes(facts, op.output, _whole(facts, op.output))
                for operand in op.operands:
                    shape = facts.tensors[operand.tensor].shape
                    needed = tuple(
                        (0, extent) if m.axis is None else m.project_one(*output[m.axis], extent)
                        for m, extent in zip(operand.access, shape, strict=True)
                    )
                    boxes.setdefault(operand.tensor, []).append(needed)
            total += sum(
                _bytes(facts, name, _hull(wanted))
                for name, wanted in boxes.items()
                if name not in made and not (profile.is_stationary and facts.tensors[name].constant)
            )
    return total


def roofline_cycles(facts: GraphFacts, needed: dict[str, list[Positions]], floor_bytes: int, profile: Profile) -> int:
    """Roofline bound: the floor at full DRAM bandwidth, or the needed products on full arrays of all cores.

    Only results that some output needs count, and an op runs on whichever of array and vector lanes is faster.
    """
    compute = 0.0
    for op in facts.ops:
        array = profile.matrix.arrays.get(op.dtype)
        wanted = needed.get(op.output)
        if op.matrix is None or array is None or not wanted:
            continue
        elements = elements_of(needed_of(facts, op.output, wanted))
        on_array = op.matrix.in_channels * op.matrix.taps / (array.k * array.c * array.ox * array.oy)
        on_lanes = 2 * float(op.macs) / profile.vector.lanes
        compute += elements * min(on_array, on_lanes)
    return ceil(max(floor_bytes / profile.dram_bytes_per_cycle, compute / profile.cores))


def _whole(facts: GraphFacts, name: str) -> Ranges:
    return tuple((0, extent) for extent in facts.tensors[name].shape)


def _hull(boxes: list[Ranges]) -> Ranges:
    filled = [box for box in boxes if all(start < stop for start, stop in box)] or boxes[:1]
    return tuple((min(start for start, _ in axis), max(stop for _, stop in axis)) for axis in zip(*filled, strict=True))


def _bytes(facts: GraphFacts, name: str, box: Ranges) -> int:
    return prod(stop - start for start, stop in box) * facts.tensors[name].element_bytes
