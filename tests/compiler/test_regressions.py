"""What reviews found once: it stays mended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.compile import compile_model, plan_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.profile.load import profile_from_values
from tests.models import Model
from tests.profiles import profile_values

# plans are chosen by simulation, in samples too
pytestmark = pytest.mark.chosen

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def model(nodes: list[onnx.NodeProto], shape: list[int], output: str, weights: dict[str, np.ndarray]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "regression",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(proto.SerializeToString())


@pytest.mark.matrix(first=1, rest=2)
@pytest.mark.parametrize("profile", ["cluster4x4", "edge4"])
@pytest.mark.parametrize("name", ["bvlc_alexnet", "squeezenet"])
def test_without_recomputed_halos_the_groups_do_the_work_of_the_model_once(name: str, profile: str) -> None:
    data = (LIGHT / f"light_{name}.onnx").read_bytes()
    found = plan_model(data, builtin_profile(profile), parse_options({"fusion": "none"}))
    assert sum(group.macs for group in found.report.groups) == found.plan.totals.macs


def test_units_that_share_channels_share_the_work_of_a_fused_chain() -> None:
    nodes = [helper.make_node("MatMul", ["x" if i == 0 else f"v{i - 1}", f"w{i}"], [f"v{i}"]) for i in range(3)]
    weights = {f"w{i}": np.ones((1024, 1024), dtype=np.float32) for i in range(3)}
    found = plan_model(model(nodes, [1, 1024], "v2", weights), builtin_profile("cluster4x4"))
    assert sum(group.macs for group in found.report.groups) == found.plan.totals.macs == 3 * 1024 * 1024


def test_a_constant_that_gathers_itself_large_is_not_expanded() -> None:
    """IMPORT-2: the accelerator gathers it at run time; the compiler would have to hold 240 MB."""
    nodes = [
        helper.make_node("Gather", ["data", "indices"], ["big"], axis=0, name="bomb"),
        helper.make_node("ReduceSum", ["big", "axes"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    weights: dict[str, np.ndarray] = {
        "data": np.zeros((1, 20_000), dtype=np.float32),
        "indices": np.zeros(3_000, dtype=np.int64),
        "axes": np.array([1], dtype=np.int64),
    }
    plan = plan_model(model(nodes, [1], "y", weights), builtin_profile("edge4")).plan
    assert plan.folded == ()
    assert [node for segment in plan.segments for node in segment.nodes] == ["bomb", "ReduceSum_1", "Add_2"]


def test_a_group_whose_output_needs_nothing_of_an_inner_op_is_planned() -> None:
    """A strided convolution picks the one element that is padding: of the mean before it no box is needed."""
    network = Model()
    x = network.input([1, 1, 4, 4])
    mean = network.node("ReduceMean", [network.relu(x)], axes=[2, 3], keepdims=1)
    padded = network.node("Pad", [mean, network.ints(0, 0, 0, 1, 0, 0, 1, 0)])
    y = network.relu(network.conv(padded, 1, 1, 1))
    network.output(network.conv(y, 1, 1, 1, stride=2))
    network.output(network.conv(x, 1, 1, 1))
    values = profile_values("edge4")
    values |= {"cores_per_cluster": 1, "clock_hz": 1e9, "static_w": 0.0}
    values["dram"] |= {"bandwidth_bytes_per_s": 1e9, "read_pj_per_byte": 0, "write_pj_per_byte": 0, "startup_ns": 0}
    for level in ("nram", "sram"):
        values[level] = {"capacity_bytes": 2048, "read_pj_per_byte": 1.0, "write_pj_per_byte": 1.0}
    values["engines"] = {"gdma": {"bytes_per_cycle": 16, "startup_ns": 100}, "mvdma": {"bytes_per_cycle": 16}}
    values["matrix"]["arrays"] = {"float32": {"k": 1, "c": 1}}
    values["vector"]["lanes"] = 1
    found = compile_model(network.data(), profile_from_values(values))
    assert [node for s in found.plan.segments for node in s.nodes if "ReduceMean" in node] == ["ReduceMean_1"]


def test_tilings_are_compared_where_nobody_needs_the_rows_of_a_part() -> None:
    """The last slice needs one row, of one of the parts that are joined: pieces of the other had fewer bytes than 0."""
    model = Model()
    x = model.input([1, 4, 12, 11], "x")
    parts = [
        model.node("Slice", [x, model.ints(begin), model.ints(end), model.ints(2), model.ints(2)])
        for begin, end in ((10, 11), (3, 10))
    ]
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    large = model.node("Resize", [model.node("Concat", parts, axis=2), "", "", model.ints(1, 4, 10, 11)], **how)
    model.output(model.node("Slice", [large, model.ints(7), model.ints(8), model.ints(2), model.ints(2)]))
    options = parse_options({"objective": "energy", "degraded": "error"})
    assert compile_model(model.data(), builtin_profile("cluster4x4"), options).report.values_checked


@pytest.mark.slow
def test_stationary_weights_of_a_product_whose_channels_a_view_cuts_are_brought_to_the_cores_that_need_them() -> None:
    """A tile of the queries alone needs other channels in a core than a share of queries, keys and values."""
    model = Model()
    product = model.node("MatMul", [model.input([1, 144, 192]), model.weight(192, 1152)], name="product")
    heads = model.node("Reshape", [product, model.ints(1, 144, 3, 8, 48)], name="heads")
    model.output(model.node("Transpose", [heads], name="apart", perm=[2, 0, 3, 1, 4]))
    # pinned as the search finds it, so that no rivals are simulated
    schedule = {"groups": [{"nodes": ["product", "heads", "apart"]}]}
    options = parse_options({"objective": "dram_bytes", "schedule": schedule})
    compilation = compile_model(model.data(), builtin_profile("manycore2x64"), options)
    (group,) = (group for segment in compilation.plan.segments for group in segment.groups)
    assert group.placement.spread == "channels"
    assert group.tiling.tiles > 1
    assert all(output.holds for output in compilation.report.values.outputs)
