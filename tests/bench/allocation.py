"""How low the allocator's peaks are and how long they take: random lives, and networks held whole (PROG-2)."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from compiler.memory.allocate import Allocation, Buffer, allocate, verify_allocation
from compiler.ops.op_facts import GraphFacts, graph_facts
from compiler.tiling.geometry import GroupGeometry
from tests.models import LIGHT_NAMES, import_graph, light_path

_SETS = 2000
_SEED = 7
_LINE_BYTES = 64
Lives = tuple[list[int], list[int], list[int]]  # begins, ends, sizes


def run() -> None:
    """Print both tables and one line of times."""
    _random_sets()
    _networks()
    _times()


def _random_sets() -> None:
    print(f"\n### Peak over most live bytes, {_SETS} random sets of each kind, 5 to 59 buffers\n")
    print("| sets | mean | 95 % | 99 % | worst | at the bound | ms per set |")
    print("|---|" + "---:|" * 6)
    kinds = {"uniform sizes, short lives": _short, "log-uniform sizes, geometric lives": _geometric, "lines": _lines}
    for name, kind in kinds.items():
        generator = np.random.default_rng(_SEED)
        sets = [_buffers(*kind(generator)) for _ in range(_SETS)]
        begin = perf_counter()
        allocations = [allocate(buffers) for buffers in sets]
        milliseconds = (perf_counter() - begin) / _SETS * 1e3
        for buffers, allocation in zip(sets, allocations, strict=True):
            verify_allocation(buffers, allocation)
        ratios = np.array([allocation.ratio for allocation in allocations])
        high, higher = np.quantile(ratios, [0.95, 0.99])
        print(
            f"| {name} | {ratios.mean():.4f} | {high:.4f} | {higher:.4f} | {ratios.max():.4f} "
            f"| {(ratios == 1).mean():.1%} | {milliseconds:.2f} |"
        )


def _networks() -> None:
    print("\n### All activations of a light model in one memory, each from its op to its last reader, 64-byte lines\n")
    print("| model | buffers | in place | sum MiB | most live MiB | peak MiB | peak / most live | ms |")
    print("|---|" + "---:|" * 7)
    for name in LIGHT_NAMES:
        buffers = held_activations(graph_facts(import_graph(light_path(name).read_bytes())))
        allocation, milliseconds = _timed(buffers)
        mib = [
            value / 2**20
            for value in (
                sum(buffer.size_bytes for buffer in buffers),
                allocation.lower_bound_bytes,
                allocation.peak_bytes,
            )
        ]
        in_place = sum(buffer.shares is not None for buffer in buffers)
        print(
            f"| {name} | {len(buffers)} | {in_place} | {mib[0]:.2f} | {mib[1]:.2f} | {mib[2]:.2f} "
            f"| {allocation.ratio:.4f} | {milliseconds:.1f} |"
        )


def _times() -> None:
    print("\n### Milliseconds for chains of buffers of equal and of random sizes, 64-byte lines\n")
    print("| buffers | equal | ratio | random | ratio | random, capacity 10 % above most live |")
    print("|---:|" + "---:|" * 5)
    generator = np.random.default_rng(_SEED)
    for count in (50, 500, 5000):
        begins = np.arange(count)
        ends = begins + generator.integers(2, 6, count)
        equal = _buffers(begins.tolist(), ends.tolist(), [_LINE_BYTES] * count, _LINE_BYTES)
        sizes = generator.integers(1, 100, count) * _LINE_BYTES
        varied = _buffers(begins.tolist(), ends.tolist(), sizes.tolist(), _LINE_BYTES)
        first, first_ms = _timed(equal)
        second, second_ms = _timed(varied)
        _, third_ms = _timed(varied, second.lower_bound_bytes * 11 // 10)
        print(
            f"| {count} | {first_ms:.1f} | {first.ratio:.4f} | {second_ms:.1f} | {second.ratio:.4f} | {third_ms:.1f} |"
        )


def held_activations(facts: GraphFacts) -> list[Buffer]:
    """The activations of a whole graph as buffers, one step per op; where an op may work in place it does.

    Inputs live from the first step, outputs to the last. Lives are those that the planner counts with.
    """
    geometry = GroupGeometry(facts, range(len(facts.ops)))
    names, first, last = geometry.lifetimes
    span = {name: (int(a), int(b) + 1) for name, a, b in zip(names, first, last, strict=True)}
    owners: dict[str, str] = {}
    for step, op in enumerate(geometry.ops):
        begin, _ = span[op.output]
        if begin != step + 1:
            continue
        for operand in op.operands:
            name = operand.tensor
            if name in span and span[name][1] == begin and facts.tensor_bytes(name) == facts.tensor_bytes(op.output):
                owners[op.output] = name
                break
    return [
        Buffer(
            name=name,
            size_bytes=facts.tensor_bytes(name),
            begin=span[name][0],
            end=max(span[name][1], span[name][0] + 1),
            alignment_bytes=_LINE_BYTES,
            shares=owners.get(name),
        )
        for name in names
    ]


def _timed(buffers: Sequence[Buffer], capacity_bytes: int | None = None) -> tuple[Allocation, float]:
    begin = perf_counter()
    allocation = allocate(buffers, capacity_bytes)
    milliseconds = (perf_counter() - begin) * 1e3
    verify_allocation(buffers, allocation)
    return allocation, milliseconds


def _buffers(begins: list[int], ends: list[int], sizes: list[int], alignment_bytes: int = 1) -> list[Buffer]:
    return [
        Buffer(name=f"b{index:05}", begin=begin, end=end, size_bytes=size, alignment_bytes=alignment_bytes)
        for index, (begin, end, size) in enumerate(zip(begins, ends, sizes, strict=True))
    ]


def _extent(generator: np.random.Generator) -> tuple[int, int]:
    """How many buffers, begun within how many steps."""
    return int(generator.integers(5, 60)), int(generator.integers(5, 80))


def _short(generator: np.random.Generator) -> Lives:
    count, steps = _extent(generator)
    begins = generator.integers(0, steps, count)
    ends = begins + generator.integers(1, max(2, steps // 3), count)
    return begins.tolist(), ends.tolist(), generator.integers(1, 1000, count).tolist()


def _geometric(generator: np.random.Generator) -> Lives:
    count, steps = _extent(generator)
    begins = generator.integers(0, steps, count)
    ends = begins + 1 + generator.geometric(0.3, count)
    return begins.tolist(), ends.tolist(), (2 ** generator.uniform(4, 16, count)).astype(np.int64).tolist()


def _lines(generator: np.random.Generator) -> Lives:
    count, steps = _extent(generator)
    begins = generator.integers(0, steps, count)
    ends = begins + generator.integers(1, steps, count)
    return begins.tolist(), ends.tolist(), (generator.integers(1, 12, count) * _LINE_BYTES).tolist()
