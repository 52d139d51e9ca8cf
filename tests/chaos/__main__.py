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
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final, TypeVar

from compiler.version import COMPILER_VERSION
from tests.chaos.faults import Faults, control, preloadable
from tests.chaos.run import Ledger, Outcome, compare, disturbed, undisturbed
from tests.chaos.topology import OTHER_VERSION, Embedded, Separate, Topology
from tests.chaos.work import Work, base_of, plan

T = TypeVar("T", bound=Topology)
VIOLATIONS: Final = ("lost", "stuck", "published twice", "different", "wrong bytes served", "internal errors")
# The share of jobs and faults that meet the service as separate processes, with rolling restarts.
_SEPARATE: Final = 0.25


def main() -> None:
    """Runs both topologies and prints the verdict."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--only", choices=("embedded", "separate"), help="one of the two topologies")
    parser.add_argument("--kind", default="", help="only faults with this word in their name")
    parser.add_argument("--folder", type=Path, help="where data and logs stay; without it they are removed")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the service is always ended
    shares = {"embedded": 1 - _SEPARATE, "separate": _SEPARATE}
    names = [arguments.only] if arguments.only else list(shares)
    total, begun = Ledger(), time.monotonic()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="tessera-chaos-"))
    for name in names:
        share = 1.0 if arguments.only else shares[name]
        works = plan(arguments.seed, round(arguments.jobs * share))
        faults = round(arguments.faults * share)
        run = {"embedded": embedded, "separate": separate}[name]
        ledger = run(folder / name, works, faults, arguments.seed, arguments.kind)
        total.accepted += ledger.accepted
        total.counts += ledger.counts
        for what, reasons in ledger.violations.items():
            total.violations.setdefault(what, []).extend(f"{name}: {reason}" for reason in reasons)
    report(total, time.monotonic() - begun, arguments.seed)
    if arguments.folder is None and not total.violations:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if total.violations else 0)


def embedded(
    folder: Path, works: list[Work], faults: int, seed: int, kind: str = "", *, preload: bool = True
) -> Ledger:
    """`tessera serve` under kills, freezes, damaged blobs and, if a library may be preloaded, all else."""
    folder.mkdir(parents=True, exist_ok=True)
    with running(Embedded(_folder(folder / "undisturbed"))) as topology:
        known = undisturbed(topology, _with_bases(works))
    expected = {(COMPILER_VERSION, work): found for work, found in known.items()}
    library = preloadable(folder) if preload else None
    shared = folder / "control"
    with nullcontext() if library is None else control(shared) as preloaded:
        variables = {} if library is None else {"LD_PRELOAD": str(library), "CHAOS_CONTROL": str(shared)}
        with running(Embedded(_folder(folder / "disturbed"), variables)) as topology:
            ledger = disturbed(topology, Faults(topology, random.Random(seed), kind, preloaded), works, faults, seed)
            compare(topology, ledger, expected)
    return ledger


def separate(folder: Path, works: list[Work], faults: int, seed: int, kind: str = "") -> Ledger:
    """API and workers as processes of their own, which are replaced in turn, also by another version."""
    expected: dict[tuple[str, Work], Outcome] = {}
    for version in (COMPILER_VERSION, OTHER_VERSION):
        with running(Separate(folder / f"undisturbed-{version}", version)) as topology:
            known = undisturbed(topology, _with_bases(works))
        expected |= {(version, work): found for work, found in known.items()}
    with running(Separate(folder / "disturbed", COMPILER_VERSION)) as topology:
        ledger = disturbed(topology, Faults(topology, random.Random(seed), kind), works, faults, seed)
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
    rows = Counter(ledger.counts)
    print(f"seed {seed}, {len(ledger.accepted)} accepted jobs, {seconds:.0f} s")
    for name in sorted(rows):
        print(f"  {rows[name]:6}  {name}")
    for what in VIOLATIONS:
        print(f"  {len(ledger.violations.get(what, ())):6}  {what.upper()}")
        for reason in ledger.violations.get(what, ())[:10]:
            print(f"            {reason}")
    faults = sum(count for name, count in rows.items() if name.startswith("fault: "))
    wrong = {what: len(reasons) for what, reasons in ledger.violations.items()}
    verdict = "HOLDS" if not wrong else "DOES NOT HOLD: " + ", ".join(f"{n} {what}" for what, n in wrong.items())
    print(f"verdict: {len(ledger.accepted)} jobs, {faults} faults: {verdict}")


def _with_bases(works: list[Work]) -> list[Work]:
    return list(dict.fromkeys([*works, *(base_of(work) for work in works if work.kind == "simulation")]))


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


if __name__ == "__main__":
    main()
