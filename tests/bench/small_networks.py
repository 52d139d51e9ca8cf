"""Small networks of many ops, which people exported: where start-ups decide, what plans take and what prices say.

`python -m tests.bench small-networks [CHIP ...]`: the files of `tests/data/zoo`, by latency. At an older commit it
shows what the same files took there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from compiler.compile import compile_model
from compiler.frontend.source import ModelSource
from compiler.options import parse_options
from compiler.profile import builtin_profile

CHIPS: Final = ("cluster4x4", "edge4")
_FILES: Final = Path(__file__).parents[1] / "data" / "zoo"


def run(chips: tuple[str, ...] = CHIPS) -> None:
    """Print the table."""
    print("\n| network | chip | groups | µs, simulated | estimate / simulated | values hold |\n|---|---|" + "---:|" * 4)
    for chip in chips:
        for path in sorted(_FILES.glob("*.onnx")):
            source = ModelSource.from_bytes(path.read_bytes(), name=path.stem)
            found = compile_model(source, builtin_profile(chip), parse_options({"objective": "latency"}))
            totals, values = found.plan.totals, found.report.values
            assert values is not None
            assert totals.simulated_latency_s
            print(
                f"| {path.stem} | {chip} | {sum(len(segment.groups) for segment in found.plan.segments)}"
                f" | {1e6 * totals.simulated_latency_s:.2f} | {totals.latency_s / totals.simulated_latency_s:.2f}"
                f" | {'yes' if all(output.holds for output in values.outputs) else 'NO'} |",
                flush=True,
            )
