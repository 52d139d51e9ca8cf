"""Looped programs beside their expanded ones: time, proof, and what changed programs do (issue 26, PROG-6).

docs/benchmarks/0026-recurrence.md. `recurrence cores clusters changes`: some of these tables, row by row as they come.
A group whose time or verdict disagrees ends the run by its assertion; changed programs that do are counted and named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count, islice
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

MAKERS: Final = {"cores": random_group, "clusters": random_clusters}
CHANGES: Final = "changes"
TABLES: Final = (*MAKERS, CHANGES)
# So many groups of each kind, and so many changed programs; rows of the tables are for so many of them.
GROUPS: Final = 500
MUTANTS: Final = 10_000
_GROUPS_A_ROW: Final = 50
_MUTANTS_A_ROW: Final = 500
# Programs are changed of the first groups of each kind with at most so many commands, each in turn.
_CHANGED_GROUPS: Final = 20
_SHORT: Final = 300
_VERDICTS: Final = ("ill-formed", "refused", "not run", "same bits", "values wrong", "within tolerance", "disagree")


def run(tables: Sequence[str] = TABLES) -> None:
    """Groups of at least 20 iterations on cores alone and on clusters with an SRAM, and changed programs."""
    for name in tables:
        if name == CHANGES:
            _changes()
        else:
            _groups(name)


def _groups(name: str) -> None:
    """Compare time and proof of looped and expanded groups."""
    print(f"| {name} | seeds | time: jumped | share of iterations | proof: jumped | share of iterations |")
    print("|---:|---:|---:|---:|---:|---:|")
    groups, looked_at, total = _long(name), list[int](), Counter[str]()
    while total["groups"] < GROUPS:
        counts = Counter[str]()
        seed = 0
        for seed, found in islice(groups, _GROUPS_A_ROW):
            time = check(found.program, found.profile)
            verdict, proof = judged(found.program, expanded(found.program))
            assert verdict == "safe", f"seed {seed}"
            assert proof is not None
            jumped = int(time.jumped.sum())
            counts["groups"] += 1
            counts["iterations"] += int(time.iterations.sum())
            counts["time"] += jumped > 0
            counts["time iterations"] += jumped
            counts["proof"] += proof.jumped > 0
            counts["proof iterations"] += proof.jumped
            looked_at.append(int(time.iterations.sum()) - jumped)
        total += counts
        _print_groups(counts, f"to {seed}")
    _print_groups(total, "all")
    half, most, all_ = np.percentile(looked_at, [50, 90, 100])
    print(f"\niterations looked at: median {half:.0f}, nine of ten at most {most:.0f}, all at most {all_:.0f}\n")


def _print_groups(counts: Counter[str], seeds: str) -> None:
    shares = [
        f"{counts[key] / counts['groups']:.0%} | {counts[key + ' iterations'] / counts['iterations']:.0%}"
        for key in ("time", "proof")
    ]
    print(f"| {counts['groups']} | {seeds} | {' | '.join(shares)} |", flush=True)


def _long(name: str) -> Iterator[tuple[int, LoweredGroup]]:
    """Seeds and groups of at least 20 iterations."""
    seed = 0
    while True:
        found = lowered_group(seed, MAKERS[name])
        if found is not None and time_of(found.program, found.profile).iterations.sum() >= LONG:
            yield seed, found
        seed += 1


def _short(name: str) -> Iterator[LoweredGroup]:
    """Those with few commands."""
    return (its for _, its in _long(name) if time_of(its.program, its.profile).commands <= _SHORT)


def _changes() -> None:
    """What becomes of changed programs, piece by piece and by kind of change."""
    groups = [its for name in MAKERS for its in islice(_short(name), _CHANGED_GROUPS)]
    given = [regions_of(group) for group in groups]
    right = [_outputs(ran(group.program, regions)) for group, regions in zip(groups, given, strict=True)]
    found: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    named = list[str]()
    counts, made = Counter[str](), 0
    print(f"| changed | seeds | {' | '.join(_VERDICTS)} |")
    print(f"|---:|---:|{'---:|' * len(_VERDICTS)}")
    for seed in count():
        random, kind, number = np.random.default_rng(seed), KINDS[seed % len(KINDS)], seed // len(KINDS) % len(groups)
        program = changed(groups[number].program, kind, random)
        if program is None:
            continue
        verdict = _verdict(groups[number], program, given[number], right[number])
        found[kind][verdict] += 1
        counts[verdict] += 1
        made += 1
        if verdict in ("disagree", "within tolerance"):
            named.append(f"{verdict}: {kind}, seed {seed}")
        if made % _MUTANTS_A_ROW == 0 or made == MUTANTS:
            _print_changes(counts, f"to {seed}")
            counts.clear()
        if made == MUTANTS:
            break
    _print_changes(sum(found.values(), Counter[str]()), "all")
    print(f"\n| change | {' | '.join(_VERDICTS)} |")
    print(f"|---|{'---:|' * len(_VERDICTS)}")
    for kind, its in found.items():
        print(f"| {kind} | {' | '.join(str(its[verdict]) for verdict in _VERDICTS)} |")
    print("\n" + "\n".join(named))


def _print_changes(counts: Counter[str], seeds: str) -> None:
    columns = [str(counts[verdict]) for verdict in _VERDICTS]
    print(f"| {counts.total()} | {seeds} | {' | '.join(columns)} |", flush=True)


def _verdict(group: LoweredGroup, program: Program, given: dict[str, Any], right: dict[str, Any]) -> str:
    """What becomes of a changed program; `disagree`: the proof says another thing of it than of the expanded one."""
    try:
        check_loops(program)
    except ProgramError:
        return "ill-formed"
    try:
        verdict, _ = judged(program, expanded(program))
    except AssertionError:
        return "disagree"
    return _values(group, program, given, right) if verdict == "safe" else verdict


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
