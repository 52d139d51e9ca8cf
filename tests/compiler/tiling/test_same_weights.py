"""Equal ops of a group that read the same weights read them once (TILE-6)."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from compiler.compile import compile_model, plan_model
from compiler.options import Options, parse_options
from compiler.profile import builtin_profile
from compiler.profile.schema import Profile
from compiler.report.explain import explain
from compiler.report.plan import Plan, PlanOp
from tests.models import Model
from tests.profiles import small_profile

ONE_GROUP = Options(fusion="search", objective="dram_bytes", degraded="error")


def repeated(steps: int = 4, width: int = 32, rows: int = 2) -> Model:
    """A product with one matrix and a Tanh, several times."""
    model = Model()
    x, weight = model.input([rows, width]), model.weight(width, width)
    for _ in range(steps):
        x = model.node("Tanh", [model.node("MatMul", [x, weight])])
    model.output(x)
    return model


def two_layers(first: int, second: int, model: Model | None = None) -> Model:
    """Two products one after another, by the matrices of these numbers."""
    model = model or Model()
    weights = [model.weight(16, 16) for _ in range(2)]
    x = model.node("Tanh", [model.node("MatMul", [model.input([4, 16]), weights[first]])])
    model.output(model.node("MatMul", [x, weights[second]]))
    return model


def with_weights(plan: Plan) -> list[PlanOp]:
    """The ops with weights, of a plan of one group."""
    (segment,) = plan.segments
    (group,) = segment.groups
    return [op for op in group.ops if op.weight_bytes]


@pytest.mark.parametrize("chip", ["edge4", "cluster4x4"])
def test_steps_with_one_matrix_read_it_once(chip: str) -> None:
    compilation = compile_model(repeated().data(), builtin_profile(chip), ONE_GROUP)
    plan, report = compilation.plan, compilation.report
    assert [op.weight_loads for op in with_weights(plan)] == [1, 0, 0, 0]
    assert {op.weight_mode for op in with_weights(plan)} == {"resident"}
    assert plan.totals.dram_bytes == plan.totals.dram_bytes_floor
    # the program moves what the plan says
    assert [program.dram_ratio for program in report.programs] == [1.0]
    assert report.values_checked
    assert all(output.holds for output in report.values.outputs)


def test_the_explanation_says_who_reads_them() -> None:
    plan = plan_model(repeated(2).data(), builtin_profile("edge4"), ONE_GROUP).plan
    text = explain(plan, plan.segments[0].groups[0].id)
    assert text.count("resident, read once, kept in the cores") == 1
    assert text.count("resident, read with an earlier op of the group, kept in the cores") == 1


def test_equal_shapes_are_not_equal_weights() -> None:
    chip = builtin_profile("cluster4x4")
    loads = [
        [op.weight_loads for op in with_weights(plan_model(two_layers(0, second).data(), chip, ONE_GROUP).plan)]
        for second in (0, 1)
    ]
    assert loads == [[1, 0], [1, 1]]


def test_the_same_weights_read_otherwise_come_for_each() -> None:
    """Of a matrix and the same one turned over each op has its own channels."""
    model = Model()
    weight = model.weight(32, 32)
    x = model.node("Tanh", [model.node("Gemm", [model.input([2, 32]), weight])])
    model.output(model.node("Gemm", [x, weight], transB=1))
    plan = plan_model(model.data(), builtin_profile("edge4"), ONE_GROUP).plan
    assert [op.weight_loads for op in with_weights(plan)] == [1, 1]


def test_a_pinned_plan_is_that_plan() -> None:
    chip, data = builtin_profile("cluster4x4"), repeated().data()
    plan = plan_model(data, chip, ONE_GROUP).plan
    pinned = parse_options({"fusion": "search", "schedule": msgspec.to_builtins(plan)})
    again = plan_model(data, chip, replace(pinned, objective="dram_bytes")).plan
    assert with_weights(again) == with_weights(plan)
    assert again.totals == plan.totals


def chip_with_room_for(matrices: int, width: int) -> Profile:
    return small_profile(nram_bytes=4096, wram_bytes=matrices * width * width * 4 + 64, cores=1)


@pytest.mark.parametrize("matrices", [2, 3])
def test_room_for_each_matrix_once_is_enough(matrices: int) -> None:
    """Two matrices in turn, with room for both; before, four would have needed room for four."""
    model = Model()
    width = 16
    x, both = model.input([4, width]), [model.weight(width, width) for _ in range(2)]
    for step in range(4):
        x = model.node("Tanh", [model.node("MatMul", [x, both[step % 2]])])
    model.output(x)
    compilation = compile_model(model.data(), chip_with_room_for(matrices, width), ONE_GROUP)
    assert [op.weight_loads for op in with_weights(compilation.plan)] == [1, 1, 0, 0]
    assert all(output.holds for output in compilation.report.values.outputs)


def test_steps_need_different_channels() -> None:
    """The last step needs half of the channels only, and cores share channels out: values and bytes are right."""
    model = Model()
    x, weight = model.input([1, 32]), model.weight(32, 32)
    for _ in range(2):
        x = model.node("Tanh", [model.node("MatMul", [x, weight])])
    half = model.nodes_out("Split", [model.node("MatMul", [x, weight])], ["first", "second"], axis=1)[0]
    model.output(model.relu(half))
    for chip in ("edge4", "cluster4x4"):
        for objective in ("latency", "dram_bytes"):
            options = replace(ONE_GROUP, objective=objective)
            report = compile_model(model.data(), builtin_profile(chip), options).report
            assert all(output.holds for output in report.values.outputs)
            # of the last step's weights, which the plan counts whole, those of half the channels come
            assert all(program.dram_ratio <= 1 for program in report.programs)


def two_parts() -> Model:
    """One matrix read twice: of one product half of the channels is needed, of the other all."""
    model = Model()
    x, y, weight = model.input([4, 32]), model.input([4, 32]), model.weight(32, 32)
    half = model.node("Slice", [model.node("MatMul", [x, weight]), model.ints(0), model.ints(16), model.ints(1)])
    both = model.node("MatMul", [y, weight])
    model.output(model.node("Concat", [model.node("Tanh", [half]), model.node("Tanh", [both])], axis=1))
    return model


def test_parts_that_differ_are_read_once_by_cores_that_hold_all() -> None:
    plan = plan_model(two_parts().data(), builtin_profile("edge4"), ONE_GROUP).plan
    assert [op.weight_loads for op in with_weights(plan)] == [1, 0]
    assert plan.totals.dram_bytes == plan.totals.dram_bytes_floor
    assert plan.gap.above_floor_bytes == 0


def test_what_is_read_once_more_is_told_to_the_byte() -> None:
    """Each core needs other channels of the two products: weights are read twice, and half of one read is unused."""
    plan = plan_model(two_parts().data(), builtin_profile("cluster4x4"), ONE_GROUP).plan
    assert [op.weight_loads for op in with_weights(plan)] == [1, 1]
    assert {entry.kind: entry.read_bytes for entry in plan.gap.entries} == {"shared": 2048, "unneeded": 2048}


def test_groups_that_differ_in_what_is_shared_differ_in_price() -> None:
    """Equal blocks are priced once: which weights are the same is part of what makes blocks equal."""
    model = two_layers(0, 1, two_layers(0, 0))
    plan = plan_model(model.data(), builtin_profile("edge4"), ONE_GROUP).plan
    groups = [group for segment in plan.segments for group in segment.groups]
    loads = {tuple(op.weight_loads for op in group.ops if op.weight_bytes): group.dram_bytes for group in groups}
    assert loads[1, 1] - loads[1, 0] == 16 * 16 * 4
