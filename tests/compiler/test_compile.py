"""The whole compilation: progress, cancel, whose fault an error is, and byte-equal answers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from onnx import TensorProto

from compiler.compile import compile_model, plan_model
from compiler.errors import CompilationCancelledError, InternalError, LimitError, ModelError, TesseraError, printable
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph, Op, Tensor
from compiler.options import Options, parse_options
from compiler.pipeline import SilentObserver, build_pipeline, run_passes
from compiler.profile import Profile, builtin_profile
from compiler.profile.load import profile_from_values
from compiler.program.executable import write
from compiler.report.plan import Plan, plan_json, report_json
from tests.compiler.partition.graphs import convolutions, stationary
from tests.compiler.planning import BY_RULES
from tests.models import LIGHT_NAMES, Model, light_source
from tests.profiles import profile_values, small_profile

PHASES = [
    "read",
    "validate",
    "lower",
    "fold-batchnorm",
    "patterns",
    "rebatch",
    "integers",
    "set-precision",
    "set-layout",
    "leave-to-host",
    "widen-products",
    "products-to-host",
    "fuse-attention",
    "spell-out",
    "split-normalisations",
    "split-positions",
    "split-reductions",
    "split-pads",
    "fold-channels",
    "split-dilations",
    "turn-products",
    "untie-weights",
    "split-weights",
    "rows-to-host",
    "leave-parts-to-host",
    "partition",
    "fuse",
    "map",
    "choose",
    "program",
    "check values",
    "describe",
]


def network() -> Model:
    """A small network with a branch and two segments."""
    model = Model()
    x = model.relu(model.conv(model.input([1, 3, 16, 16]), 3, 8, name="stem"), name="act")
    tap = model.output(model.node("Add", [model.conv(x, 8, 8, name="left"), x], name="add"))
    model.output(model.pool(model.conv(tap, 8, 8, name="last"), name="pool"))
    return model


class Recorder:
    """An observer that notes phases and cancels before a given one."""

    def __init__(self, cancel_at: str | None = None) -> None:
        self.seen: list[tuple[str, int, int]] = []
        self.cancel_at = cancel_at
        self.asked = 0

    def phase(self, name: str, step: int, total: int) -> None:
        """Note it."""
        self.seen.append((name, step, total))

    def cancelled(self) -> bool:
        """True once the wanted phase would begin."""
        self.asked += 1
        return self.cancel_at is not None and PHASES[self.asked - 1] == self.cancel_at


def test_phases_are_reported_in_order_with_step_and_total() -> None:
    observer = Recorder()
    compile_model(network().data(), builtin_profile("edge4"), observer=observer)
    assert observer.seen == [(name, step, len(PHASES)) for step, name in enumerate(PHASES, start=1)]


def test_each_pass_is_timed_once() -> None:
    compilation = compile_model(network().data(), builtin_profile("edge4"))
    assert [timing.name for timing in compilation.timings] == PHASES
    assert all(timing.duration_s >= 0 for timing in compilation.timings)


@pytest.mark.matrix(first=10, rest=10)
@pytest.mark.parametrize("phase", PHASES)
def test_a_cancelled_compilation_stops_before_the_next_pass(phase: str) -> None:
    observer = Recorder(cancel_at=phase)
    with pytest.raises(CompilationCancelledError, match=phase):
        compile_model(network().data(), builtin_profile("edge4"), observer=observer)
    assert [name for name, _, _ in observer.seen] == PHASES[: PHASES.index(phase)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A pass made of a function."""

    name: str
    function: Callable[[Any], Any]

    def run(self, value: Any, /) -> Any:
        """Apply the function."""
        return self.function(value)


def failing(error: BaseException) -> Callable[[Any], Any]:
    """A function that raises."""

    def function(_: Any) -> Any:
        raise error

    return function


def test_an_unexpected_exception_becomes_an_internal_error_that_names_the_pass() -> None:
    steps = [Step(name="first", function=lambda v: v), Step(name="second", function=failing(KeyError("x")))]
    with pytest.raises(InternalError) as caught:
        run_passes(steps, 1, SilentObserver())
    error = caught.value
    assert (error.code, error.stage) == ("internal_error", "second")
    assert "KeyError" in error.message
    assert error.hint is not None
    assert "first" in error.hint
    assert isinstance(error.__cause__, KeyError)


@pytest.mark.parametrize("error", [ModelError("bad", code="c"), LimitError("much"), MemoryError()])
def test_errors_that_are_not_ours_pass_through_unchanged(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        run_passes([Step(name="only", function=failing(error))], 1, SilentObserver())
    assert caught.value is error


def broken_graph(*, kind: str) -> Graph:
    """A graph that breaks one invariant."""
    tensors = {name: Tensor(name=name, shape=(1,), dtype="float32", axes=("C",)) for name in ("x", "y", "z")}
    relu = Op(kind="Relu", inputs=("x",), output="y", origin=("relu",))
    ops = {
        "order": (Op(kind="Relu", inputs=("z",), output="y", origin=("relu",)),),
        "twice": (relu, relu),
        "origin": (Op(kind="Relu", inputs=("x",), output="y", origin=()),),
        "output": (relu,),
        "axes": (relu,),
    }[kind]
    if kind == "axes":
        tensors["y"] = Tensor(name="y", shape=(1, 1), dtype="float32", axes=("C", "C"))
    outputs = ("z",) if kind == "output" else ("y",)
    return Graph(name="g", ops=ops, tensors=tensors, inputs=("x",), outputs=outputs)


@pytest.mark.parametrize("kind", ["order", "twice", "origin", "output", "axes"])
def test_a_pass_that_returns_a_broken_graph_is_stopped_by_the_runner(kind: str) -> None:
    with pytest.raises(InternalError):
        run_passes([Step(name="breaker", function=lambda _: broken_graph(kind=kind))], 1, SilentObserver())


def test_the_pipeline_reads_top_to_bottom() -> None:
    steps = build_pipeline(ModelSource.from_bytes(b""), builtin_profile("edge4"), parse_options({}))
    assert [step.name for step in steps] == PHASES


# Determinism


def test_compiling_a_then_b_then_a_gives_equal_bytes() -> None:
    """HOUSE_STYLE 5: no state outlives a compilation."""
    profile = builtin_profile("cluster4x4")

    def both(data: bytes) -> tuple[bytes, ...]:
        found = compile_model(data, profile)
        assert found.executable is not None
        return plan_json(found.plan), report_json(found.report), b"".join(map(bytes, write(found.executable)))

    other = Model(seed=9)
    other.output(other.conv(other.input([1, 3, 16, 16]), 3, 8, name="stem"))
    first = both(network().data())
    both(other.data())
    assert both(network().data()) == first


PROGRAM = """
import hashlib
from compiler.compile import compile_model
from compiler.options import Options
from compiler.report.plan import plan_json, report_json
from compiler.profile import builtin_profile
from tests.models import light_source
for name, profile, objective in [("squeezenet", "edge4", "edp")]:
    options = Options(objective=objective, verify="none")
    found = compile_model(light_source(name), builtin_profile(profile), options)
    for data in (plan_json(found.plan), report_json(found.report)):
        print(hashlib.sha256(data).hexdigest())
"""


@pytest.mark.slow
def test_two_processes_with_different_hash_seeds_write_equal_bytes() -> None:
    root = Path(__file__).parents[2]
    runs = []
    for seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment,
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
        runs.append(done.stdout)
    assert runs[0] == runs[1]
    assert len(set(runs[0].split())) == 2


def test_options_in_another_order_give_the_same_plan() -> None:
    rules = {"FUSE-19": {"limit": 3}, "FUSE-11": {"limit": 50}}
    plans = {
        plan_json(plan_model(network().data(), builtin_profile("edge4"), parse_options({"rules": dict(order)})).plan)
        for order in (rules.items(), reversed(rules.items()))
    }
    assert len(plans) == 1


def test_limits_of_the_job_do_not_change_the_plan() -> None:
    """SPEC section 13: exceeding them fails the job, they never change a result."""
    plain = compile_model(network().data(), builtin_profile("edge4")).plan
    bounded = parse_options({"time_limit_s": 5, "memory_limit_bytes": 10**9})
    assert plan_json(compile_model(network().data(), builtin_profile("edge4"), bounded).plan) == plan_json(plain)


@pytest.mark.slow
def test_a_light_model_compiles_to_the_same_plan_from_bytes_and_from_a_view() -> None:
    source = light_source("squeezenet")
    view = ModelSource.from_buffer(memoryview(bytes(source.data)), name=source.name)
    profile, options = builtin_profile("edge4"), Options(fusion="none")
    assert plan_model(view, profile, options).plan == plan_model(source, profile, options).plan
    assert hashlib.sha256(bytes(source.data)).hexdigest() == view.sha256
    assert "squeezenet" in LIGHT_NAMES


# Errors


def test_an_error_says_what_where_actual_limit_and_next_step() -> None:
    error = ModelError(
        "too wide", code="wide", stage="import", node="conv1", op_type="Conv", actual=5, limit=4, hint="Narrow it"
    )
    assert str(error) == "too wide (stage import, node conv1, op Conv); actual 5; limit 4. Narrow it"
    assert error.to_dict() == {
        "code": "wide",
        "stage": "import",
        "node": "conv1",
        "op_type": "Conv",
        "message": "too wide",
        "actual": 5,
        "limit": 4,
        "hint": "Narrow it",
    }


def test_absent_parts_of_an_error_are_left_out() -> None:
    assert TesseraError("bad").to_dict() == {"code": "error", "message": "bad"}
    assert str(TesseraError("bad")) == "bad"


def test_text_from_a_model_becomes_one_bounded_line() -> None:
    """API-7."""
    assert printable("a\nb\x1b[0m\u202e") == "a\\nb\\x1b[0m\\u202e"
    assert len(printable("x" * 1000)) == 300
    assert printable("é×ß") == "é×ß"


def test_a_profile_on_which_nothing_fits_names_op_needed_and_available() -> None:
    with pytest.raises(LimitError) as caught:
        compile_model(network().data(), small_profile(nram_bytes=64))
    error = caught.value
    assert (error.code, error.node, error.op_type) == ("does_not_fit", "stem", "Conv")
    needed, available = (int(str(text).split()[0]) for text in (error.actual, error.limit))
    # one window of 3 channels, one output element: more than the whole memory
    assert needed > available
    assert available <= 64


def rated(clock: float, bandwidth: float) -> Profile:
    values = profile_values("manycore2x64")
    values["clock_hz"] = clock
    values["dram"]["bandwidth_bytes_per_s"] = bandwidth
    return profile_from_values(values)


def test_rates_below_what_ticks_tell_are_refused_by_name() -> None:
    """PROF-4: what is no fault of the profile does not end in one of ours."""
    with pytest.raises(LimitError, match="the rate of the DRAM is too low to be simulated") as caught:
        compile_model(network().data(), rated(1e18, 1e-3))
    assert caught.value.limit == "6.1e-05 bytes per cycle"
    assert "Raise the rate" in str(caught.value.hint)


@pytest.mark.parametrize(("clock", "bandwidth"), [(1e18, 6.2e13), (1e-3, 1e18)])
def test_the_fastest_and_the_slowest_rates_that_can_be_simulated_are_planned(clock: float, bandwidth: float) -> None:
    found = compile_model(network().data(), rated(clock, bandwidth), BY_RULES)
    assert found.plan.totals.latency_s >= found.plan.totals.latency_bound_s > 0
    assert plan_json(found.plan)
    assert report_json(found.report)


def test_products_of_an_element_type_without_an_array_go_to_the_host_and_are_refused_under_strict() -> None:
    """IMPORT-9, IMPORT-6: the reason names the type and those that the profile has arrays for."""
    model = Model()
    y = model.input([4, 4], "y", dtype=TensorProto.FLOAT16)
    model.output(model.node("MatMul", [y, y], name="product"), TensorProto.FLOAT16)
    values = profile_values("edge4")
    for table in ("arrays", "pj_per_mac"):
        for dtype in ("float16", "float32"):
            del values["matrix"][table][dtype]
    plan = compile_model(model.data(), profile_from_values(values)).plan
    (node,) = (node for segment in plan.segments for node in segment.host)
    assert (node.node, node.macs, plan.native.host_macs, plan.totals.macs) == ("product", 64, 64, 0)
    assert node.reason == "the profile has no matrix array for element type float16 (it has int8)"
    with pytest.raises(ModelError, match="product"):
        compile_model(model.data(), profile_from_values(values), parse_options({"strict": True}))
    assert compile_model(model.data(), builtin_profile("edge4")).plan.totals.macs == 64


def test_an_element_type_that_no_accelerator_holds_stays_on_the_host() -> None:
    """IMPORT-6, IMPORT-5: double precision is none of the types; the op is cut out with its reason."""
    model = Model()
    y = model.input([4, 4], "y", dtype=TensorProto.DOUBLE)
    model.output(model.node("MatMul", [y, y], name="product"), TensorProto.DOUBLE)
    (segment,) = compile_model(model.data(), builtin_profile("edge4")).plan.segments
    assert segment.kind == "host"
    assert [node.node for node in segment.host] == ["product"]
    assert "float64" in segment.host[0].reason


# What the plan says of hosts, segments and merging


def mixed() -> Model:
    """A network with an op of the host between two taps of the chip."""
    model = Model()
    x = model.relu(model.conv(model.input([1, 3, 16, 16]), 3, 8, name="stem"), name="act")
    x = model.output(model.conv(x, 8, 8, name="tap"))
    x = model.relu(model.node("Det", [model.conv(x, 8, 8, name="body")], name="determinant"), name="end")
    model.output(x)
    return model


def test_an_unsupported_op_becomes_a_host_segment_with_the_reason() -> None:
    """IMPORT-6: cut out, counted and reported with the reason per node."""
    plan = compile_model(mixed().data(), builtin_profile("edge4")).plan
    assert [(segment.kind, segment.nodes) for segment in plan.segments] == [
        ("chip", ("stem", "act", "tap", "body")),
        ("host", ("determinant",)),
        ("chip", ("end",)),
    ]
    (node,) = plan.segments[1].host
    assert (node.node, node.op_type, node.reason) == ("determinant", "Det", "the accelerator has no Det")
    assert plan.segments[1].groups == ()
    assert plan.segments[1].chip is None
    assert [segment.cut.kind for segment in plan.segments] == ["begin", "host", "host"]
    assert [segment.cut.after for segment in plan.segments] == [None, "body", "determinant"]
    assert [segment.cut.crossing_bytes for segment in plan.segments] == [0, 4 * 8 * 256, 4 * 8]
    assert (plan.native.chip_nodes, plan.native.host_nodes) == (5, 1)


def test_option_strict_makes_an_op_of_the_host_an_error() -> None:
    """IMPORT-6."""
    with pytest.raises(ModelError) as caught:
        compile_model(mixed().data(), builtin_profile("edge4"), Options(strict=True))
    error = caught.value
    assert (error.code, error.node, error.op_type) == ("unsupported_op", "determinant", "Det")
    assert "the accelerator has no Det" in str(error)
    assert error.hint is not None
    assert "strict" in error.hint


def test_option_strict_changes_nothing_where_the_chip_runs_everything() -> None:
    """IMPORT-6."""
    found = compile_model(network().data(), builtin_profile("edge4"), Options(strict=True, fusion="rules")).plan
    assert found.segments == compile_model(network().data(), builtin_profile("edge4"), BY_RULES).plan.segments


def test_merging_is_reported_with_what_it_made_of_the_segments() -> None:
    """PART-4."""
    options = {merge: parse_options({"merge": merge, "fusion": "rules"}) for merge in ("none", "optimal")}
    plans = {
        merge: compile_model(network().data(), builtin_profile("edge4"), one).plan for merge, one in options.items()
    }
    assert [len(plan.segments) for plan in plans.values()] == [2, 1]
    for merge, plan in plans.items():
        assert plan.partition.strategy == merge
        assert plan.partition.segments_before_merge == 2
    (merged,) = plans["optimal"].partition.merges
    assert (merged.members, merged.compiled, merged.why) == (2, True, None)
    assert (merged.first, merged.last) == ("stem", "pool")
    assert plans["none"].partition.merges == ()
    (apart,) = plans["none"].partition.apart
    assert (apart.before, apart.after, apart.why) == ("s0", "s1", "option merge is none")


def test_the_default_merge_gives_two_chips_equal_shares() -> None:
    """PART-4: one chip could hold seven of the eight convolutions, but would then lack memory for activations."""
    model, profile = convolutions(8, channels=24).data(), stationary(nram_bytes=40_000)
    chosen, greedy = (
        compile_model(model, profile, parse_options(options | {"verify": "none"}))
        for options in ({}, {"merge": "forward-greedy"})
    )
    assert [(s.chip, len(s.nodes)) for s in greedy.plan.segments] == [(0, 7), (1, 1)]
    assert [(s.chip, len(s.nodes)) for s in chosen.plan.segments] == [(0, 4), (1, 4)]
    fast, slow = chosen.report.stream, greedy.report.stream
    assert fast is not None
    assert slow is not None
    assert fast.images_per_s > 2 * slow.images_per_s
    assert fast.latency_s < slow.latency_s


def test_the_default_merge_uses_both_chips_where_one_could_run_all() -> None:
    """PART-4: of segments that exist, for merging never cuts; option chips decides whether there are several."""
    model, profile = convolutions(4, channels=8, taps=[0, 1, 2]).data(), builtin_profile("manycore2x64")
    shared, single = (
        compile_model(model, profile, parse_options({"fusion": "none", "verify": "none", "chips": chips})).plan
        for chips in ("balanced", "single")
    )
    assert [(s.chip, s.nodes) for s in shared.segments] == [(0, ("c0", "c1")), (1, ("c2", "c3"))]
    (apart,) = shared.partition.apart
    assert "slowest chip" in apart.why
    assert [(s.chip, len(s.nodes)) for s in single.segments] == [(0, 4)]


def test_segments_say_on_how_many_cores_their_hardware_nodes_lie() -> None:
    """PART-6: 5 channels of stationary weights lie on 5 cores of 64; what has no weights may use all."""
    model = Model()
    model.output(model.relu(model.conv(model.input([1, 3, 16, 16]), 3, 5, name="conv"), name="relu"))
    (segment,) = compile_model(
        model.data(), builtin_profile("manycore2x64"), parse_options({"fusion": "none"})
    ).plan.segments
    assert segment.units == {"dma": 2, "matrix": 1, "vector": 1}
    assert segment.unit_cores == {"dma": 64, "matrix": 5, "vector": 64}


def test_every_node_of_a_mixed_plan_stands_in_one_segment() -> None:
    """IMPORT-6: host nodes too."""
    plan = compile_model(mixed().data(), builtin_profile("edge4")).plan
    nodes = [node for segment in plan.segments for node in segment.nodes]
    assert sorted(nodes) == sorted(["stem", "act", "tap", "body", "determinant", "end"])
    assert [node for s in plan.segments for group in s.groups for node in group.nodes] == [
        node for node in nodes if node != "determinant"
    ]


def test_chips_and_links_are_reported_with_load_and_traffic() -> None:
    """PART-5: each chip's load and the traffic between chips and host."""
    options = parse_options({"merge": "none", "chips": "one-each"})
    plan = plan_model(network().data(), builtin_profile("manycore2x64"), options).plan
    assert [segment.chip for segment in plan.segments] == [0, 1]
    assert [chip.segments for chip in plan.partition.chips] == [("s0",), ("s1",)]
    assert [chip.cycles for chip in plan.partition.chips] == [segment.cycles for segment in plan.segments]
    assert [(t.source, t.target, t.bytes) for t in plan.partition.traffic] == [
        ("host", "chip 0", 4 * 3 * 256),
        ("chip 0", "host", 4 * 8 * 256),
        ("chip 0", "chip 1", 4 * 8 * 256),
        ("chip 1", "host", 4 * 8 * 64),
    ]
    assert plan.totals.host_link_bytes == 4 * (3 * 256 + 8 * 256 + 8 * 64)
    assert plan.totals.stationary_weight_bytes == 4 * (3 * 8 * 9 + 2 * 8 * 8 * 9)


def test_dynamic_dims_are_planned_at_their_maxima_and_reported() -> None:
    """SPEC section 13: dims."""
    model = Model()
    model.output(model.relu(model.input(["batch", 3, 4, 4])))
    options = parse_options({"dims": {"batch": {"min": 1, "max": 6}}})
    plan = compile_model(model.data(), builtin_profile("edge4"), options).plan
    assert plan.dims == {"batch": 6}
    assert plan.totals.images == 6


def test_the_plan_is_told_before_its_programs_are_made_and_differs_by_what_they_say() -> None:
    model = Model()
    model.output(model.relu(model.conv(model.input([1, 8, 16, 16]), 8, 16)))
    told: list[Plan] = []
    phases: list[str] = []

    class Watch(SilentObserver):
        def phase(self, name: str, step: int, total: int) -> None:
            phases.append(f"{name} {step} of {total}")

    def announce(plan: Plan) -> None:
        assert not any(phase.startswith("program ") for phase in phases)
        told.append(plan)

    final = compile_model(model.data(), builtin_profile("edge4"), observer=Watch(), announce=announce).plan
    (early,) = told
    assert any(phase.startswith("program ") for phase in phases)
    assert early.provisional
    assert not final.provisional
    assert early.totals.simulated_latency_s is None
    assert final.totals.simulated_latency_s is not None
    segments = [replace(segment, program_bytes=None, simulated=None) for segment in final.segments]
    assert replace(final, provisional=True, totals=early.totals, segments=tuple(segments)) == early
