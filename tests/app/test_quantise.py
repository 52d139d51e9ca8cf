"""IMPORT-9, UI-1: `tessera quantise` makes int8 models with ONNX Runtime's quantiser and says what they lost."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner, Result

from app.cli.main import cli
from app.cli.quantiser.accuracy import Accuracy
from app.cli.quantiser.op_counts import op_counts
from app.cli.quantiser.samples import Samples, samples_of
from app.simulations.arrays import write_arrays
from compiler.errors import RequestError
from tests.models import Model

RANDOM = np.random.default_rng(28)


def tessera(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def report(*words: str) -> dict[str, Any]:
    answer = tessera("quantise", *words, "--json")
    assert answer.exit_code == 0, answer.output
    return dict(json.loads(answer.stdout))


def problem(*words: str, exit_code: int = 3) -> dict[str, Any]:
    """The problem that `quantise` ends with."""
    answer = tessera("quantise", *words, "--json")
    assert (answer.exit_code, answer.stdout) == (exit_code, ""), answer.output
    return dict(json.loads(answer.stderr))


def classifier(*, batch: int | str = "batch", opset: int = 17) -> Model:
    """Convolution, Relu, pooling and a product to ten class scores."""
    model = Model(opset=opset)
    x = model.input([batch, 3, 16, 16], "x")
    y = model.pool(model.relu(model.conv(x, 3, 8, bias=True, name="first"), "relu"), name="pool")
    y = model.node("Flatten", [y], name="flatten")
    model.output(model.node("Gemm", [y, model.weight(512, 10)], name="scores", out="y"))
    return model


def images(*leading: int) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal((*leading, 3, 16, 16)).astype(np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a float model and four samples; temporary files lie in a folder of their own, which stays empty."""
    monkeypatch.chdir(tmp_path)
    Path("temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    Path("m.onnx").write_bytes(classifier().data())
    np.savez("in.npz", x=images(4, 2))
    return tmp_path


def values(model: str, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A model's output on ONNX Runtime, op by op."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0], dtype=np.float64)


def test_a_float_model_becomes_an_int8_one_that_is_close_and_errors_are_those_of_its_outputs() -> None:
    found = report("m.onnx", "--data", "in.npz", "--out", "q.onnx")
    model = onnx.load("q.onnx")
    onnx.checker.check_model(model)
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    weights = [
        node.input for node in model.graph.node if node.op_type == "DequantizeLinear" and node.input[0] in stored
    ]
    int8 = [names for names in weights if stored[names[0]].data_type == TensorProto.INT8]
    assert [tuple(stored[names[1]].dims) for names in int8] == [(8,), (10,)]  # a scale per output channel
    x = np.load("in.npz")["x"]
    expected, quantised = (np.stack([values(name, sample) for sample in x]) for name in ("m.onnx", "q.onnx"))
    (output,) = found["outputs"]
    errors = np.abs(expected - quantised)
    assert output["max_error"] == pytest.approx(errors.max())
    assert output["mean_error"] == pytest.approx(errors.mean())
    assert output["snr_db"] == pytest.approx(10 * np.log10((expected**2).sum() / (errors**2).sum()))
    assert output["snr_db"] > 30
    assert output["same_class_share"] == (expected.argmax(-1) == quantised.argmax(-1)).mean()
    assert (found["samples"], found["activations"]) == (4, "int8")
    assert found["float_bytes"] == Path("m.onnx").stat().st_size
    assert found["quantised_bytes"] == Path("q.onnx").stat().st_size < found["float_bytes"]
    counts = {op["op_type"]: (op["quantised"], op["in_float"]) for op in found["ops"]}
    assert counts == {kind: (1, []) for kind in ("Conv", "MaxPool", "Flatten", "Gemm")}


def test_the_quantised_model_compiles_and_its_outputs_are_those_of_onnx_runtime() -> None:
    answer = tessera("quantise", "m.onnx", "--data", "in.npz", "-o", "q.onnx")
    assert answer.exit_code == 0, answer.output
    assert "Wrote q.onnx" in answer.stdout
    answer = tessera("compile", "q.onnx", "-p", "edge4", "--set", "dims.batch=2")
    assert answer.exit_code == 0, answer.output
    assert "Verified     1 output compared with ONNX Runtime" in answer.stdout


def test_equal_files_give_equal_bytes_and_nothing_stays_in_the_temporary_folder(folder: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        report("m.onnx", "--data", "in.npz", "--out", name)
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()
    problem("m.onnx", "--data", "in.npz", "--ops", "LSTM", "--out", "c.onnx")
    assert list((folder / "temporary").iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) == ["a.onnx", "b.onnx", "in.npz", "m.onnx", "temporary"]


def test_without_an_output_file_only_the_table_is_shown(folder: Path) -> None:
    answer = tessera("quantise", "m.onnx", "--data", "in.npz")
    assert answer.exit_code == 0, answer.output
    lines = answer.stdout.splitlines()
    assert lines[0] == "m.onnx quantised on 4 samples"
    assert lines[2].split() == ["output", "type", "max", "error", "mean", "error", "SNR", "same", "class"]
    assert any(line.split() == ["Conv", "1", "0"] for line in lines)
    assert sorted(path.name for path in folder.iterdir()) == ["in.npz", "m.onnx", "temporary"]


def test_activations_can_be_unsigned_and_op_types_chosen() -> None:
    found = report("m.onnx", "--data", "in.npz", "--activations", "uint8", "--ops", "Conv", "--out", "q.onnx")
    model = onnx.load("q.onnx")
    zeros = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    made = {zeros[node.input[2]] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    assert made == {TensorProto.UINT8}
    counts = {op["op_type"]: (op["quantised"], op["in_float"]) for op in found["ops"]}
    assert counts["Conv"] == (1, [])
    assert counts["Gemm"] == (0, ["scores"])
    assert tessera("quantise", "m.onnx", "--data", "in.npz", "--activations", "int4").exit_code == 2


def test_weights_may_lie_in_a_file_beside_the_model() -> None:
    onnx.save_model(
        classifier().proto(), "beside.onnx", save_as_external_data=True, location="weights", size_threshold=0
    )
    found = report("beside.onnx", "--data", "in.npz", "--out", "beside-q.onnx")
    inside = report("m.onnx", "--data", "in.npz", "--out", "inside-q.onnx")
    assert Path("beside-q.onnx").read_bytes() == Path("inside-q.onnx").read_bytes()
    assert found["outputs"] == inside["outputs"]
    assert found["float_bytes"] == sum(Path(name).stat().st_size for name in ("beside.onnx", "weights"))


@pytest.mark.parametrize(("opset", "ir_version"), [(11, 6), (28, 14)])
def test_operator_sets_without_scales_per_channel_and_newer_than_onnx_runtime_work(opset: int, ir_version: int) -> None:
    proto = classifier(opset=opset).proto()
    proto.ir_version = ir_version
    onnx.save(proto, "other.onnx")
    report("other.onnx", "--data", "in.npz", "--out", "q.onnx")
    versions = {entry.domain: entry.version for entry in onnx.load("q.onnx").opset_import}
    assert versions[""] == max(13, min(opset, 26))


def test_inputs_with_defaults_become_constants_unless_they_are_given() -> None:
    proto = classifier().proto()
    tensor = next(tensor for tensor in proto.graph.initializer if list(tensor.dims) == [512, 10])
    proto.graph.input.append(helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, [512, 10]))
    onnx.save(proto, "defaults.onnx")
    report("defaults.onnx", "--data", "in.npz", "--out", "q.onnx")
    assert [value.name for value in onnx.load("q.onnx").graph.input] == ["x"]
    with Path("both.npz").open("wb") as file:
        write_arrays(file, {"x": images(4, 2), tensor.name: numpy_helper.to_array(tensor)})
    report("defaults.onnx", "--data", "both.npz", "--out", "q.onnx")
    assert [value.name for value in onnx.load("q.onnx").graph.input] == ["x", tensor.name]


@pytest.mark.parametrize(
    ("arrays", "code", "said"),
    [
        ({}, "missing_input", "float32[batch, 3, 16, 16]"),
        ({"X": images(1)}, "unknown_input", "Did you mean x?"),
        ({"x": images(1).astype(np.float64)}, "wrong_input", "float64[1, 3, 16, 16]"),
        ({"x": images(1)[:, :2]}, "wrong_input", "one more axis in front"),
        ({"x": images(0, 1)}, "wrong_input", "float32[0, 1, 3, 16, 16]"),
        ({"x": np.full((1, 3, 16, 16), np.nan, np.float32)}, "invalid_inputs", "NaN"),
        ({"x": np.full((1, 3, 16, 16), -np.inf, np.float32)}, "invalid_inputs", "infinity"),
    ],
)
def test_arrays_that_are_not_the_models_inputs_are_refused(arrays: dict[str, Any], code: str, said: str) -> None:
    np.savez("in.npz", **arrays)
    found = problem("m.onnx", "--data", "in.npz", "--out", "q.onnx", exit_code=2)
    assert found["code"] == code
    assert said in json.dumps(found)
    assert not Path("q.onnx").exists()


def test_files_in_the_wrong_place_are_named() -> None:
    assert problem("in.npz", "--data", "in.npz", exit_code=2)["code"] == "invalid_request"
    assert problem("m.onnx", "--data", "m.onnx", exit_code=2)["code"] == "invalid_request"
    assert problem("m.onnx", "--data", "none.npz", exit_code=2)["code"] == "no_such_file"
    assert "replace the float model" in problem("m.onnx", "--data", "in.npz", "--out", "m.onnx", exit_code=2)["message"]
    Path("m.onnx").write_bytes(classifier().data()[:-50])
    assert problem("m.onnx", "--data", "in.npz")["stage"] == "import"


def test_a_model_that_is_quantised_or_has_nothing_to_quantise_is_refused() -> None:
    report("m.onnx", "--data", "in.npz", "--out", "q.onnx")
    assert problem("q.onnx", "--data", "in.npz")["code"] == "already_quantised"
    model = Model()
    x = model.input([4], "x", TensorProto.INT64)
    model.output(model.node("Add", [x, x]), TensorProto.INT64)
    Path("integers.onnx").write_bytes(model.data())
    np.savez("in.npz", x=np.arange(4))
    assert problem("integers.onnx", "--data", "in.npz")["code"] == "nothing_to_quantise"


def test_a_model_that_onnx_runtime_cannot_run_on_the_samples_is_refused() -> None:
    model = Model()
    x, index = model.input([4, 8], "x"), model.input([2], "index", TensorProto.INT64)
    model.output(model.node("Gather", [model.node("Relu", [x]), index], name="rows"))
    Path("rows.onnx").write_bytes(model.data())
    np.savez("in.npz", x=RANDOM.standard_normal((3, 4, 8)).astype(np.float32), index=np.array([[0, 1], [2, 3], [3, 4]]))
    found = problem("rows.onnx", "--data", "in.npz")
    assert (found["code"], "float model on sample 2" in found["message"]) == ("not_run", True)


def test_a_quantiser_that_ends_its_process_is_an_error_and_leaves_no_files(folder: Path) -> None:
    model = Model()
    y = model.conv(model.input([1, 3, 16, 16], "x"), 3, 4, name="conv")
    statistics = [model.weight(4), model.weight(4), model.weight(4), model.constant(np.ones(4, np.float32))]
    # ONNX Runtime writes the mean, whose result has no name
    model.nodes_out("BatchNormalization", [y, *statistics], ["y", "", "variance"], name="norm", training_mode=1)
    model.output("y")
    Path("gap.onnx").write_bytes(model.data())
    np.savez("in.npz", x=images(2, 1))
    found = problem("gap.onnx", "--data", "in.npz", "--out", "q.onnx")
    assert (found["code"], "signal" in found["actual"]) == ("not_quantised", True)
    assert list((folder / "temporary").iterdir()) == []
    assert not Path("q.onnx").exists()


def test_modules_of_the_folder_that_the_command_runs_in_are_not_imported() -> None:
    for name in ("app", "onnxruntime", "numpy"):
        Path(name).mkdir()
        (Path(name) / "__init__.py").write_text("raise SystemExit('imported')")
    report("m.onnx", "--data", "in.npz")


def graph_of(*shapes: tuple[str, list[int | str]]) -> onnx.GraphProto:
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes]
    return helper.make_graph([], "inputs", inputs, [])


def cut(graph: onnx.GraphProto, **arrays: np.ndarray[Any, Any]) -> Samples:
    return samples_of(graph, arrays)


def test_an_array_is_one_sample_or_several_by_its_axes() -> None:
    one = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    four = np.arange(24, dtype=np.float32).reshape(4, 1, 2, 3)
    fixed, free = graph_of(("x", [1, 2, 3])), graph_of(("x", ["n", 2, 3]))
    for graph in (fixed, free):
        assert [sample["x"].tolist() for sample in cut(graph, x=one)] == [one.tolist()]
        assert [sample["x"].tolist() for sample in cut(graph, x=four)] == four.tolist()
    assert [sample["x"].tolist() for sample in cut(fixed, x=four[:, 0])] == four.tolist()
    assert [sample["x"].shape for sample in cut(free, x=four[:, 0])] == [(4, 2, 3)]
    with pytest.raises(RequestError):
        cut(graph_of(("x", [2, 2, 3])), x=four[:3, 0])


def test_an_input_with_one_sample_serves_all_samples_of_the_others() -> None:
    graph = graph_of(("x", [2]), ("y", [3]))
    x, y = np.arange(8, dtype=np.float32).reshape(4, 2), np.ones(3, np.float32)
    found = list(cut(graph, x=x, y=y))
    assert [sample["x"].tolist() for sample in found] == x.tolist()
    assert all(sample["y"].tolist() == [1, 1, 1] for sample in found)
    with pytest.raises(RequestError) as caught:
        cut(graph, x=x, y=np.ones((5, 3), np.float32))
    assert (caught.value.code, "x: 4" in str(caught.value.actual)) == ("wrong_input", True)


def test_accuracy_takes_equal_infinities_as_equal_and_a_new_one_as_an_infinite_error() -> None:
    accuracy = Accuracy(name="y")
    row = np.array([1.0, np.inf, np.nan, -2.0], np.float32)
    accuracy.add(row, row.copy())
    assert (accuracy.result().max_error, accuracy.result().equal_share) == (0.0, 1.0)
    accuracy.add(row, np.array([1.0, 1.0, np.nan, -2.5], np.float32))
    assert (accuracy.result().max_error, accuracy.result().snr_db) == (None, None)
    assert accuracy.result().equal_share == 6 / 8


def test_accuracy_compares_integers_by_equality_and_says_what_cannot_be_compared() -> None:
    integers = Accuracy(name="y")
    integers.add(np.array([[1, 2, 3]]), np.array([[1, 2, 5]]))
    found = integers.result()
    assert (found.equal_share, found.max_error, found.snr_db, found.same_class_share) == (2 / 3, 2.0, None, None)
    shapes = Accuracy(name="y")
    shapes.add(np.zeros((2, 3)), np.zeros((3, 3)))
    assert "shape" in str(shapes.result().reason)
    texts = Accuracy(name="y")
    texts.add(np.array(["a"], dtype=object), np.array(["a"], dtype=object))
    assert "no tensor of numbers" in str(texts.result().reason)


def test_a_node_is_quantised_if_integers_go_in_and_come_out() -> None:
    model = Model()
    x = model.input([1, 4], "x")
    scale, zero = model.constant(np.float32(0.1)), model.constant(np.int8(0))

    def through(name: str) -> str:
        made = model.node("QuantizeLinear", [name, scale, zero])
        return model.node("DequantizeLinear", [made, scale, zero])

    weight = model.node("DequantizeLinear", [model.constant(np.ones((4, 4), np.int8)), scale, zero])
    y = through(model.node("Gemm", [through(x), weight, model.weight(4)], name="both"))  # a float bias is no operand
    y = model.node("Relu", [y], name="float result")
    y = through(model.node("Sigmoid", [y], name="float operand"))
    model.output(model.node("MatMul", [y, model.weight(4, 4)], name="float weight"))
    counts = {count.op_type: (count.quantised, count.in_float) for count in op_counts(model.proto().graph)}
    assert counts == {
        "Gemm": (1, ()),
        "Relu": (0, ("float result",)),
        "Sigmoid": (0, ("float operand",)),
        "MatMul": (0, ("float weight",)),
    }
