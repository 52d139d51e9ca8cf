"""The bound on what the host runs: loops that do not end are neither started nor waited for (IMPORT-6, SIM-1)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from compiler.compile import compile_model
from compiler.frontend.host_steps import repeating_in_model
from compiler.frontend.runtimes import Runtime, run_model
from compiler.frontend.source import ModelSource
from compiler.host_bound import HOST_BOUND, HostBound, HostBoundError
from compiler.options import Options
from compiler.profile import builtin_profile
from compiler.simulator.run import run_executable
from compiler.simulator.value_check import check_values
from tests.compiler.planning import BY_RULES
from tests.models import import_graph

MANY: Final = 2**40
SOON: Final = HostBound(seconds=0.5)
FEEDS: Final[Mapping[str, Any]] = MappingProxyType({"x": np.ones(4, np.float32)})
HEAD: Final = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>'
# bodies of loops that carry four numbers; the condition of the second follows from them, and is always true
ALWAYS: Final = "body (int64 i, bool c, float[4] b) => (bool k, float[4] a) { k = Identity(c) NODES }"
BY_VALUE: Final = (
    "body (int64 i, bool c, float[4] b) => (bool k, float[4] a)"
    " { s = ReduceL1 <keepdims = 0> (b) l = Constant <value_float = -1.0> () k = Greater(s, l) NODES }"
)
ONCE: Final = ALWAYS.replace("k = Identity(c)", "k = Not(c)")
INNER: Final = (
    "a = Loop <body = inner (int64 j, bool d, float[4] e) => (bool h, float[4] f) { h = Identity(d) f = Neg(e) }>"
)
ENDLESS: Final = "v = Constant <value_float = 1e12> () u = Mul(n, v) w = Cast <to = 7> (u)"
IF: Final = (
    "q = ReduceMin <keepdims = 0> (b) z = Constant <value_float = LEAST> () o = Greater(q, z)"
    " a = If <then_branch = yes () => (float[4] t) { t1 = Neg(b) t2 = Neg(t1) t = Neg(t2) },"
    " else_branch = no () => (float[4] u) { u = Neg(b) }> (o)"
)
HIDING: Final = INNER.replace("f = Neg(e)", "n = Neg(e) f = Neg(n)")
WRAPPED: Final = f"w = Constant <value_int = {2**32 + 3}> () v = Cast <to = 6> (w) n = Cast <to = 7> (v)"
REPEAT: Final = (
    '<domain: "own", opset_import: ["" : 17]> repeat (b, n) => (a)'
    f" {{ g = Constant <value_int = 1> () c = Cast <to = 9> (g) {INNER} (n, c, b) }}"
    '<domain: "own", opset_import: ["" : 17, "own" : 1]> twice (b, n) => (a)'
    " { o = own.repeat(b, n) a = own.repeat(o, n) }"
)


def parsed(nodes: str, *, inputs: str = "", values: str = "", functions: str = "") -> onnx.ModelProto:
    """Nodes that make `m` from `r`, between two ops of the chip."""
    head = f"{HEAD} g (float[4] x{inputs}) => (float[4] y) <bool true = {{1}}{values}>"
    return onnx.parser.parse_model(f"{head} {{ r = Relu(x) {nodes} y = Relu(m) }} {functions}")


def looping(
    trips: int | None, nodes: str = "a = Neg(b)", *, body: str = ALWAYS, functions: str = ""
) -> onnx.ModelProto:
    """A Loop with a constant number of trips, or without a number."""
    count, values = ('""', "") if trips is None else ("trips", f", int64 trips = {{{trips}}}")
    loop = f"[loop] m = Loop <body = {body.replace('NODES', nodes)}> ({count}, true, r)"
    return parsed(loop, values=values, functions=functions)


def nested(outer: int, inner: int) -> onnx.ModelProto:
    return looping(outer, f"n = Constant <value_int = {inner}> () {INNER} (n, c, b)")


def in_a_function(outer: int, inner: int) -> onnx.ModelProto:
    """A function that calls another twice, whose Loop has the number of trips that it is handed."""
    return looping(outer, f"n = Constant <value_int = {inner}> () a = own.twice(b, n)", functions=REPEAT)


def computed(trips: int) -> onnx.ModelProto:
    """A Loop whose number of trips import computes from the shape of an input."""
    count = "w = Shape(shaped) v = Constant <value_int = 1> () u = Gather(w, v) n = Mul(u, f)"
    loop = f"[loop] m = Loop <body = {ALWAYS.replace('NODES', 'a = Neg(b)')}> (n, true, r)"
    inputs, values = ", float[4, 2] shaped", f", int64 f = {{{trips // 2}}}"
    return parsed(f"{count} {loop}", inputs=inputs, values=values)


def scanning(rows: int, trips: int, *, scanned: str = "rows") -> onnx.ModelProto:
    """A Scan over the rows of an input (or over `made`, which the chip makes), with a Loop in its body."""
    body = f"scanned (float[4] b, float[4] e) => (float[4] a, float[4] v) {{ {INNER} (trips, true, b) v = Add(a, e) }}"
    scan = f"[loop] m, all = Scan <num_scan_inputs = 1, body = {body}> (r, {scanned})"
    return parsed(f"made = Relu(rows) {scan}", inputs=f", float[{rows}, 4] rows", values=f", int64 trips = {{{trips}}}")


def steps_of(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> int:
    """The nodes that ONNX's reference evaluator runs."""
    count = 0

    class Counting(ReferenceEvaluator):
        def run(self, *arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += len(self.rt_nodes_)
            return super().run(*arguments, **named)

    Counting(model).run(None, dict(feeds))
    return count


@pytest.mark.parametrize(
    ("model", "feeds"),
    [
        (looping(7), {}),
        (looping(7, body=ONCE), {}),
        (nested(3, 5), {}),
        (nested(3, 0), {}),
        (in_a_function(3, 5), {}),
        (scanning(6, 5), {"rows": np.ones((6, 4), np.float32)}),
        (looping(1, IF.replace("LEAST", "9.0")), {}),
        (looping(1, IF.replace("LEAST", "9.0").replace("(o)", "(c)")), {}),
        # a body's own values hide those outside; a number that is cast is what the element type holds of it
        (looping(2, f"n = Constant <value_int = 3> () {HIDING} (n, c, b)"), {}),
        (looping(2, f"{WRAPPED} {INNER} (n, c, b)"), {}),
    ],
)
def test_the_steps_that_are_known_are_those_that_a_run_takes(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> None:
    """Also of the shorter branch of an If whose condition is not known, and of the one that is taken."""
    given = {**FEEDS, **feeds}
    steps = steps_of(model, given)
    assert repeating_in_model(model, given, HostBound(steps=steps)) is not None
    with pytest.raises(HostBoundError) as caught:
        repeating_in_model(model, given, HostBound(steps=steps - 1))
    assert (caught.value.node, caught.value.actual) == ("loop", f"at least {steps} steps")


@pytest.mark.parametrize(
    "model", [looping(3, body=BY_VALUE), looping(None, body=BY_VALUE), looping(1, IF.replace("LEAST", "-1.0"))]
)
def test_steps_that_a_run_may_not_take_are_not_counted(model: onnx.ModelProto) -> None:
    """A loop that may end by its condition takes one trip at least, one without a number of trips maybe none."""
    assert repeating_in_model(model, FEEDS, HostBound(steps=9)) is not None


def test_a_model_without_loops_is_not_waited_for() -> None:
    model = parsed("c = Identity(true) b = Identity(r) " + IF.replace("LEAST", "0.0") + " m = Identity(a)")
    assert repeating_in_model(model, FEEDS, HostBound(steps=1)) is None


@pytest.mark.parametrize(
    ("model", "steps"),
    [
        (looping(MANY), 2 * MANY),
        (nested(2**20, 2**20), 2**20 * (3 + 2 * 2**20)),
        (computed(MANY), 2 * MANY),
        (in_a_function(3, MANY), 12 * MANY),
        (scanning(2**10, 2**30, scanned="made"), 2 * MANY),
    ],
)
def test_a_loop_known_not_to_end_is_planned_not_started_and_said(model: onnx.ModelProto, steps: int) -> None:
    """Issue 22: the plan and the report say why values were not checked, and what runs the model says the same."""
    compilation = compile_model(model.SerializeToString(), builtin_profile("edge4"), BY_RULES)
    values = compilation.report.values
    assert not values.checked
    assert values.reason is not None
    assert values.reason.startswith("host node 'loop' takes at least ")
    found = int(values.reason.removeprefix("host node 'loop' takes at least ").split()[0])
    assert steps <= found < steps * 1.001
    assert values.reason.endswith(f" steps; limit {HOST_BOUND.steps} steps")
    assert any(values.reason in note for note in compilation.report.assumptions)
    assert compilation.executable is not None
    given = {value.name: np.ones(value.shape or (), np.float32) for value in compilation.executable.inputs}
    with pytest.raises(HostBoundError) as caught:
        run_executable(compilation.executable, given)
    assert (caught.value.node, caught.value.op_type) == ("loop", model.graph.node[-2].op_type)
    assert caught.value.limit == f"{HOST_BOUND.steps} steps"
    assert caught.value.hint


def test_a_loop_that_no_condition_ends_is_interrupted_and_said() -> None:
    """In the check, and in a run of the executable; the bound in seconds is long, so it is a parameter."""
    data = looping(None, body=BY_VALUE).SerializeToString()
    executable = compile_model(data, builtin_profile("edge4"), Options(verify="none")).executable
    assert executable is not None
    check = check_values(executable, import_graph(data), ModelSource.from_bytes(data), bound=SOON)
    assert (check.has_run, check.reason) == (False, "host node 'loop' takes more than 0.5 s; limit 0.5 s")
    with pytest.raises(HostBoundError) as caught:
        run_executable(executable, FEEDS, bound=SOON)
    assert (caught.value.node, caught.value.actual, caught.value.limit) == ("loop", "more than 0.5 s", "0.5 s")
    assert caught.value.hint


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnx.reference"])
@pytest.mark.parametrize(
    "model",
    [
        looping(None, body=BY_VALUE),
        looping(1, f"n = ReduceMax <keepdims = 0> (b) {ENDLESS} a = own.twice(b, w)", functions=REPEAT),
        looping(1, f"n = ReduceMax <keepdims = 0> (b) {ENDLESS} {INNER} (w, c, b)", body=ONCE),
    ],
)
def test_both_runtimes_are_interrupted(runtime: Runtime, model: onnx.ModelProto) -> None:
    with pytest.raises(HostBoundError, match="did not end in time"):
        run_model(model, FEEDS, runtimes=[runtime], bound=SOON)


def test_a_number_of_trips_that_a_user_gives_is_bounded_before_the_loop_runs() -> None:
    model = parsed(f"[loop] m = Loop <body = {ALWAYS.replace('NODES', 'a = Neg(b)')}> (n, true, r)", inputs=", int64 n")
    compilation = compile_model(model.SerializeToString(), builtin_profile("edge4"), BY_RULES)
    assert compilation.report.values.checked
    executable = compilation.executable
    assert executable is not None
    assert run_executable(executable, {**FEEDS, "n": np.array(2)})["y"].tolist() == [1, 1, 1, 1]
    with pytest.raises(HostBoundError, match="too often"):
        run_executable(executable, {**FEEDS, "n": np.array(MANY)})


def test_a_loop_within_the_bound_is_checked() -> None:
    for model in (
        looping(5),
        looping(5, body=BY_VALUE),
        nested(3, 4),
        in_a_function(2, 3),
        computed(6),
        scanning(3, 2),
    ):
        assert compile_model(model.SerializeToString(), builtin_profile("edge4"), BY_RULES).report.values.checked
