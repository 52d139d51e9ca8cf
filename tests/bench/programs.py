"""Programs and values: ResNet-50 lowered, proved and simulated, beside ONNX Runtime on one thread."""

from __future__ import annotations

from time import perf_counter

import onnxruntime

from compiler.compile import compile_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.simulator.inputs import random_inputs
from compiler.simulator.run import run_executable
from tests.calibrate import calibrated
from tests.models import import_graph

CASES = (("cluster4x4", "rules"), ("cluster4x4", "none"), ("edge4", "rules"))


def run() -> None:
    """Print one row per chip and grouping; times are wall seconds of one run."""
    data = calibrated("resnet50")
    inputs = random_inputs(import_graph(data), 1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    session.run(None, inputs)
    begin = perf_counter()
    session.run(None, inputs)
    reference = perf_counter() - begin
    print(
        "\n| chip, fusion | commands | program bytes | lower + verify, s | simulate, s | / ONNX Runtime | worst error |"
    )
    print("|---|---|---|---|---|---|---|")
    for profile, fusion in CASES:
        compilation = compile_model(data, builtin_profile(profile), parse_options({"fusion": fusion}))
        lowering = next(t.duration_s for t in compilation.timings if t.name == "program")
        executable = compilation.executable
        assert executable is not None
        begin = perf_counter()
        run_executable(executable, inputs)
        simulated = perf_counter() - begin
        programs = compilation.report.programs
        print(
            f"| {profile}, {fusion} | {sum(p.commands for p in programs)} | {sum(p.program_bytes for p in programs)} "
            f"| {lowering:.2f} | {simulated:.2f} | {simulated / reference:.0f} "
            f"| {compilation.report.values.max_error:.1e} |"
        )
    print(f"\nONNX Runtime, one thread: {reference * 1e3:.0f} ms.")
