"""Cycles of programs, by network and by group simulated alone, beside those of another commit (issue 26).

`python -m tests.bench.cycles measure FILE [CHIP ...]` writes those of the light models of onnx to a JSON file, network
by network, and goes on where the file ends; `compare BEFORE NOW` prints two such files as a table. This file and
`planned.py` run as they are at commit db2f1300, where programs are unrolled. Programs are not proved here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

from compiler.errors import LimitError
from compiler.program.loops.time import time_of
from compiler.program.steps.segment import SegmentSteps
from tests.bench.planned import CHIPS, segments
from tests.models import LIGHT_NAMES

# What issue 26 allows: cycles of a network, and of a group, against the former order.
NETWORK_MAX: Final = 1.02
GROUP_MAX: Final = 1.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Cycles of a network's programs, one after another, and of its groups alone; `plans`: their ops and tilings."""

    cycles: float
    groups: Mapping[str, float]
    plans: Mapping[str, str]


def measured(name: str, chip: str) -> Measured:
    """A network lowered for a chip and simulated."""
    cycles, groups, plans = 0.0, dict[str, float](), dict[str, str]()
    for segment in segments(name, chip):
        time = _simulated(segment)
        cycles += time.cycles
        groups |= {group: part.cycles for group, part in dict(time.parts()).items()}
        plans |= {its.name: f"{its.ops} {its.tiling}" for its in segment[3]}
    return Measured(cycles=cycles, groups=groups, plans=plans)


def _simulated(segment: tuple[Any, ...]) -> Any:
    """The time of a segment's program: of the only one that a commit can make."""
    unrolled = getattr(import_module("compiler.program.segment"), "lower_segment", None)
    return time_of(SegmentSteps(*segment).lowered(), segment[1]) if unrolled is None else unrolled(*segment)


def measure(file: Path, chips: Sequence[str]) -> None:
    """Write the cycles of the light models on some chips to a file, if they are not there."""
    known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for chip in chips:
        for name in LIGHT_NAMES:
            key = f"{name} {chip}"
            if key in known:
                continue
            try:
                known[key] = asdict(measured(f"light_{name}", chip))
            except LimitError as error:
                # what does not fit is left to the host by a whole compilation only
                print(f"{key}: {error.message}", flush=True)
            file.write_text(json.dumps(known, indent=1, sort_keys=True))


def compare(before: Path, now: Path) -> None:
    """Print what both files hold: cycles and ratios by network, and of groups of equal plans those beyond the limit."""
    earlier, later = (json.loads(file.read_text()) for file in (before, now))
    print("| network | chip | cycles | now / before | groups | worst | beyond 1.10 |")
    print("|---|---|---:|---:|---:|---:|---|")
    networks, groups = list[float](), list[float]()
    for key in (key for key in later if key in earlier):
        one, other = earlier[key], later[key]
        same = [name for name in other["groups"] if one["plans"].get(name) == other["plans"][name]]
        ratios = {name: other["groups"][name] / one["groups"][name] for name in same if one["groups"][name]}
        ratio = other["cycles"] / one["cycles"]
        networks.append(ratio)
        groups += ratios.values()
        beyond = ", ".join(f"{name} {value:.2f}" for name, value in ratios.items() if value > GROUP_MAX)
        print(
            f"| {' | '.join(key.split())} | {other['cycles']:,.0f} | {ratio:.3f} | {len(ratios)} |"
            f" {max(ratios.values(), default=0):.3f} | {beyond} |"
        )
    for what, found, limit in (("networks", networks, NETWORK_MAX), ("groups", groups, GROUP_MAX)):
        within = sum(ratio <= limit for ratio in found)
        print(
            f"\n{within} of {len(found)} {what} within {limit:.2f}; worst {max(found):.3f},"
            f" geometric mean {geometric_mean(found):.3f}."
        )


def main(arguments: Sequence[str]) -> int:
    """Measure or compare."""
    match arguments:
        case ["measure", file, *chips] if all(chip in CHIPS for chip in chips):
            measure(Path(file), chips or list(CHIPS))
        case ["compare", before, now]:
            compare(Path(before), Path(now))
        case _:
            print("usage: python -m tests.bench.cycles measure FILE [CHIP ...] | compare BEFORE NOW", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
