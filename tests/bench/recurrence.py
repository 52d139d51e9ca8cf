"""Looped programs beside their expanded ones: time, proof, and what changed programs do (issue 26, PROG-6).

docs/benchmarks/0026-recurrence.md. A case that disagrees ends the run by its assertion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from compiler.program.errors import ProgramError
from compiler.program.loops.form import check_loops
from compiler.program.loops.time import time_of
from compiler.program.program import Program, Role
from compiler.simulator.compare import compare
from compiler.simulator.values import Chip
from tests.compiler.program.loops.changes import KINDS, changed
from tests.compiler.program.loops.expander import expanded
from tests.compiler.program.loops.groups import LONG, LoweredGroup, lowered_group, random_clusters, random_group
from tests.compiler.program.loops.test_proof import judged
from tests.compiler.program.loops.test_time import check
from tests.compiler.program.loops.test_values import ran, regions_of

GROUPS: Final = 1000
MUTANTS: Final = 10_000
# Of groups of at most so many statements and commands programs are changed, each in turn.
_SMALL: Final = 120
_SHORT: Final = 2000


def run(groups: int = GROUPS, mutants: int = MUTANTS) -> None:
    """So many random groups of at least 20 iterations, half of them under an SRAM, and so many changed programs."""
    small: list[LoweredGroup] = []
    print("| on | groups | time: jumped | share of iterations | proof: jumped | share of iterations |")
    print("|---|---:|---:|---:|---:|---:|")
    for word, made_by in (("cores alone", random_group), ("clusters with an SRAM", random_clusters)):
        counts: Counter[str] = Counter()
        firsts: list[int] = []
        for found in _long(groups // 2, made_by):
            time = check(found.program, found.profile)
            verdict, proof = judged(found.program, expanded(found.program))
            assert verdict == "safe"
            assert proof is not None
            counts["groups"] += 1
            counts["iterations"] += int(time.iterations.sum())
            counts["time"] += bool(time.jumped.sum())
            counts["time iterations"] += int(time.jumped.sum())
            counts["proof"] += proof.jumped > 0
            counts["proof iterations"] += proof.jumped
            firsts.append(int(time.iterations.sum() - time.jumped.sum()))
            if len(found.program.commands) <= _SMALL and time.commands <= _SHORT:
                small.append(found)
        shares = [
            f"{counts[key] / counts['groups']:.0%} | {counts[key + ' iterations'] / counts['iterations']:.0%}"
            for key in ("time", "proof")
        ]
        print(f"| {word} | {counts['groups']} | {' | '.join(shares)} |", flush=True)
        half, most, all_ = np.percentile(firsts, [50, 90, 100])
        print(f"\niterations looked at: median {half:.0f}, nine of ten at most {most:.0f}, all at most {all_:.0f}\n")
    _mutants(small, mutants)


def _long(count: int, made_by: Any) -> Iterator[LoweredGroup]:
    seed = 0
    while count:
        found, seed = lowered_group(seed, made_by), seed + 1
        if found is not None and time_of(found.program, found.profile).iterations.sum() >= LONG:
            count -= 1
            yield found


def _mutants(groups: list[LoweredGroup], count: int) -> None:
    """What becomes of changed programs, by kind of change."""
    given = [regions_of(group) for group in groups]
    right = [_outputs(ran(group.program, regions)) for group, regions in zip(groups, given, strict=True)]
    found: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    seed = made = 0
    while made < count:
        random, kind, number = np.random.default_rng(seed), KINDS[seed % len(KINDS)], seed // len(KINDS) % len(groups)
        seed += 1
        program = changed(groups[number].program, kind, random)
        if program is None:
            continue
        made += 1
        try:
            check_loops(program)
        except ProgramError:
            found[kind]["ill-formed"] += 1
            continue
        verdict, _ = judged(program, expanded(program))
        if verdict == "safe":
            verdict = _values(groups[number], program, given[number], right[number])
        found[kind][verdict] += 1
    verdicts = ("ill-formed", "refused", "not run", "same bits", "values wrong", "within tolerance")
    print(f"| change | {' | '.join(verdicts)} |")
    print("|---|" + "---:|" * len(verdicts))
    for kind, counts in found.items():
        print(f"| {kind} | {' | '.join(str(counts[verdict]) for verdict in verdicts)} |")
    total = sum(found.values(), Counter[str]())
    print(f"| all {made} | {' | '.join(str(total[verdict]) for verdict in verdicts)} |")


def _outputs(chip: Chip) -> dict[str, Any]:
    return {region.name: chip.read(region.name) for region in chip.program.regions if region.role is Role.OUTPUT}


def _values(group: LoweredGroup, program: Program, given: dict[str, Any], right: dict[str, Any]) -> str:
    try:
        made = _outputs(ran(program, given))
    except ProgramError:
        return "not run"
    if all(np.array_equal(value.view(np.uint8), right[name].view(np.uint8)) for name, value in made.items()):
        return "same bits"
    is_seen = any(not compare(name, value, group.network.values[name]).holds for name, value in made.items())
    return "values wrong" if is_seen else "within tolerance"
