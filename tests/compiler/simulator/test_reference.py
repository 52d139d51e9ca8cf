"""The two judges: the model itself on ONNX Runtime or onnx.reference, and the graph op by op (SIM-1)."""

from __future__ import annotations

import copy
import io
import mmap
import subprocess
import sys
import tempfile
import tracemalloc
import zipfile
from typing import Any
from zlib import crc32

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.errors import RequestError
from compiler.frontend.source import ModelSource
from compiler.simulator.compare import relative_error
from compiler.simulator.inputs import random_inputs
from compiler.simulator.reference import evaluated, reference_of_graph, run_reference
from tests.models import Model, import_graph

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
X = np.array([[-1.0, 2.0, -3.0]], np.float32)


def small(**options: Any) -> Model:
    """y = Relu(x), z = y + y."""
    model = Model(**options)
    y = model.node("Relu", [model.input([1, 3], "x")], out="y")
    model.output(model.node("Add", [y, y], out="z"))
    return model


def source_of(model: Model) -> ModelSource:
    """The model as the compiler takes it."""
    return ModelSource.from_bytes(model.data())


def with_weights() -> tuple[Model, dict[str, Any]]:
    """A model with weights large enough to stay in the file, and its inputs."""
    model = Model(seed=4)
    x = model.conv(model.input([1, 4, 9, 9], "x"), 4, 32, bias=True)
    model.output(model.conv(model.relu(x), 32, 8))
    return model, {"x": np.random.default_rng(0).standard_normal((1, 4, 9, 9)).astype(np.float32)}


def external(model: Model) -> tuple[bytes, bytes]:
    """The model with all initializers as external data, and that data."""
    proto, data = model.proto(), bytearray()
    for tensor in proto.graph.initializer:
        offset = len(data)
        data += tensor.raw_data
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "w.bin"), ("offset", offset), ("length", len(tensor.raw_data))):
            tensor.external_data.add(key=key, value=str(value))
        tensor.ClearField("raw_data")
    return proto.SerializeToString(), bytes(data)


# The original model


def test_outputs_come_by_their_onnx_names_and_other_values_if_they_are_asked_for() -> None:
    found = run_reference(source_of(small()), {"x": X}, wanted=["y", "x"])
    assert found.judge.startswith("ONNX Runtime 1.")
    assert found.reason == ""
    assert {name: value.tolist() for name, value in found.values.items()} == {
        "z": [[0, 4, 0]], "y": [[0, 2, 0]], "x": X.tolist(),
    }  # fmt: skip


def test_a_model_newer_than_onnx_runtime_reads_is_restamped_where_its_operators_are_the_same() -> None:
    """FACTS: onnx 1.23 writes IR 14 and opset 28, ONNX Runtime 1.31 reads 13 and 26."""
    found = run_reference(source_of(small(opset=onnx.defs.onnx_opset_version(), ir_version=onnx.IR_VERSION)), {"x": X})
    assert found.judge.startswith("ONNX Runtime")
    assert found.values["z"].tolist() == [[0, 4, 0]]


def test_a_model_is_not_restamped_where_an_operator_came_to_mean_something_else() -> None:
    """Celu is defined anew in opset 28."""
    model = Model(opset=28, ir_version=10)
    model.output(model.node("Celu", [model.input([1, 3], "x")], out="y"))
    found = run_reference(source_of(model), {"x": X})
    assert found.judge.startswith("onnx.reference")
    assert "ONNX Runtime" in found.reason
    np.testing.assert_allclose(found.values["y"], [[np.expm1(-1), 2, np.expm1(-3)]], rtol=1e-6)


def test_where_onnx_runtime_has_no_kernel_onnx_reference_judges_and_the_reason_is_told() -> None:
    model = Model(opset=22, ir_version=10)
    code = TensorProto.BFLOAT16
    x = model.input([2], "x", FLOAT)
    half = model.node("Cast", [x], to=code)
    model.output(model.node("Cast", [model.node("Add", [half, half])], out="y", to=FLOAT))
    found = run_reference(source_of(model), {"x": np.array([1, 2], np.float32)})
    assert found.judge.startswith("onnx.reference")
    assert "NOT_IMPLEMENTED" in found.reason
    assert found.values["y"].tolist() == [2, 4]


def test_what_neither_can_run_says_so_with_both_reasons_and_has_no_values() -> None:
    model = Model()
    model.output(model.node("Mystery", [model.input([1, 3], "x")], domain="com.example"))
    proto = model.proto()
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    found = run_reference(ModelSource.from_bytes(proto.SerializeToString()), {"x": X})
    assert not found.has_run
    assert dict(found.values) == {}
    assert "ONNX Runtime" in found.reason
    assert "onnx.reference" in found.reason


@pytest.mark.parametrize("beside", ["stored", "deflated", "file"])
def test_external_data_is_read_from_the_upload_and_nowhere_else(beside: str, tmp_path: Any, monkeypatch: Any) -> None:
    """A file of the same name in the working folder is not looked at."""
    model, feeds = with_weights()
    expected = model.run(feeds)[0]
    proto, data = external(model)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.bin").write_bytes(bytes(len(data)))
    if beside == "file":
        source = ModelSource.from_buffer(proto, files={"w.bin": data})
    else:
        packed = io.BytesIO()
        how = zipfile.ZIP_STORED if beside == "stored" else zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(packed, "w", how) as archive:
            archive.writestr("net/model.onnx", proto)
            archive.writestr("net/w.bin", data)
        source = ModelSource.from_bytes(packed.getvalue())
    found = run_reference(source, feeds)
    assert found.reason == ""
    assert next(iter(found.values.values())).tolist() == expected.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["w.bin"]


def test_external_data_of_a_node_and_of_a_branch_is_found_too() -> None:
    values = np.arange(3, dtype=np.float32)

    def tensor(name: str) -> TensorProto:
        entry = TensorProto(name=name, data_type=FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
        entry.external_data.add(key="location", value="w.bin")
        return entry

    branch = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["r"])],
        "branch",
        [],
        [helper.make_tensor_value_info("r", FLOAT, [3])],
        [tensor("w")],
    )
    model = Model()
    flag = model.input([], "c", TensorProto.BOOL)
    chosen = model.node("If", [flag], then_branch=branch, else_branch=branch)
    constant = model.node("Constant", [], value=tensor("k"))
    model.output(model.node("Add", [chosen, constant], out="y"))
    source = ModelSource.from_buffer(model.data(), files={"w.bin": values.tobytes()})
    found = run_reference(source, {"c": np.array(True)})
    assert found.reason == ""
    assert found.values["y"].tolist() == [0, 2, 4]


def test_a_memory_mapped_model_gives_what_its_bytes_give() -> None:
    model, feeds = with_weights()
    with tempfile.TemporaryFile() as file:
        file.write(model.data())
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        found = run_reference(ModelSource.from_buffer(mapped), feeds)
    assert next(iter(found.values.values())).tolist() == model.run(feeds)[0].tolist()


def test_the_other_judge_gets_the_weights_too() -> None:
    """A value that only onnx.reference computes, behind a convolution whose weights stay in the file."""
    model = Model(opset=22, ir_version=10)
    x = model.conv(model.input([1, 4, 9, 9], "x"), 4, 32)
    first = copy.deepcopy(model)
    first.output(x)
    half = model.node("Cast", [x], to=TensorProto.BFLOAT16)
    model.output(model.node("Cast", [model.node("Add", [half, half])], out="y", to=FLOAT))
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 4, 9, 9)).astype(np.float32)}
    found = run_reference(source_of(model), feeds)
    assert found.judge.startswith("onnx.reference")
    before = run_reference(source_of(first), feeds).values[x]
    assert relative_error(found.values["y"], 2 * before) < 0.05


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({}, "input_missing"),
        ({"x": X, "other": X}, "unknown_input"),
        ({"x": X.astype(np.float64)}, "input_type"),
        ({"x": X[:, :2]}, "input_type"),
        ({"x": X[0]}, "input_type"),
    ],
)
def test_inputs_that_are_not_the_models_are_refused(inputs: dict[str, Any], code: str) -> None:
    with pytest.raises(RequestError) as caught:
        run_reference(source_of(small()), inputs)
    assert caught.value.code == code


def test_values_that_the_model_does_not_have_are_refused() -> None:
    with pytest.raises(RequestError, match="'nothing'"):
        run_reference(source_of(small()), {"x": X}, wanted=["nothing"])


def test_inputs_that_the_graph_leaves_out_may_be_zeros() -> None:
    """Only the shape of `like` matters, which import folds: the graph has no such input."""
    model = Model()
    shape = model.node("Shape", [model.input([4], "like")])
    model.output(model.node("Expand", [model.input([1], "x"), shape], out="y"))
    source, graph = source_of(model), model.graph()
    feeds = random_inputs(graph, 1)
    assert set(feeds) == {"x"}
    with pytest.raises(RequestError, match="'like' is missing"):
        run_reference(source, feeds)
    found = run_reference(source, feeds, zeros_for_missing=True)
    assert found.values["y"].tolist() == [float(feeds["x"][0])] * 4


def test_random_nodes_draw_the_same_in_every_run_and_each_its_own() -> None:
    model = Model()
    for name in ("a", "b"):
        model.output(model.node("RandomNormalLike", [model.input([9], f"x{name}")], out=name))
    feeds = {name: np.zeros(9, np.float32) for name in ("xa", "xb")}
    first, second = (run_reference(source_of(model), feeds).values for _ in range(2))
    assert first["a"].tolist() == second["a"].tolist()
    assert first["a"].tolist() != first["b"].tolist()
    # without a seed ONNX Runtime draws anew in every process
    seeded = Model()
    node = seeded.node("RandomNormalLike", [seeded.input([9], "x")], seed=float(crc32(b"a") % 2**20))
    seeded.output(node)
    assert first["a"].tolist() == seeded.run({"x": feeds["xa"]})[0].tolist()


def test_importing_the_judges_starts_no_runtime() -> None:
    """FACTS: a fork after ONNX Runtime's threads have started can deadlock."""
    modules = "from compiler.simulator import compare, host, inputs, reference; from compiler.frontend import runtimes"
    code = f"import sys; {modules}; sys.exit('onnxruntime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# The graph, op by op


def test_the_graph_gives_every_tensor_between_its_ops() -> None:
    model, feeds = with_weights()
    graph, source = import_graph(model.data()), source_of(model)
    made = [op.output for op in graph.ops]
    found = reference_of_graph(graph, source, feeds)
    expected = run_reference(source, feeds, wanted=made).values
    assert list(found) == made
    assert max(relative_error(found[name], expected[name]) for name in made) < 1e-5


def test_of_the_graph_only_what_is_wanted_is_kept_inputs_and_constants_included() -> None:
    model, feeds = with_weights()
    graph, source = import_graph(model.data()), source_of(model)
    weight = graph.ops[0].inputs[1]
    found = reference_of_graph(graph, source, feeds, wanted={graph.outputs[0], "x", weight})
    assert set(found) == {graph.outputs[0], "x", weight}
    assert found[weight].shape == (32, 4, 3, 3)


def test_tensors_are_let_go_when_their_last_reader_has_run() -> None:
    """Of a chain of 30 maps of 4 MB never more than a few are there at once."""
    model = Model()
    x = model.input([1, 16, 256, 256], "x")
    for _ in range(30):
        x = model.relu(x)
    model.output(x)
    graph, source = import_graph(model.data()), source_of(model)
    feeds = random_inputs(graph, 0)
    tracemalloc.start()
    for _, value in evaluated(graph, source, feeds):
        del value
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * 4 * 2**20


def test_a_missing_input_of_the_graph_is_named() -> None:
    model, _ = with_weights()
    with pytest.raises(RequestError, match="'x' is missing"):
        list(evaluated(import_graph(model.data()), source_of(model), {}))


def test_a_weight_that_nothing_reads_does_not_keep_the_model_from_onnx_runtime() -> None:
    """It drops such weights, and then misses the values that it is handed for them."""
    model = small()
    model.weight(64, 64)
    found = run_reference(ModelSource.from_bytes(model.data()), {"x": X})
    assert found.judge.startswith("ONNX Runtime")
    assert found.reason == ""
    assert np.array_equal(found.values["z"], 2 * np.maximum(X, 0))
