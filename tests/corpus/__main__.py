"""Run the corpus and print a table, the slowest last: `python -m tests.corpus [--failures] [--quick] [WORD ...]`.

Words choose the cases whose names contain one of them; `--failures` prints only what misses its verdict, and why;
`--quick` leaves out the slow ones.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.corpus.case import Case
from tests.corpus.cases import CASES
from tests.corpus.sandbox import Outcome, Sandbox, objections


def main(arguments: Sequence[str]) -> int:
    """Print the table; 1 if a case misses its verdict."""
    words = [word for word in arguments if not word.startswith("--")]
    known = [case for case in CASES if not (case.slow and "--quick" in arguments)]
    chosen = [case for case in known if not words or any(word in case.name for word in words)]
    with Sandbox() as sandbox:
        results = [(case, sandbox.compile(case.build(), case.options)) for case in chosen]
    results.sort(key=lambda result: result[1].cpu_s)
    failures = [(case, found) for case, outcome in results if (found := objections(case, outcome))]
    if "--failures" not in arguments:
        print("| case | verdict | code | CPU s | peak MiB |\n|---|---|---|---:|---:|")
        for case, outcome in results:
            print(_row(case, outcome))
        print()
    for case, found in failures:
        print(f"- {case.name}: {'; '.join(found)}")
    print(_summary(results, len(failures)))
    return 1 if failures else 0


def _row(case: Case, outcome: Outcome) -> str:
    code = outcome.code or outcome.error_type or "–"
    return f"| {case.name} | {outcome.ended} | {code} | {outcome.cpu_s:.3f} | {outcome.peak_bytes / 2**20:.0f} |"


def _summary(results: Sequence[tuple[Case, Outcome]], failures: int) -> str:
    if not results:
        return "no case has such a name"
    slowest, slow = max(results, key=lambda result: result[1].cpu_s)
    largest, large = max(results, key=lambda result: result[1].peak_bytes)
    total = sum(outcome.cpu_s for _, outcome in results)
    return (
        f"{len(results)} cases, {failures} miss their verdict; longest {slow.cpu_s:.2f} s ({slowest.name}), "
        f"largest {large.peak_bytes / 2**20:.0f} MiB ({largest.name}), together {total:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
