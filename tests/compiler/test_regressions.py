"""What reviews found once: it stays mended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.compile import compile_model
from compiler.options import parse_options
from compiler.profile import builtin_profile

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


@pytest.mark.parametrize("profile", ["cluster4x4", "edge4"])
@pytest.mark.parametrize("name", ["bvlc_alexnet", "squeezenet"])
def test_without_recomputed_halos_the_groups_do_the_work_of_the_model_once(name: str, profile: str) -> None:
    data = (LIGHT / f"light_{name}.onnx").read_bytes()
    found = compile_model(data, builtin_profile(profile), parse_options({"fusion": "none"}))
    assert sum(group.macs for group in found.report.groups) == found.plan.totals.macs


def test_units_that_share_channels_share_the_work_of_a_fused_chain() -> None:
    nodes = [helper.make_node("MatMul", ["x" if i == 0 else f"v{i - 1}", f"w{i}"], [f"v{i}"]) for i in range(3)]
    weights = {f"w{i}": np.ones((1024, 1024), dtype=np.float32) for i in range(3)}
    found = compile_model(model(nodes, [1, 1024], "v2", weights), builtin_profile("cluster4x4"))
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
    plan = compile_model(model(nodes, [1], "y", weights), builtin_profile("edge4")).plan
    assert plan.folded == ()
    assert [node for segment in plan.segments for node in segment.nodes] == ["bomb", "ReduceSum_1", "Add_2"]
