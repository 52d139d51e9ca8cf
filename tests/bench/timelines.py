"""What it takes to tell of a program's time what the report and a trace say of it (SIM-2, SIM-4).

`python -m tests.bench timelines`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Final

from compiler.profile import builtin_profile
from compiler.program.executable import ChipSegment, Executable
from compiler.program.loops.time import time_of
from compiler.program.timing.energy import energy_by_level
from compiler.program.timing.observed import observe
from compiler.program.timing.roofline import roofline_of
from compiler.program.timing.trace import trace_of
from tests.bench.timing import streaming

_COUNTS: Final = (10_000, 100_000, 1_000_000)


def run() -> None:
    """Seconds by part and count of commands, after the first program; bytes of the trace."""
    print("\n### What is told of a program's time: `cluster4x4`, the tiles of `timing`\n")
    parts = ("time", "energy", "roofline", "stalls, usage, maps of memory", "trace")
    print(f"| commands | {' s | '.join(parts)} s | trace bytes |\n|{'---:|' * (len(parts) + 2)}")
    _seconds(_COUNTS[0])
    for count in _COUNTS:
        taken, size = _seconds(count)
        print(f"| {count:,} | {' | '.join(f'{taken[part]:.3f}' for part in parts)} | {size:,} |")


def _seconds(count: int) -> tuple[dict[str, float], int]:
    profile, program = builtin_profile("cluster4x4"), streaming(count)
    executable = Executable(
        compiler_version="",
        profile=profile,
        model_name="tiles",
        model_digest="",
        options_digest="",
        inputs=(),
        outputs=(),
        segments=(ChipSegment(id="s0", chip=0, program=program, weights=()),),
    )
    time = time_of(program, profile)
    parts: dict[str, Callable[[], object]] = {
        "time": lambda: time_of(program, profile),
        "energy": lambda: energy_by_level(time, profile, time.moved()),
        "roofline": lambda: roofline_of(time, [part.ticks for _, part in time.parts()], profile),
        "stalls, usage, maps of memory": lambda: observe(time, profile),
    }
    taken = {}
    for name, part in parts.items():
        begin = process_time()
        part()
        taken[name] = process_time() - begin
    begin = process_time()
    size = sum(len(piece) for piece in trace_of(executable))
    taken["trace"] = process_time() - begin
    return taken, size
