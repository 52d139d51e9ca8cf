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

from compiler.compile import compile_model
from compiler.errors import CompilationCancelledError, InternalError, LimitError, ModelError, TesseraError, printable
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph, Op, Tensor
from compiler.options import parse_options
from compiler.pipeline import SilentObserver, build_pipeline, run_passes
from compiler.plan import plan_json, report_json
from compiler.profile import builtin_profile
from tests.models import LIGHT_NAMES, Model, light_source
from tests.profiles import small_profile

PHASES = ["read", "lower", "fold-batchnorm", "partition", "fuse", "describe"]


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

    def both(data: bytes) -> tuple[bytes, bytes]:
        found = compile_model(data, profile)
        return plan_json(found.plan), report_json(found.report)

    other = Model(seed=9)
    other.output(other.conv(other.input([1, 3, 16, 16]), 3, 8, name="stem"))
    first = both(network().data())
    both(other.data())
    assert both(network().data()) == first


PROGRAM = """
import hashlib, sys
from compiler.compile import compile_model
from compiler.options import Options
from compiler.plan import plan_json, report_json
from compiler.profile import builtin_profile
from tests.models import light_source
for name in ("squeezenet", "shufflenet"):
    for profile in ("cluster4x4", "edge4"):
        found = compile_model(light_source(name), builtin_profile(profile), Options(objective=sys.argv[1]))
        for data in (plan_json(found.plan), report_json(found.report)):
            print(hashlib.sha256(data).hexdigest())
"""


@pytest.mark.parametrize("objective", ["latency", "edp"])
def test_two_processes_with_different_hash_seeds_write_equal_bytes(objective: str) -> None:
    root = Path(__file__).parents[2]
    runs = []
    for seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, objective],
            env=environment,
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        runs.append(done.stdout)
    assert runs[0] == runs[1]
    assert len(runs[0].split()) == 8


def test_options_in_another_order_give_the_same_plan() -> None:
    rules = {"FUSE-19": {"limit": 3}, "FUSE-11": {"limit": 50}}
    plans = {
        plan_json(compile_model(network().data(), builtin_profile("edge4"), parse_options({"rules": dict(order)})).plan)
        for order in (rules.items(), reversed(rules.items()))
    }
    assert len(plans) == 1


def test_limits_of_the_job_do_not_change_the_plan() -> None:
    """SPEC section 13: exceeding them fails the job, they never change a result."""
    plain = compile_model(network().data(), builtin_profile("edge4")).plan
    bounded = parse_options({"time_limit_s": 5, "memory_limit_bytes": 10**9})
    assert plan_json(compile_model(network().data(), builtin_profile("edge4"), bounded).plan) == plan_json(plain)


def test_a_light_model_compiles_to_the_same_plan_from_bytes_and_from_a_view() -> None:
    source = light_source("squeezenet")
    view = ModelSource.from_buffer(memoryview(bytes(source.data)), name=source.name)
    profile = builtin_profile("edge4")
    assert plan_json(compile_model(view, profile).plan) == plan_json(compile_model(source, profile).plan)
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


def test_an_element_type_without_an_array_is_refused() -> None:
    """PROF-3: a dtype without an array is refused."""
    model = Model()
    x = model.input([1, 2, 4, 4], dtype=7)
    model.output(model.node("MatMul", [x, model.ints(*range(16))]), 7)
    model.nodes.clear()
    y = model.input([4, 4], "y", dtype=7)
    model.outputs.clear()
    model.output(model.node("MatMul", [y, y], name="product"), 7)
    with pytest.raises(ModelError) as caught:
        compile_model(model.data(), builtin_profile("edge4"))
    assert (caught.value.code, caught.value.actual) == ("no_array_for_dtype", "int64")
    assert "float32" in str(caught.value.limit)
