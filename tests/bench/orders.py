"""Groups as loops beside all of their commands in the best order that is known: docs/benchmarks/0026-orders.md.

`python -m tests.bench orders [NETWORK/CHIP ...]`, where `*` matches any name: plans by price under the default options.
A row per plan: how many groups loop and have at most so many commands, what these take by themselves as loops beside
what they take listed, in all and at worst, and the plan's other groups. Only where it is named, for the plans that are
named.
"""

from __future__ import annotations

from fnmatch import fnmatch
from itertools import product
from typing import Final

import numpy as np

from compiler.program.loops.time import time_of
from compiler.program.steps.group_columns import LISTED_ALL
from compiler.program.steps.segment import SegmentSteps
from tests.bench.planned import CHIPS, models, segments

_COMMANDS_MAX: Final = 1 << 17


def run(*cases: str) -> None:
    """A row per plan."""
    print("| plan | groups that loop | loops / listed | worst | commands of it | statements of it | other groups |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for chip, network in product(CHIPS, models()):
        name = f"{network}/{chip}"
        if any(fnmatch(name, case) for case in cases):
            _row(name, network, chip)


def _row(name: str, network: str, chip: str) -> None:
    found, others = [], 0
    for facts, profile, segment, planned, outputs, resident in segments(network, chip):
        for group in planned:
            mine = outputs | {facts.graph.ops[op].output for op in group.ops}
            steps = SegmentSteps(facts, profile, segment, [group], frozenset(mine), resident)
            looped = steps.lowered()
            time = time_of(looped, profile)
            if time.commands == len(looped.commands) or time.commands > _COMMANDS_MAX:
                others += 1
                continue
            listed = time_of(steps.lowered(LISTED_ALL), profile)
            found.append((time.cycles / listed.cycles, time.cycles, listed.cycles, time.commands, len(looped.commands)))
    if not found:
        print(f"| {name} | 0 | | | | | {others} |", flush=True)
        return
    ratio, _, _, commands, statements = max(found)
    loops, listed_all = np.array(found).T[1:3].sum(axis=1)
    print(
        f"| {name} | {len(found)} | {loops / listed_all:.4f} | {ratio:.4f} | {commands:,} | {statements} | {others} |",
        flush=True,
    )
