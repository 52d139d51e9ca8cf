"""Parameter tables for matrix products of `cluster4x4` (SHAPE-1, SHAPE-4 to SHAPE-6, N-5).

`python -m tests.bench tables`. Cycles are modelled, of one core with its share of the DRAM; times are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Final

import numpy as np

from compiler.cost.array import CoreWork, ElementSizes, core_use
from compiler.ir.graph import Tensor
from compiler.ops import OP_KINDS
from compiler.ops.base import Call
from compiler.ops.op_facts import call_facts
from compiler.profile import builtin_profile
from compiler.profile.schema import Profile
from compiler.shapes.buckets import choose_buckets
from compiler.shapes.cost import CallCost, Floats, OperandTraffic
from compiler.shapes.frontier import Frontier, Pieces
from compiler.shapes.guillotine import guillotine
from compiler.shapes.library import choose_library, regret, shape_costs
from compiler.shapes.simple import SimpleChooser
from compiler.shapes.strips import StripSearch
from compiler.shapes.units import UnitSet

_ROWS: Final = 512
# Depths of the product and the widths that share a signature.
_WIDTHS: Final = {768: (768, 2304, 3072, 80, 100, 1000), 3072: (768,)}
_UNITS: Final = 40
_SIZES: Final = (1, 2, 5, 10, 20, 40, 80)
_SHOWN: Final = (1, 7, 16, 33, 64, 100, 128, 197, 256, 384, 512)
# What a call costs beside its work, and each length that it is given; no profile states them yet.
_OVERHEADS: Final = (100.0, 50.0)
_OTHER_OVERHEADS: Final = ((0.0, 0.0), (20.0, 10.0), (100.0, 500.0), (1000.0, 500.0))
_ELEMENT_BYTES: Final = 4
# What the meter is tried on: widths, and sizes of libraries drawn at random.
_CONTROL_WIDTHS: Final = (768, 1000)
_RANDOM_SIZES: Final = (4, 8)
# Units up to this extent accept any length, longer ones the last tenth.
_FULL_RANGE: Final = 16


def run() -> None:
    """Print the figures of N-5, and how fast tables are answered."""
    profile = builtin_profile("cluster4x4")
    problems = [_Problem(depth, widths, profile) for depth, widths in _WIDTHS.items()]
    _print_libraries(problems)
    _print_controls(problems[0])
    _print_sizes(problems)
    _print_shapes(problems)
    _print_overheads(profile)
    _print_neglected(problems, profile)
    _print_buckets()
    _print_speed(problems[0])


def gemm_cost(
    depth: int, profile: Profile, maxima: tuple[int, int], overheads: tuple[float, float] = _OVERHEADS
) -> CallCost:
    """A call of a product of m x depth by depth x n: the core's cycles, and transfers from and to DRAM.

    All cores share the DRAM's bandwidth; each has its own IODMA. What is slower counts.
    """
    compute_cycles = gemm_cycles(depth, profile, maxima)
    engine = profile.engines.iodma
    assert engine is not None
    cycles_per_byte = max(profile.cores / profile.dram_bytes_per_cycle, 1 / engine.bytes_per_cycle)
    start_cycles = max(engine.startup_ns, profile.dram.startup_ns) * profile.clock_hz / 1e9

    def traffic(axes: tuple[int, ...], elements: Callable[[tuple[int, ...]], int]) -> OperandTraffic:
        return OperandTraffic(
            axes=axes,
            start_cycles=start_cycles,
            cycles=lambda lengths: elements(lengths) * _ELEMENT_BYTES * cycles_per_byte,
        )

    return CallCost.tabulate(
        call_cycles=overheads[0],
        variable_cycles=overheads[1],
        compute_cycles=compute_cycles,
        operands=(
            traffic((0,), lambda lengths: lengths[0] * depth),
            traffic((1,), lambda lengths: lengths[1] * depth),
            traffic((0, 1), lambda lengths: lengths[0] * lengths[1]),
        ),
        maxima=maxima,
        reference=(16, 16),
    )


def gemm_cycles(depth: int, profile: Profile, maxima: tuple[int, int]) -> Callable[[tuple[int, ...]], float]:
    """The core's cycles for a product of m x depth by depth x n, as the planner and the simulation count them."""
    tensors = [
        Tensor(name=name, shape=shape, dtype="float32", axes=("N", "C"))
        for name, shape in (("A", (maxima[0], depth)), ("B", (depth, maxima[1])), ("Y", maxima))
    ]
    call = Call(
        op_type="Gemm",
        node="product",
        attributes={"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0},
        inputs=(tensors[0], tensors[1]),
        opset=13,
        output=tensors[2],
    )
    facts = call_facts(OP_KINDS["Gemm"], call, (False, True))
    sizes = ElementSizes(input=_ELEMENT_BYTES, weight=_ELEMENT_BYTES, output=_ELEMENT_BYTES, operands=1)

    def compute_cycles(lengths: tuple[int, ...]) -> float:
        rows, columns = lengths
        work = CoreWork(steps=(rows,), positions=rows, channels=columns, pieces=1)
        return core_use(facts, work, sizes, profile).cycles

    return compute_cycles


def gemm_units(depth: int, profile: Profile) -> UnitSet:
    """All tiles of m x n that fit into a core: input and result twice in NRAM, weights once in WRAM.

    Columns are multiples of the array's lanes: others cost as much.
    """
    lanes, wram = profile.matrix.arrays["float32"].k, profile.wram
    assert wram is not None
    words, weights = profile.nram.capacity_bytes // _ELEMENT_BYTES, wram.capacity_bytes // _ELEMENT_BYTES
    extents = [
        (rows, columns)
        for rows in range(1, _ROWS + 1)
        for columns in range(lanes, weights // depth + 1, lanes)
        if 2 * rows * (depth + columns) <= words
    ]
    lows = [tuple(0 if e <= _FULL_RANGE else -(-9 * e // 10) for e in extent) for extent in extents]
    ids = tuple(f"{rows}x{columns}" for rows, columns in extents)
    return UnitSet.of(signature=f"Gemm[{depth}]", dtype="float32", ids=ids, extents=extents, lows=lows)


class _Problem:
    """One signature with all its candidates, and what they cost on all shapes."""

    def __init__(
        self, depth: int, widths: tuple[int, ...], profile: Profile, overheads: tuple[float, float] = _OVERHEADS
    ) -> None:
        self.depth = depth
        self.widths = widths
        self.candidates = gemm_units(depth, profile)
        longest = self.candidates.extents.max(axis=0).tolist()
        self.cost = gemm_cost(depth, profile, (longest[0], longest[1]), overheads)
        self.shapes = [(rows, width) for width in widths for rows in range(1, _ROWS + 1)]
        self.alone = shape_costs(self.candidates, self.cost, self.shapes)
        self.unlimited = self.optimised(self.candidates)

    @property
    def weights(self) -> list[int]:
        """Every shape counts alike."""
        return [1] * len(self.shapes)

    def optimised(self, units: UnitSet) -> Floats:
        """Cycles of the optimised tables by width and rows, with some of the units."""
        every = [StripSearch.build(units, self.cost, (_ROWS, width), axis=0).cycles()[:, 0] for width in self.widths]
        return np.stack(every)

    def library(self, size: int) -> tuple[int, ...]:
        """The chosen units, by number."""
        return choose_library(self.alone, self.weights, size)

    def simple(self, chosen: Sequence[int]) -> Floats:
        """Cycles of the simple tables by width and rows."""
        least: Floats = self.alone[list(chosen)].min(axis=0)
        return least.reshape(len(self.widths), _ROWS)


def _geometric(ratios: Floats) -> float:
    return float(np.exp(np.log(ratios).mean()))


def _print_libraries(problems: Sequence[_Problem]) -> None:
    print(f"\n### Libraries of {_UNITS} units, float32, M = 1 to {_ROWS}: geometric mean (worst)\n")
    print("| N | K | candidates | optimised / unlimited | optimised / guillotine | simple / optimised |")
    print("|---:|---:|---:|---:|---:|---:|")
    for problem in problems:
        chosen = problem.library(_UNITS)
        units = problem.candidates.chosen(chosen)
        optimised, simple = problem.optimised(units), problem.simple(chosen)
        for number, width in enumerate(problem.widths):
            cuts = guillotine(units, problem.cost, (_ROWS, width))
            ratios = (
                optimised[number] / problem.unlimited[number],
                optimised[number] / cuts,
                simple[number] / optimised[number],
            )
            figures = " | ".join(f"{_geometric(ratio):.4f} ({ratio.max():.4f})" for ratio in ratios)
            print(f"| {width} | {problem.depth} | {len(problem.candidates):,} | {figures} |", flush=True)


def _print_controls(problem: _Problem) -> None:
    """Whether the meter finds gaps where there are some, and what they hang on."""
    print("\n### Optimised / guillotine under other costs and libraries, K = 768: geometric mean (worst)\n")
    print("| cost | units | " + " | ".join(f"N = {width}" for width in _CONTROL_WIDTHS) + " |")
    print("|---|---|" + "---:|" * len(_CONTROL_WIDTHS))
    drawn = np.random.default_rng(1)
    libraries = {f"{_UNITS}, chosen": problem.library(_UNITS)}
    for size in _RANDOM_SIZES:
        libraries[f"{size}, at random"] = tuple(drawn.choice(len(problem.candidates), size, replace=False).tolist())
    for what, cost in (
        ("as above", problem.cost),
        ("no transfers", replace(problem.cost, operands=())),
        ("every call moves all operands", _without_reuse(problem.cost)),
    ):
        for name, chosen in libraries.items():
            units = problem.candidates.chosen(chosen)
            figures = []
            for width in _CONTROL_WIDTHS:
                cycles = StripSearch.build(units, cost, (_ROWS, width), axis=0).cycles()[:, 0]
                ratios = cycles / guillotine(units, cost, (_ROWS, width))
                figures.append(f"{_geometric(ratios):.4f} ({ratios.max():.4f})")
            print(f"| {what} | {name} | {' | '.join(figures)} |", flush=True)


def _without_reuse(cost: CallCost) -> CallCost:
    """The same, with operands that count as depending on every axis, so that nothing stays along a strip."""
    flat = tuple(np.ones_like(factor) for factor in cost.compute)
    operands = tuple(
        replace(
            operand,
            factors=tuple(one if own is None else own for own, one in zip(operand.factors, flat, strict=True)),
        )
        for operand in cost.operands
    )
    return replace(cost, operands=operands)


def _print_sizes(problems: Sequence[_Problem]) -> None:
    print("\n### Regret by library size: geometric mean (worst)\n")
    print("| K | units | mean regret of simple tables | optimised / unlimited | simple / optimised |")
    print("|---:|---:|---:|---:|---:|")
    for problem in problems:
        for size in _SIZES:
            chosen = problem.library(size)
            optimised = problem.optimised(problem.candidates.chosen(chosen))
            ratios = (optimised / problem.unlimited, problem.simple(chosen) / optimised)
            figures = " | ".join(f"{_geometric(ratio):.4f} ({ratio.max():.4f})" for ratio in ratios)
            lost = regret(problem.alone, problem.weights, chosen)
            print(f"| {problem.depth} | {len(chosen)} | {lost:.4f} | {figures} |", flush=True)


def _print_shapes(problems: Sequence[_Problem]) -> None:
    print(f"\n### Simple / optimised by shape, {_UNITS} units\n")
    print("| N | K | " + " | ".join(f"M = {rows}" for rows in _SHOWN) + " |")
    print("|---:|---:|" + "---:|" * len(_SHOWN))
    for problem in problems:
        chosen = problem.library(_UNITS)
        ratios = problem.simple(chosen) / problem.optimised(problem.candidates.chosen(chosen))
        for number, width in enumerate(problem.widths):
            figures = " | ".join(f"{ratios[number, rows - 1]:.3f}" for rows in _SHOWN)
            print(f"| {width} | {problem.depth} | {figures} |")


def _print_overheads(profile: Profile) -> None:
    print(f"\n### Other overheads of calls, K = 768, all widths, {_UNITS} units: geometric mean (worst)\n")
    print("| call, cycles | given length, cycles | optimised / unlimited | simple / optimised |\n|---:|---:|---:|---:|")
    for call_cycles, variable_cycles in _OTHER_OVERHEADS:
        problem = _Problem(768, _WIDTHS[768], profile, (call_cycles, variable_cycles))
        chosen = problem.library(_UNITS)
        optimised = problem.optimised(problem.candidates.chosen(chosen))
        ratios = (optimised / problem.unlimited, problem.simple(chosen) / optimised)
        figures = " | ".join(f"{_geometric(ratio):.4f} ({ratio.max():.4f})" for ratio in ratios)
        print(f"| {call_cycles:g} | {variable_cycles:g} | {figures} |", flush=True)


def _print_neglected(problems: Sequence[_Problem], profile: Profile) -> None:
    worst = 0.0
    for problem in problems:
        rows, columns = problem.candidates.extents.max(axis=0).tolist()
        asked = gemm_cycles(problem.depth, profile, (rows, columns))
        for lengths in ((m, n) for m in range(1, rows + 1) for n in range(1, columns + 1)):
            tabulated = problem.cost.work_cycles(lengths, 0) - problem.cost.call_cycles
            worst = max(worst, abs(tabulated / asked(lengths) - 1))
    print(f"\nCycles of a call by factors differ from those asked for by at most {worst:.2%}, whatever its lengths.")


def _print_buckets() -> None:
    lengths = np.arange(1.0, _ROWS + 1)
    # by a table of each length what is no longer can be served
    costs = np.where(lengths >= lengths[:, None], lengths, np.inf)
    print(f"\n### Padding, lengths 1 to {_ROWS} equally often\n")
    print("| buckets | waste |\n|---:|---:|")
    for buckets in (1, 4, 8, 16):
        chosen = choose_buckets(costs, [1] * _ROWS, buckets)
        padded = sum(costs[one.begin : one.end, one.table].sum() for one in chosen)
        print(f"| {buckets} | {padded / lengths.sum() - 1:.1%} |")


def _print_speed(problem: _Problem) -> None:
    units = problem.candidates.chosen(problem.library(_UNITS))
    chooser, lengths = SimpleChooser.build(units, problem.cost), range(1, _ROWS + 1)
    pieces = Pieces.up_to(units.extents[:, 0], _ROWS)
    costs = problem.cost.compute[0][pieces.lengths] + problem.cost.call_cycles
    wanted = np.array(lengths, dtype=np.int64)
    search = StripSearch.build(units, problem.cost, (_ROWS, 768), axis=0)
    print(f"\n### Time of an answer, {_UNITS} units, the median of many\n")
    print("| what | time |\n|---|---:|")
    for what, amount, unit, asked in (
        ("simple table, 2-D", 1e6, "µs", [lambda m=m: chooser.table((m, 768)) for m in lengths]),
        (
            f"frontier of one axis, all lengths to {_ROWS}",
            1e3,
            "ms",
            [lambda: Frontier.build(pieces, costs, wanted)] * 100,
        ),
        (
            f"search in 2-D, N = 768, all M to {_ROWS}",
            1e3,
            "ms",
            [lambda: StripSearch.build(units, problem.cost, (_ROWS, 768), axis=0)] * 20,
        ),
        ("optimised table read from that search", 1e6, "µs", [lambda m=m: search.table((m, 768)) for m in lengths]),
        (
            "optimised table of one shape, 512 x 768",
            1e3,
            "ms",
            [lambda: StripSearch.build(units, problem.cost, (_ROWS, 768)).table((_ROWS, 768))] * 20,
        ),
    ):
        print(f"| {what} | {_median_seconds(asked) * amount:.3g} {unit} |")


def _median_seconds(asked: Sequence[Callable[[], object]]) -> float:
    asked[0]()
    seconds = []
    for ask in asked:
        begin = perf_counter()
        ask()
        seconds.append(perf_counter() - begin)
    return float(np.median(seconds))
