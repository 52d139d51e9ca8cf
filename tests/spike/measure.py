"""The measures of issue 26 for the spike, `python -m tests.spike.measure` and one of these:

`groups 300 4` (groups, mutants of each), `network mobilenet_v1` (and numbers of groups),
`halos 16 48` (cores, images), `folds`.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

import numpy as np

from compiler.errors import LimitError
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.fuse import FuseSegments
from compiler.ops.op_facts import graph_facts
from compiler.options import Options
from compiler.profile.load import builtin_profile
from compiler.profile.schema import Profile
from compiler.program.errors import ProgramError
from compiler.program.lower import handed_out
from compiler.program.segment import PlannedGroup, lower_segment
from compiler.program.timing.timeline import Timeline, timeline_of
from compiler.program.verify import check, verify
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.placement import Placement
from compiler.tiling.price import group_of
from compiler.tiling.tile import HaloMode, Spread
from compiler.tiling.tiled import TiledGroup
from tests.compiler.program.lowered import Lowered, Network, chip, fits, group, lower
from tests.models import Model, import_graph, partition_of
from tests.networks import NETWORKS
from tests.spike.actions import FlatActions, UnsupportedError
from tests.spike.compare import differences
from tests.spike.expand import corners_of, firsts_of, program_of
from tests.spike.fold import chain_of, fold
from tests.spike.halos import HaloActions
from tests.spike.halos import network as halo_network
from tests.spike.order import looped
from tests.spike.proof import RefusedError, mutants, prove
from tests.spike.statements import Looped, over_cores
from tests.spike.ticks import expanded_ticks, looped_ticks

# Loops of so many iterations should be jumped over (issue 26).
LONG = 20
# Of more iterations than this statements are counted, but not expanded.
_EXPANDED_MAX = 10_000


@dataclass(slots=True, kw_only=True)
class Case:
    """What was measured of one group."""

    statements: int
    commands: int
    iterations: int
    period: int
    listed: int
    differences: list[str]
    are_ticks_equal: bool
    are_verdicts_equal: bool
    timed_jump: int
    proved_jump: int
    first_jump: int
    cycles: float
    mutants: Counter[str]


def random_group(seed: int) -> tuple[Network, TiledGroup] | None:
    """A group of one to three ops with small tiles on one to four cores; None where the plan does not fit."""
    random = np.random.default_rng(seed)

    def pick(*values: Any) -> Any:
        return values[int(random.integers(len(values)))]

    model = Model(seed=seed)
    channels, height, width = pick(1, 2, 3, 4), int(random.integers(24, 97)), int(random.integers(6, 33))
    x = model.input([1, channels, height, width], "x")
    for _ in range(pick(1, 2, 2, 3)):
        kind = pick("conv", "conv", "conv", "relu", "pool")
        kernel, stride = pick(1, 2, 3, 3), pick(1, 1, 1, 2)
        if min(height, width) < 6 or kind == "relu":
            x = model.relu(x)
        elif kind == "pool":
            x = model.pool(x, 2, 2)
            height, width = (height - 2) // 2 + 1, (width - 2) // 2 + 1
        else:
            pad, filters = pick(0, kernel // 2), pick(2, 4, 8)
            x = model.conv(x, channels, filters, kernel, stride=stride, pad=pad, bias=pick(True, False))
            channels = filters
            height, width = ((e + 2 * pad - kernel) // stride + 1 for e in (height, width))
    model.output(x)
    network = Network(model, seed=seed)
    cores = pick(1, 2, 2, 4)
    spread = Spread.SINGLE if cores == 1 else pick(Spread.BANDS, Spread.BANDS, Spread.CHANNELS)
    tile = {"H": pick(1, 2, 3, 4), "W": pick(width, width, -(-width // 2), -(-width // 3))}
    changes: dict[str, Any] = {"units": cores, "spread": spread, "double_buffered": pick(True, True, False)}
    changes["placement"] = pick(Placement.BANDS, Placement.BANDS, Placement.BLOCKS, Placement.BAND_COLUMNS)
    if pick(0, 0, 1):
        changes["walk"] = ("W", "H")
    mode = pick(HaloMode.RECOMPUTE, HaloMode.CACHED, HaloMode.CACHED, HaloMode.EXCHANGE)
    found = group(network, chip(cores=cores, nram=pick(1 << 14, 1 << 16)), tile, mode, **changes)
    return (network, found) if fits(found) else None


def measure(network: Network, found: TiledGroup, *, changed: int = 0, seed: int = 0) -> Case:
    """All measures of one group; raises AssertionError where the expanded program is wrong."""
    profile = found.profile
    today = lower(network, found)
    actions = FlatActions(network.facts, found, handed_out(network.facts, found.geometry.indices))
    loops = looped(actions)
    program = program_of(loops)
    verified = verify(program, shared=profile.engines.shared)
    Lowered(network=network, groups=(found,), program=program, verified=verified).check_values()
    plain, timed = expanded_ticks(program, profile), looped_ticks(loops, firsts_of(loops), profile)
    each, proof = prove(loops, jumps=False), prove(loops)
    return Case(
        statements=len(loops.statements),
        commands=len(program.commands),
        iterations=len(loops.iterations),
        period=timed.period,
        listed=loops.listed,
        differences=differences(today.program, program),
        are_ticks_equal=plain.ticks == timed.ticks,
        are_verdicts_equal=each.judged == len(program.commands),
        timed_jump=timed.jumped,
        proved_jump=proof.jumped,
        first_jump=timed.first_jump,
        cycles=timeline_of(program, profile).cycles / timeline_of(today.program, profile).cycles,
        mutants=judged_mutants(loops, profile, changed, seed),
    )


def judged_mutants(loops: Looped, profile: Any, count: int, seed: int) -> Counter[str]:
    """By kind of change and verdicts (looped, expanded), how often."""
    found: Counter[str] = Counter()
    for kind in mutants(loops, np.random.default_rng(seed), count):
        verdicts: list[str] = []
        reason = ""
        for judge in (
            lambda: (check(corners_of(loops), shared=profile.engines.shared), prove(loops)),
            lambda: verify(program_of(loops), shared=profile.engines.shared),
        ):
            try:
                judge()
                verdicts.append("safe")
            except (RefusedError, ProgramError) as error:
                verdicts.append("refused")
                reason = str(error)
        if len(set(verdicts)) > 1:
            print("seed", seed, "verdicts differ:", kind, verdicts, reason, flush=True)
        found[f"{kind}: {' / '.join(verdicts)}"] += 1
    return found


def groups(count: int, changed: int, first: int = 0) -> None:
    """Measure so many random groups, with mutants of each."""
    cases: list[Case] = []
    left_out: Counter[str] = Counter()
    begin, seed = perf_counter(), first
    while len(cases) < count:
        seed += 1
        try:
            made = random_group(seed)
            if made is None:
                left_out["does not fit"] += 1
                continue
            cases.append(measure(*made, changed=changed, seed=seed))
        except (UnsupportedError, LimitError) as error:
            left_out[str(error)[:60]] += 1
            continue
        except (ProgramError, RefusedError, RuntimeError, AssertionError) as error:
            left_out["WRONG"] += 1
            print("seed", seed, type(error).__name__, str(error)[:200], flush=True)
            continue
        case = cases[-1]
        if case.differences or not (case.are_ticks_equal and case.are_verdicts_equal):
            print("seed", seed, case, flush=True)
        if len(cases) % 50 == 0:
            print(f"{perf_counter() - begin:.0f} s, left out {dict(left_out)}")
            summarise(cases)


def summarise(cases: list[Case]) -> None:
    """Print what was found."""
    loops = [case for case in cases if case.iterations >= LONG]
    ratios = np.array([case.cycles for case in cases])
    print("groups", len(cases))
    print("same bytes and calls", sum(not case.differences for case in cases))
    print(
        "ticks equal", sum(c.are_ticks_equal for c in cases), "verdicts equal", sum(c.are_verdicts_equal for c in cases)
    )
    print(f"of {LONG} and more iterations {len(loops)}", end=": ")
    print("timing jumped", sum(c.timed_jump > 0 for c in loops), "proof jumped", sum(c.proved_jump > 0 for c in loops))
    print("share of iterations jumped", sum(c.timed_jump for c in loops) / sum(c.iterations for c in loops), end=", ")
    print("proof", sum(c.proved_jump for c in loops) / sum(c.iterations for c in loops))
    print("first jump", np.percentile([c.first_jump for c in loops if c.timed_jump], [50, 90, 100]))
    print("statements", max(c.statements for c in cases), sum(c.statements for c in cases), end=" of ")
    print("commands", sum(c.commands for c in cases), "listed", sum(c.listed > 0 for c in cases))
    print("cycles to today's", np.percentile(ratios, [0, 10, 50, 90, 100]), np.exp(np.log(ratios).mean()))
    print("mutants", dict(sum((c.mutants for c in cases), Counter())), flush=True)


def network(name: str, numbers: list[int]) -> None:
    """Measure the groups of a network's plan on edge4: statements, bytes, cycles, ticks, jumps, verdicts."""
    profile, options = builtin_profile("edge4"), Options()
    partitioned = partition_of(import_graph(NETWORKS[name]().SerializeToString()), profile, options)
    fused = FuseSegments(options=options, compilers=SegmentCompilers(profile, options)).run(partitioned)
    facts = fused.facts
    totals = np.zeros(2)
    for number, planned in enumerate(g for segment in fused.segments for g in segment.groups):
        if numbers and number not in numbers:
            continue
        outputs, tiling = handed_out(facts, planned.ops), planned.choice.tiling
        its = [PlannedGroup(name="g", ops=planned.ops, tiling=tiling)]
        today = lower_segment(facts, profile, "s", its, outputs)
        head = f"{number} ops {len(planned.ops)} {tiling.configuration.spread.value} tiles {tiling.tiles}"
        try:
            actions = FlatActions(facts, group_of(GroupGeometry(facts, planned.ops), profile, tiling), outputs)
        except UnsupportedError as error:
            print(head, "left out:", error, flush=True)
            continue
        totals += report(head, actions, profile, today)
    print(name, "cycles to today's", totals[1] / totals[0])


def report(head: str, actions: FlatActions, profile: Profile, today: Timeline) -> tuple[float, float]:
    """Print the measures of one group; cycles of today's program and of the expanded statements."""
    loops = looped(actions)
    program = program_of(loops)
    verify(program, shared=profile.engines.shared)
    plain, first = expanded_ticks(program, profile), firsts_of(loops)
    begin = perf_counter()
    timed = looped_ticks(loops, first, profile)
    middle = perf_counter()
    proof = prove(loops)
    end = perf_counter()
    cycles = timeline_of(program, profile).cycles
    print(
        f"{head} commands {len(today.program.commands)} {len(program.commands)} statements {len(loops.statements)}"
        f" over cores {over_cores(loops)} listed {loops.listed} iterations {len(loops.iterations)}"
        f" cycles {cycles / today.cycles:.4f} ticks {plain.ticks == timed.ticks}"
        f" jumped {timed.jumped} from {timed.first_jump} period {timed.period} {middle - begin:.1f} s;"
        f" proof {proof.jumped} from {proof.first_jump} period {proof.period} {end - middle:.1f} s;"
        f" {differences(today.program, program)}",
        flush=True,
    )
    return today.cycles, cycles


def halos(cores: int, images: int) -> None:
    """Measure halos that pass both ways between cores, image after image; values are compared too."""
    net = halo_network(images, 4 * cores)
    actions = HaloActions(net, cores)
    loops = looped(actions)
    program, profile = program_of(loops), actions.group.profile
    verified = verify(program, shared=profile.engines.shared)
    Lowered(network=net, groups=(), program=program, verified=verified).check_values()
    plain, timed, proof = expanded_ticks(program, profile), looped_ticks(loops, firsts_of(loops), profile), prove(loops)
    print("statements", len(loops.statements), "over cores", over_cores(loops), "commands", len(program.commands))
    print("ticks", plain.ticks == timed.ticks, timed, proof)


def folds() -> None:
    """Measure microseconds a candidate of the streaming fold, as processor time."""
    rates = np.array([8.0, 16.0, 16.0, 8.0, 8.0, 120.0])
    tiles = [
        [h, w, units, kept]
        for h in (1, 2, 4, 6, 8, 12, 16, 24, 36, 72)
        for w in (4, 8, 16, 24, 32, 48, 60, 72, 120, 240, 480)
        for units in (1, 2, 4)
        for kept in (0, 1)
    ]
    candidates = np.array(tiles, dtype=np.int64)
    for name in ("fsrcnn", "mc_cnn"):
        its = chain_of(graph_facts(import_graph(NETWORKS[name]().SerializeToString())))
        begin = process_time()
        for _ in range(20):
            fold(its.extents, its.windows, its.channels, its.work, candidates, rates, 1)
        print(name, (process_time() - begin) / 20 / len(candidates) * 1e6, "us a candidate")


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    match what:
        case "groups":
            groups(*map(int, numbers))
        case "network":
            network(numbers[0], list(map(int, numbers[1:])))
        case "halos":
            halos(*map(int, numbers))
        case "folds":
            folds()
