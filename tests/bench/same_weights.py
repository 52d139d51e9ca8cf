"""Recurrent layers, whose steps read the same weights: what their plans move and take (TILE-6).

`python -m tests.bench same-weights [CASE ...]`, where a case is a layer (`LSTM`), a chip (`edge4`) or its steps.
At an older commit it shows what the same layers took there.
"""

from __future__ import annotations

from time import process_time
from typing import Final

import numpy as np

from compiler.compile import compile_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from tests.models import Model

CHIPS: Final = ("edge4", "cluster4x4", "manycore2x64")
STEPS: Final = (8, 16, 24)
_GATES: Final = {"LSTM": 4, "GRU": 3}
_HIDDEN: Final = 128


def layer(kind: str, steps: int) -> bytes:
    """A layer of 64 inputs and 128 hidden channels, batch 1; weights as before training, so that values are tame."""
    model, random = Model(), np.random.default_rng(0)
    rows, most = _GATES[kind] * _HIDDEN, _HIDDEN**-0.5
    shapes = (1, rows, 64), (1, rows, _HIDDEN), (1, 2 * rows)
    weights = [model.constant(random.uniform(-most, most, shape).astype(np.float32)) for shape in shapes]
    model.output(model.node(kind, [model.input([steps, 1, 64]), *weights], hidden_size=_HIDDEN))
    return model.data()


def run(cases: tuple[str, ...] = ()) -> None:
    """Print the table."""
    head = "DRAM bytes / floor | µs, simulated | energy, µJ | values hold | s of the processor"
    print(f"\n| layer | chip | groups | {head} |\n|---|---|" + "---:|" * 6)
    for kind in _GATES:
        for steps in STEPS:
            for chip in CHIPS:
                if not cases or any(case in (kind, str(steps), chip) for case in cases):
                    print(_row(kind, steps, chip), flush=True)


def _row(kind: str, steps: int, chip: str) -> str:
    data, begin = layer(kind, steps), process_time()
    found = compile_model(data, builtin_profile(chip), parse_options({"objective": "latency"}))
    seconds, totals = process_time() - begin, found.plan.totals
    assert found.report.values is not None
    holds = all(output.holds for output in found.report.values.outputs)
    return (
        f"| {kind}, {steps} steps | {chip} | {sum(len(segment.groups) for segment in found.plan.segments)}"
        f" | {totals.dram_bytes / totals.dram_bytes_floor:.2f}"
        f" | {1e6 * (totals.simulated_latency_s or 0):.1f} | {1e6 * (totals.simulated_energy_j or 0):.1f}"
        f" | {'yes' if holds else 'NO'} | {seconds:.1f} |"
    )
