"""`python -m tests.chaos --seed N --jobs 300 --faults 200`: prints what was seen; exit code 1 on any violation."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from compiler.version import COMPILER_VERSION
from tests.chaos.faults import Faults, control, preloadable
from tests.chaos.run import Ledger, Outcome, compare, disturbed, undisturbed
from tests.chaos.topology import VERSIONS, Embedded, Separate, Topology
from tests.chaos.work import Work, base_of, plan
from tests.s3 import s3_server

T = TypeVar("T", bound=Topology)
VIOLATIONS: Final = ("lost", "stuck", "published twice", "different", "wrong bytes served", "internal errors")
# The share of jobs and faults that each topology gets.
SHARES: Final = {"embedded": 0.6, "separate": 0.2, "bucket": 0.2}
Expected = dict[tuple[str, Work], Outcome]


def main() -> None:
    """Runs all topologies and prints the verdict."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--only", choices=tuple(SHARES), help="one of the topologies")
    parser.add_argument("--kind", default="", help="only faults with this word in their name")
    parser.add_argument("--folder", type=Path, help="where data and logs stay; without it they are removed")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the service is always ended
    shares = {arguments.only: 1.0} if arguments.only else SHARES
    total, begun = Ledger(), time.monotonic()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="tessera-chaos-"))
    works = plan(arguments.seed, arguments.jobs)
    expected, first = known(folder, works), 0
    for name, share in shares.items():
        last = min(first + round(share * len(works)), len(works))
        chosen = Chosen(works[first:last], round(arguments.faults * share), arguments.seed, arguments.kind)
        first = last
        ledger = disturb(name, folder / name, chosen, expected)
        total.accepted += ledger.accepted
        total.counts += ledger.counts
        for what, reasons in ledger.violations.items():
            total.violations.setdefault(what, []).extend(f"{name}: {reason}" for reason in reasons)
        print(f"{time.monotonic() - begun:6.0f} s  {name}: {ledger.violations or 'holds'}", file=sys.stderr, flush=True)
    report(total, time.monotonic() - begun, arguments.seed)
    if arguments.folder is None and not total.violations:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if total.violations else 0)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What happens to one topology."""

    works: list[Work]
    faults: int
    seed: int
    kind: str = ""
    preload: bool = True


def known(folder: Path, works: list[Work]) -> Expected:
    """What comes of all work when nothing happens, by each version."""
    bases = (base for work in works if (base := base_of(work)) is not None)
    everything, found = list(dict.fromkeys([*works, *bases])), Expected()
    for version in VERSIONS:
        with running(Embedded(folder / f"undisturbed-{version}", version)) as topology:
            found |= {(version, work): outcome for work, outcome in undisturbed(topology, everything).items()}
    return found


def disturb(name: str, folder: Path, chosen: Chosen, expected: Expected) -> Ledger:
    """One topology of SHARES under its faults, judged by what is known."""
    folder.mkdir(parents=True, exist_ok=True)
    library, shared = preloadable(folder) if chosen.preload else None, folder / "control"
    with ExitStack() as stack:
        preloaded = None if library is None else stack.enter_context(control(shared))
        variables = {} if library is None else {"LD_PRELOAD": str(library), "CHAOS_CONTROL": str(shared)}
        topology: Topology
        if name == "embedded":
            topology = Embedded(folder / name, COMPILER_VERSION, variables)
        else:
            s3 = stack.enter_context(s3_server(_folder(folder / "s3"))) if name == "bucket" else None
            topology = Separate(folder / name, COMPILER_VERSION, variables, s3)
        stack.enter_context(running(topology))
        faults = Faults(topology, random.Random(chosen.seed), chosen.kind, preloaded)
        ledger = disturbed(topology, faults, chosen.works, chosen.faults, chosen.seed)
        compare(topology, ledger, expected)
    return ledger


@contextmanager
def running(topology: T) -> Iterator[T]:
    """A service, ended afterwards whatever state it is in."""
    try:
        yield topology
    finally:
        topology.stop()


def report(ledger: Ledger, seconds: float, seed: int) -> None:
    """Prints counts and verdict."""
    rows, jobs = Counter(ledger.counts), len({accepted.job for accepted in ledger.accepted})
    print(f"seed {seed}, {jobs} accepted jobs, {seconds:.0f} s")
    for name in sorted(rows):
        print(f"  {rows[name]:6}  {name}")
    for what in VIOLATIONS:
        print(f"  {len(ledger.violations.get(what, ())):6}  {what.upper()}")
        for reason in ledger.violations.get(what, ())[:10]:
            print(f"            {reason}")
    faults = sum(count for name, count in rows.items() if name.startswith("fault: "))
    wrong = {what: len(reasons) for what, reasons in ledger.violations.items()}
    verdict = "HOLDS" if not wrong else "DOES NOT HOLD: " + ", ".join(f"{n} {what}" for what, n in wrong.items())
    print(f"verdict: {jobs} jobs, {faults} faults: {verdict}")


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


if __name__ == "__main__":
    main()
