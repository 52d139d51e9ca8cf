"""Run the benchmarks: `python -m tests.bench [NAME ...]`; without names all of them.

A name may be followed by tables of that benchmark, where these can be chosen: `search n2 n3`. `plans` runs only
where it is given a file, `chosen` and `orders` only where they are named, for the plans that are named.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench import (
    allocation,
    buckets,
    chosen,
    estimates,
    exported,
    first_answer,
    integers,
    large_ops,
    light_models,
    long_axes,
    loops,
    orders,
    partition,
    plan_first,
    planning,
    plans,
    prices,
    programs,
    recurrence,
    same_weights,
    scaling,
    search,
    shape_service,
    shapes,
    small_networks,
    sweep,
    table_programs,
    tables,
    tail_modes,
    timelines,
    timing,
    values,
)

BENCHMARKS = {
    "light-models": light_models.run,
    "scaling": scaling.run,
    "partition": partition.run,
    "plan-first": plan_first.run,
    "chips": partition.run_chips,
    "exported": exported.run,
    "allocation": allocation.run,
    "prices": prices.run,
    "programs": programs.run,
    "loops": loops.run,
    "recurrence": recurrence.run,
    "same-weights": same_weights.run,
    "small-networks": small_networks.run,
    "search": search.run,
    "timing": timing.run,
    "estimates": estimates.run,
    "timelines": timelines.run,
    "sweep": sweep.run,
    "sweep-recovery": sweep.run_recovery,
    "tables": tables.run,
    "buckets": buckets.run,
    "shape-answers": buckets.run_answers,
    "shape-service": shape_service.run,
    "shapes": shapes.run,
    "table-programs": table_programs.run,
    "tail-modes": tail_modes.run,
    "large-ops": large_ops.run,
    "long-axes": long_axes.run,
    "first-answer": first_answer.run,
    "planning": planning.run,
    "values": values.run,
    "integers": integers.run,
}


def main(names: list[str]) -> int:
    """Print the tables of the named benchmarks as Markdown."""
    if names and names[0] == "search" and all(name in search.TABLES for name in names[1:]):
        search.run(tuple(names[1:]))
        return 0
    if names and names[0] == "first-answer" and len(names) == 2:
        first_answer.run(Path(names[1]))
        return 0
    if len(names) > 1 and names[0] == "values" and all("/" in name for name in names[1:]):
        values.run(tuple(names[1:]))
        return 0
    if len(names) > 1 and names[0] == "plans":
        plans.run(*names[1:])
        return 0
    if names and names[0] == "long-axes":
        long_axes.run(tuple(names[1:]))
        return 0
    if names and names[0] == "same-weights":
        same_weights.run(tuple(names[1:]))
        return 0
    if names and names[0] == "small-networks":
        small_networks.run(tuple(names[1:]) or small_networks.CHIPS)
        return 0
    if names and names[0] == "integers":
        integers.run(tuple(names[1:]))
        return 0
    if len(names) > 1 and names[0] == "planning":
        planning.run(*names[1:])
        return 0
    if names and names[0] == "estimates" and all(name in estimates.CHIPS for name in names[1:]):
        estimates.run(tuple(names[1:]))
        return 0
    if names and names[0] == "recurrence" and all(name in recurrence.TABLES for name in names[1:]):
        recurrence.run(tuple(names[1:]) or recurrence.TABLES)
        return 0
    if names and names[0] == "orders":
        orders.run(*names[1:])
        return 0
    if names and names[0] == "chosen":
        chosen.run(*names[1:])
        return 0
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"unknown benchmark {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in names or BENCHMARKS:
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
