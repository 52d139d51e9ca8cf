"""Run the benchmarks: `python -m tests.bench [NAME ...]`; without names all of them."""

from __future__ import annotations

import sys

from tests.bench import allocation, exported, light_models, partition, prices, programs, scaling

BENCHMARKS = {
    "light-models": light_models.run,
    "scaling": scaling.run,
    "partition": partition.run,
    "exported": exported.run,
    "allocation": allocation.run,
    "prices": prices.run,
    "programs": programs.run,
}


def main(names: list[str]) -> int:
    """Print the tables of the named benchmarks as Markdown."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"unknown benchmark {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in names or BENCHMARKS:
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
