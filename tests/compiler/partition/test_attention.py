"""Attention as one op: what can be one, what it costs, and its values on chips that hold no row of scores (SCHED-4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from onnx import TensorProto

from compiler.compile import Compilation, compile_model, plan_model
from compiler.frontend.patterns import RecognisePatterns
from compiler.frontend.source import ModelSource
from compiler.fusion.candidate import SegmentCompilers
from compiler.ir.graph import Graph
from compiler.ir.verify import verify_graph
from compiler.ops import FUSED_ATTENTION
from compiler.options import parse_options
from compiler.partition.attention import FuseAttention
from compiler.profile import Profile, builtin_profile
from compiler.profile.load import profile_from_values
from compiler.simulator.run import run_executable
from tests.compiler.planning import BY_RULES
from tests.compiler.program.lowered import chip
from tests.models import Model
from tests.profiles import profile_values

# What is done with scores, or with weights.
Change = Callable[[Model, str], str]


def attention(
    rows: int,
    keys: int,
    *,
    width: int = 16,
    columns: int = 16,
    batch: tuple[int, ...] = (2, 3),
    of_keys: tuple[int, ...] | None = None,
    scores: Change | None = None,
    weights: Change | None = None,
) -> Model:
    """Softmax of the scores of queries and keys, times values; with what a test does in between."""
    model = Model(opset=18)
    of_keys = batch if of_keys is None else of_keys
    shapes = ((*batch, rows, width), (*of_keys, width, keys), (*of_keys, keys, columns))
    query, key, value = (model.input(shape, name) for shape, name in zip(shapes, "qkv", strict=True))
    x = model.node("Div", [model.node("MatMul", [query, key]), model.constant(4.0, dtype="float32")])
    x = model.node("Softmax", [x if scores is None else scores(model, x)], axis=-1, name="softmax")
    model.output(model.node("MatMul", [x if weights is None else weights(model, x), value]))
    return model


def fused(model: Model, profile: Profile) -> Graph:
    """The graph after the pass, verified."""
    source = ModelSource.from_bytes(model.data())
    graph = RecognisePatterns(source=source).run(model.graph())
    candidates = SegmentCompilers(profile, parse_options({})).of
    found = FuseAttention(source=source, candidates=candidates).run(graph)
    verify_graph(found)
    return found


def compiled(model: Model, profile: Profile, **options: Any) -> Compilation:
    """A compilation, whose program was run and compared with ONNX Runtime."""
    found = compile_model(model.data(), profile, parse_options(options))
    assert found.report.values_checked
    assert all(output.holds for output in found.report.values.outputs)
    assert not [node for segment in found.plan.segments for node in segment.host]
    return found


def parts(found: Compilation) -> list[int]:
    """In how many parts each attention takes its keys."""
    groups = [group for segment in found.plan.segments for group in segment.groups]
    return [g.tiling.input_slices for g in groups if any(op.kind == FUSED_ATTENTION for op in g.ops)]


def added(shape: tuple[int, ...], *, constant: bool = False) -> Change:
    """A mask that is added: an input, or a constant that hides a key from every row, and one row's keys."""

    def change(model: Model, scores: str) -> str:
        if not constant:
            return model.node("Add", [scores, model.input(shape, "mask")])
        values = np.where(model.random.random(shape) < 0.3, -np.inf, 0).astype(np.float32)
        values[..., 0] = 0
        if len(shape) > 1:
            values[..., 5, :] = np.finfo(np.float32).min
        return model.node("Add", [model.constant(values), scores])

    return change


def chosen(shape: tuple[int, ...], *, other_way: bool = False) -> Change:
    """A mask that chooses: a score, or a number far below all scores."""

    def change(model: Model, scores: str) -> str:
        mask = model.node("Greater", [model.input(shape, "mask"), model.constant(0.5, dtype="float32")])
        least = model.constant(-1e4, dtype="float32")
        return model.node("Where", [mask, least, scores] if other_way else [mask, scores, least])

    return change


def capped(model: Model, scores: str) -> str:
    """A soft cap, and a lower bound."""
    fifty = model.constant(50.0, dtype="float32")
    x = model.node("Mul", [model.node("Tanh", [model.node("Div", [scores, fifty])]), fifty])
    return model.node("Max", [x, model.constant(-40.0, dtype="float32")])


def without_nan(model: Model, weights: str) -> str:
    """NaN becomes 0, as newer exporters write it."""
    return model.node("Where", [model.node("IsNaN", [weights]), model.constant(0.0, dtype="float32"), weights])


def by_row(model: Model, weights: str) -> str:
    """Weights of rows that a mask leaves out become 0."""
    rows = model.node("Greater", [model.input([model_rows(model), 1], "rows"), model.constant(0.2, dtype="float32")])
    return model.node("Where", [rows, weights, model.constant(0.0, dtype="float32")])


def model_rows(model: Model) -> int:
    """The rows of a model's queries."""
    return int(model.inputs[0].type.tensor_type.shape.dim[-2].dim_value)


CHIPS = {
    "cores": chip(cores=4, nram=9_000),
    "one core": chip(nram=7_000),
    "clusters": chip(clusters=2, cores=2, sram=40_000, nram=9_000, bus=True),
}
CASES: dict[str, Callable[[], Model]] = {
    "plain": lambda: attention(24, 200),
    "a prime number of keys": lambda: attention(11, 211),
    "one row": lambda: attention(1, 300),
    "one head, no batch": lambda: attention(40, 150, batch=()),
    "heads share keys": lambda: attention(12, 160, batch=(2, 3), of_keys=(2, 1)),
    "other widths": lambda: attention(20, 170, width=24, columns=9),
    "a mask of every row": lambda: attention(24, 200, scores=added((24, 200))),
    "a mask of keys": lambda: attention(24, 200, scores=added((2, 1, 1, 200))),
    "a mask of rows": lambda: attention(24, 200, scores=added((24, 1))),
    "a mask of the model": lambda: attention(24, 200, scores=added((1, 24, 200), constant=True)),
    "a mask of the model for keys": lambda: attention(24, 200, scores=added((200,), constant=True)),
    "chosen": lambda: attention(24, 200, scores=chosen((24, 200))),
    "chosen the other way": lambda: attention(24, 200, scores=chosen((2, 1, 24, 200), other_way=True)),
    "capped": lambda: attention(24, 200, scores=capped),
    "without NaN": lambda: attention(24, 200, scores=added((24, 200), constant=True), weights=without_nan),
    "by row": lambda: attention(24, 200, weights=by_row),
}


# Nothing but channels could be shared out over the cores; and three groups cost less than one op.
APART = [("one head, no batch", "clusters"), ("other widths", "clusters")]


@pytest.mark.matrix(first=3, rest=6)
@pytest.mark.parametrize("name", CHIPS)
@pytest.mark.parametrize("case", CASES)
def test_keys_come_part_by_part_and_values_hold(case: str, name: str) -> None:
    """No core holds the keys and values of a head, nor the scores of more than a few rows."""
    found = parts(compiled(CASES[case](), CHIPS[name]))
    assert not found if (case, name) in APART else max(found) > 1


def tanh_of_weights(model: Model, weights: str) -> str:
    """What is no part of attention."""
    return model.node("Tanh", [weights])


def seen_otherwise(model: Model, scores: str) -> str:
    """A mask over other axes than those of the products."""
    x = model.node("Reshape", [scores, model.ints(6, 24, 200)])
    return model.node("Reshape", [model.node("Add", [x, model.input([6, 24, 200], "mask")]), model.ints(2, 3, 24, 200)])


def whole_scores(model: Model, scores: str) -> str:
    """Scores without what is behind the point, and back."""
    return model.node("Cast", [model.node("Cast", [scores], to=TensorProto.INT32)], to=TensorProto.FLOAT)


def whole_weights(model: Model, weights: str) -> str:
    """The weight that is not 0."""
    return model.node("Cast", [model.node("Cast", [weights], to=TensorProto.BOOL)], to=TensorProto.FLOAT)


def twice(model: Model, scores: str) -> str:
    """Scores, and what a step makes of them."""
    return model.node("Add", [model.node("Tanh", [scores]), scores])


@pytest.mark.matrix(first=2, rest=2)
@pytest.mark.parametrize(
    "model",
    [
        attention(24, 200, scores=whole_scores),
        attention(24, 200, weights=whole_weights),
        attention(24, 200, scores=twice),
        attention(24, 200, columns=1),
        attention(24, 200, weights=tanh_of_weights),
        attention(24, 200, scores=seen_otherwise),
        attention(24, 200, scores=lambda model, x: model.output(x)),
    ],
)
def test_what_the_op_has_no_step_for_stays_as_it_is(model: Model) -> None:
    assert not parts(compiled(model, chip(cores=4, nram=9_000)))


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_attention_in_another_precision_is_planned_as_it_is(precision: str) -> None:
    model = attention(1_024, 1_024, width=64)
    plan = plan_model(model.data(), builtin_profile("edge4"), parse_options({"precision": precision})).plan
    assert FUSED_ATTENTION in [op.kind for s in plan.segments for group in s.groups for op in group.ops]


def test_where_its_ops_cost_less_in_groups_they_stay() -> None:
    """Values as wide as there are keys: tiles of few rows would bring keys and values again and again."""
    wide = attention(512, 512, width=64, columns=512, batch=(4,))
    assert FUSED_ATTENTION not in [op.kind for op in fused(wide, builtin_profile("edge4")).ops]


def test_where_its_ops_cost_the_same_as_one_group_they_stay() -> None:
    small = attention(16, 16)
    assert FUSED_ATTENTION not in [op.kind for op in fused(small, builtin_profile("cluster4x4")).ops]


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("profile", ["cluster4x4", "edge4"])
def test_bytes_are_keys_and_values_once_for_each_block_of_rows(profile: str) -> None:
    """At 2,048 keys: 17 and 42 times the floor where scores pass the DRAM."""
    found = compiled(attention(2_048, 2_048, width=64, columns=64, batch=(2,)), builtin_profile(profile))
    (group,) = [group for segment in found.plan.segments for group in segment.groups]
    blocks = -(-2_048 // dict(zip(group.tiling.axes, group.tiling.tile, strict=True))["H"])
    assert found.plan.totals.dram_bytes <= 2 * (2 + 2 * blocks) * 2_048 * 64 * 4
    assert found.plan.totals.dram_bytes < 10 * found.plan.totals.dram_bytes_floor


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16])
def test_values_of_sixteen_bits(dtype: int) -> None:
    model = Model(opset=18)
    shapes = ((2, 24, 16), (2, 16, 200), (2, 200, 16))
    query, key, value = (model.input(shape, name, dtype) for shape, name in zip(shapes, "qkv", strict=True))
    x = model.node("Mul", [model.node("MatMul", [query, key]), model.constant(0.25, dtype="float16")])
    model.output(model.node("MatMul", [model.node("Softmax", [x], axis=-1), value]), dtype)
    assert max(parts(compiled(model, chip(cores=4, nram=5_000)))) > 1


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("name", ["cluster4x4", "edge4"])
def test_values_in_bfloat16_are_those_of_exact_attention_within_its_precision(name: str) -> None:
    """Beside exact sums: ONNX Runtime has no product of bfloat16, and the reference evaluator rounds every sum."""
    values = profile_values(name)
    values["matrix"]["arrays"]["bfloat16"] = values["matrix"]["arrays"]["float16"]
    values["matrix"]["pj_per_mac"]["bfloat16"] = values["matrix"]["pj_per_mac"]["float16"]
    model, rows, width = Model(opset=18), 2_048, 32
    shapes = ((rows, width), (width, rows), (rows, width))
    query, key, value = (model.input(shape, at, TensorProto.BFLOAT16) for shape, at in zip(shapes, "qkv", strict=True))
    x = model.node("Softmax", [model.node("MatMul", [query, key])], axis=-1)
    model.output(model.node("MatMul", [x, value]), TensorProto.BFLOAT16)
    profile = profile_from_values(values)
    assert (FUSED_ATTENTION in [op.kind for op in fused(model, profile).ops]) == (name == "edge4")
    executable = compile_model(model.data(), profile, BY_RULES).executable
    assert executable is not None
    random = np.random.default_rng(0)
    given = {at: (random.standard_normal(shape) / 2).astype(bfloat16) for shape, at in zip(shapes, "qkv", strict=True)}
    (found,) = run_executable(executable, given).values()
    q, k, v = (array.astype(np.float64) for array in given.values())
    weights = np.exp(q @ k - (q @ k).max(axis=-1, keepdims=True))
    exact = weights / weights.sum(axis=-1, keepdims=True) @ v
    error = np.asarray(found).astype(np.float64) - exact
    assert np.sqrt((error**2).mean() / (exact**2).mean()) < 2**-6
