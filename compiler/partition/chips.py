"""Assigns the segments of a chain to chips, and counts the traffic between chips and host (PART-5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, Literal, NoReturn, assert_never, get_args

import numpy as np
from numpy.typing import NDArray

from compiler.errors import InternalError, LimitError
from compiler.ops.op_facts import GraphFacts

ChipStrategy = Literal["single", "one-each", "balanced"]
CHIP_STRATEGIES: Final[tuple[ChipStrategy, ...]] = get_args(ChipStrategy)
_Ints = NDArray[np.int64]
# Larger than any sum of cycles or bytes, and half of the int64 range, so that adding to it cannot overflow.
_BITS: Final = 62
_NEVER: Final = 2**_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLoad:
    """The cycles and weights of one segment on the chip that runs it."""

    cycles: int
    weight_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """One tensor between segments: the segment that makes it (None: the host) and the later ones that read it.

    `to_host` is True if the host reads it too: as a graph output, or as the input of a host segment.
    """

    producer: int | None
    consumers: tuple[int, ...]
    size_bytes: int
    to_host: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipLoad:
    """The load of one chip: its segments in order, the sum of their cycles, and the weights that it holds."""

    chip: int
    segments: tuple[int, ...]
    cycles: int
    weight_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes from one place to another; a place is a chip, or None for the host."""

    source: int | None
    target: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipAssignment:
    """The chip of each segment; the load of each chip, idle ones included; the traffic, sorted, the host first."""

    chip_of: tuple[int, ...]
    chips: tuple[ChipLoad, ...]
    traffic: tuple[Traffic, ...]


def hand_overs(facts: GraphFacts, segments: Sequence[Sequence[int]], number: Mapping[int, int]) -> list[HandOver]:
    """Lists the tensors between chip segments and the host: graph inputs and outputs, host and segment results.

    `segments` holds the ops of each segment, host segments included. `number` maps a place in the chain to the number
    of its chip segment.
    """
    graph = facts.graph
    home = {op: index for index, ops in enumerate(segments) for op in ops}
    outputs = set(graph.outputs)
    result = []
    for name in (*graph.inputs, *(op.output for op in graph.ops)):
        made_in = home.get(graph.producer[name]) if name in graph.producer else None
        producer = number.get(made_in) if made_in is not None else None
        readers = [home[op] for op in graph.consumers.get(name, ())]
        consumers = sorted({number[reader] for reader in readers if reader in number and number[reader] != producer})
        to_host = producer is not None and (name in outputs or any(reader not in number for reader in readers))
        if (consumers or to_host) and name in facts.tensors:
            result.append(
                HandOver(
                    producer=producer,
                    consumers=tuple(consumers),
                    size_bytes=facts.tensor_bytes(name),
                    to_host=to_host,
                )
            )
    return result


def assign_chips(
    segments: Sequence[SegmentLoad],
    handed_over: Sequence[HandOver],
    capacities: Sequence[int | None],
    strategy: ChipStrategy,
) -> ChipAssignment:
    """Assigns the segments of a chain to `len(capacities)` chips, one or more.

    A chip holds the weights of all its segments; each capacity is in bytes, None without a limit. Raises LimitError if
    there are more segments than chips (`one-each`) or if weights exceed a chip's capacity.
    """
    for hand_over in handed_over:
        producer = -1 if hand_over.producer is None else hand_over.producer
        if any(not producer < consumer < len(segments) for consumer in hand_over.consumers):
            raise InternalError("a segment reads what is made later", stage="partition", actual=hand_over)
    match strategy:
        case "single":
            chip_of = [0] * len(segments)
        case "one-each":
            chip_of = _one_each(len(segments), len(capacities))
        case "balanced":
            chip_of = _balanced(segments, handed_over, capacities)
        case _:
            assert_never(strategy)
    chips = tuple(_chip_load(chip, segments, chip_of) for chip in range(len(capacities)))
    for load, capacity in zip(chips, capacities, strict=True):
        if capacity is not None and load.weight_bytes > capacity:
            _refuse_weights("its segments", load.chip, load.weight_bytes, capacity)
    return ChipAssignment(chip_of=tuple(chip_of), chips=chips, traffic=_traffic(handed_over, chip_of))


def _chip_load(chip: int, segments: Sequence[SegmentLoad], chip_of: Sequence[int]) -> ChipLoad:
    mine = tuple(number for number, place in enumerate(chip_of) if place == chip)
    return ChipLoad(
        chip=chip,
        segments=mine,
        cycles=sum(segments[number].cycles for number in mine),
        weight_bytes=sum(segments[number].weight_bytes for number in mine),
    )


def _traffic(hand_overs: Sequence[HandOver], chip_of: Sequence[int]) -> tuple[Traffic, ...]:
    """Sums the traffic: each tensor goes once to every other chip that reads it, and once to the host."""
    sums: dict[tuple[int, int], int] = {}
    for hand_over in hand_overs:
        source = -1 if hand_over.producer is None else chip_of[hand_over.producer]
        targets = {chip_of[consumer] for consumer in hand_over.consumers} | ({-1} if hand_over.to_host else set())
        for target in targets - {source}:
            sums[source, target] = sums.get((source, target), 0) + hand_over.size_bytes
    return tuple(
        Traffic(source=None if s < 0 else s, target=None if t < 0 else t, size_bytes=size)
        for (s, t), size in sorted(sums.items())
    )


def _refuse_weights(what: str, chip: int, actual: int, limit: int) -> NoReturn:
    raise LimitError(
        f"the weights of {what} exceed what chip {chip} holds, in bytes",
        code="chip_capacity",
        stage="partition",
        actual=actual,
        limit=limit,
        hint="Use more chips or larger ones, or let the mapping be balanced over them",
    )


def _one_each(segments: int, chips: int) -> list[int]:
    if segments > chips:
        raise LimitError(
            "one chip for each segment is asked for, and there are more segments than chips",
            code="too_few_chips",
            stage="partition",
            actual=segments,
            limit=chips,
            hint="Use the balanced mapping, or a profile with more chips",
        )
    return list(range(segments))


def _balanced(
    segments: Sequence[SegmentLoad], hand_overs: Sequence[HandOver], capacities: Sequence[int | None]
) -> list[int]:
    """Assigns contiguous runs to the chips in order, within their capacities; a run may be empty.

    Minimises the largest load in cycles, then the bytes between chips; ties go to lower chip numbers from the front.
    Exact, by dynamic programming from the back: O(chips · n²) time, O(n²) memory.
    """
    sums = [0, *accumulate(segment.cycles for segment in segments)]
    # only a clock far faster than its memory makes such large sums; their lowest digits do not matter
    cycles = np.array([total >> max(0, sums[-1].bit_length() - _BITS) for total in sums], dtype=np.int64)
    weights = np.array([0, *accumulate(segment.weight_bytes for segment in segments)], dtype=np.int64)
    bounds = [_farthest(weights, capacity) for capacity in capacities]
    _check_capacities(weights, bounds, capacities)
    under_load = _farthest(cycles, _smallest_load(cycles, bounds))
    bounds = [np.minimum(farthest, under_load) for farthest in bounds]
    return _fewest_bytes(_entering_bytes(len(segments), hand_overs), bounds)


def _smallest_load(cycles: _Ints, bounds: Sequence[_Ints]) -> int:
    """The smallest possible maximum of the runs' cycles, with one run per chip within the bounds."""
    # load[i]: the largest load of the segments from i on, with this chip and the later ones
    load = np.full(len(cycles), _NEVER, dtype=np.int64)
    load[-1] = 0
    for farthest in reversed(bounds):
        runs = [slice(begin, last + 1) for begin, last in enumerate(farthest.tolist())]
        load = np.array([np.maximum(cycles[r] - cycles[r.start], load[r]).min() for r in runs], dtype=np.int64)
    return int(load[0])


def _fewest_bytes(entering: _Ints, bounds: Sequence[_Ints]) -> list[int]:
    """Assigns runs within the bounds so that the fewest bytes enter from earlier chips."""
    size = len(entering) - 1
    # behind[c][i]: fewest bytes that enter the runs from i on, with chip c and the later ones
    behind = [np.full(size + 1, _NEVER, dtype=np.int64)]
    behind[0][size] = 0
    for farthest in reversed(bounds):
        runs = [slice(begin, last + 1) for begin, last in enumerate(farthest.tolist())]
        fewest = [(entering[r.start, r] + behind[0][r]).min() for r in runs]
        behind.insert(0, np.minimum(np.array(fewest, dtype=np.int64), _NEVER))
    chip_of: list[int] = []
    for chip, farthest in enumerate(bounds):
        begin = len(chip_of)
        run = slice(begin, int(farthest[begin]) + 1)
        amounts = entering[begin, run] + behind[chip + 1][run]
        # among equals the longest run keeps chip numbers low
        chip_of += [chip] * int(np.flatnonzero(amounts == amounts.min())[-1])
    return chip_of


def _farthest(sums: _Ints, bound: int | None) -> _Ints:
    """For each i the last j with sums[j] - sums[i] <= bound; at least i itself."""
    if bound is None:
        return np.full(len(sums), len(sums) - 1, dtype=np.int64)
    return (np.searchsorted(sums, sums + bound, side="right") - 1).astype(np.int64)


def _check_capacities(weights: _Ints, bounds: Sequence[_Ints], capacities: Sequence[int | None]) -> None:
    """Raises LimitError unless the chips, filled one after another, hold all weights.

    The error names a segment that fits no chip, or else the last chip and the weights left for it.
    """
    limits = [capacity for capacity in capacities if capacity is not None]
    if len(limits) < len(capacities):
        return  # some chip holds all weights
    limit = max(limits)
    largest = int(np.diff(weights).max(initial=0))
    if largest > limit:
        _refuse_weights(f"segment {int(np.argmax(np.diff(weights)))}", limits.index(limit), largest, limit)
    begin = 0
    for farthest in bounds[:-1]:
        begin = int(farthest[begin])
    if bounds[-1][begin] < len(weights) - 1:
        _refuse_weights("the last segments", len(limits) - 1, int(weights[-1] - weights[begin]), limits[-1])


def _entering_bytes(size: int, hand_overs: Sequence[HandOver]) -> _Ints:
    """[i, j]: bytes of the tensors made by segments before i and read by segments i..j-1, each once."""
    change = np.zeros((size + 1, size + 2), dtype=np.int64)
    for hand_over in hand_overs:
        if hand_over.producer is not None:
            # the first reader from i on decides the j from which on the tensor enters
            for previous, consumer in pairwise([hand_over.producer, *sorted(set(hand_over.consumers))]):
                change[previous + 1 : consumer + 1, consumer + 1] += hand_over.size_bytes
    entering: _Ints = np.cumsum(change, axis=1, dtype=np.int64)
    return entering[:, : size + 1]
