"""Value checks: what running and comparing a program takes of a compilation (issue 27).

docs/benchmarks/0027-values.md. `values resnet50/cluster4x4 ...`: some networks on some chips.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import process_time
from typing import Any, Final
from unittest.mock import patch

from compiler.compile import compile_model
from compiler.options import Options
from compiler.profile import builtin_profile
from compiler.simulator import value_check
from compiler.simulator.reference import run_reference
from tests.models import light_source

CASES: Final = ("resnet50/cluster4x4", "resnet50/edge4", "shufflenet/cluster4x4", "densenet121/edge4")


def run(cases: Sequence[str] = CASES) -> None:
    """Print one row per network and chip, in processor seconds of one run; ONNX Runtime's own run is a part."""
    print("\n| network, chip | commands | value check, s | of these ONNX Runtime, s | judged by a wider limit |")
    print("|---|---:|---:|---:|---|", flush=True)
    for case in cases:
        network, chip = case.split("/")
        seconds = {"check_values": 0.0, "run_reference": 0.0}

        def timed(function: Any, seconds: dict[str, float] = seconds) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                begin = process_time()
                found = function(*arguments, **named)
                seconds[function.__name__] += process_time() - begin
                return found

            return call

        with (
            patch.object(value_check, "check_values", timed(value_check.check_values)),
            patch.object(value_check, "run_reference", timed(run_reference)),
        ):
            found = compile_model(light_source(network), builtin_profile(chip), Options())
        commands = sum(program.commands for program in found.report.programs)
        again = any(output.verdict != "plain" for output in found.report.values.outputs)
        print(
            f"| {network}, {chip} | {commands:,} | {seconds['check_values']:.2f} "
            f"| {seconds['run_reference']:.2f} | {'yes' if again else 'no'} |",
            flush=True,
        )
