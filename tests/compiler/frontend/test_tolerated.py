"""Files that ONNX's checker objects to and ONNX Runtime runs: they compile, to the same values (IMPORT-7)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from compiler.compile import compile_model
from compiler.errors import LimitError, ModelError
from compiler.profile import builtin_profile
from compiler.simulator.run import run_executable
from tests.compiler.frontend.test_validate import refused
from tests.compiler.planning import BY_RULES
from tests.models import Model

X: Final = np.arange(12, dtype=np.float32).reshape(3, 4)
_LARGE: Final = 500


def added(edit: Callable[[Model], object], *, extents: tuple[int, ...] = (3, 4), opset: int = 17) -> onnx.ModelProto:
    """Input `x` plus a value `w` that `edit` makes, and a Softmax, which means another thing before opset 13."""
    model = Model(opset=opset)
    x = model.input(extents, "x")
    edit(model)
    model.output(model.node("Softmax", [model.node("Add", [x, "w"])], axis=0), TensorProto.FLOAT)
    return model.proto()


def imported(*versions: tuple[str, int]) -> onnx.ModelProto:
    proto = added(lambda model: model.constant(np.float32(1), "w"))
    del proto.opset_import[:]
    proto.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in versions)
    return proto


def twice(first: TensorProto, second: TensorProto) -> onnx.ModelProto:
    extents = tuple(first.dims)
    return added(lambda model: model.initializers.extend((first, second)), extents=extents)


def tensor(value: float, count: int, *, raw: bool = True, more: float | None = None) -> TensorProto:
    """A tensor `w` of one value, in its raw data or in its float data; `more` fills the float data beside raw data."""
    values = np.full(count, value, np.float32)
    made = numpy_helper.from_array(values, "w") if raw else helper.make_tensor("w", TensorProto.FLOAT, [count], values)
    if more is not None:
        made.float_data.extend([more] * count)
    return made


def constant(**values: Any) -> onnx.ModelProto:
    def edit(model: Model) -> None:
        model.node("Constant", [], out="v", **values)
        model.node("Cast", ["v"], out="w", to=TensorProto.FLOAT)

    return added(edit)


def sparse(*places: int, form: tuple[int, ...] = (), kind: int = TensorProto.INT64) -> SparseTensorProto:
    """A matrix of 3 by 4 with 1, 2, ... at places."""
    count = len(places) if not form else form[0]
    return SparseTensorProto(
        dims=[3, 4],
        values=helper.make_tensor("w", TensorProto.FLOAT, [count], np.arange(1, count + 1, dtype=np.float32)),
        indices=helper.make_tensor("", kind, form or [count], places),
    )


def stored(matrix: SparseTensorProto, place: str) -> onnx.ModelProto:
    """A sparse matrix as an initializer, the value of a node, or an initializer of a branch, taken or not known."""
    if place == "initializer":
        proto = added(lambda _: None)
        proto.graph.sparse_initializer.append(matrix)
        return proto
    if place == "constant":
        return added(lambda model: model.node("Constant", [], out="w", sparse_value=matrix))
    body = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["t"])], "branch", [], [helper.make_tensor_value_info("t", 1, [3, 4])]
    )
    body.sparse_initializer.append(matrix)

    def edit(model: Model) -> None:
        most = model.node("ReduceMax", ["x"], keepdims=0)
        condition = model.constant(True) if place == "taken" else model.node("Cast", [most], to=TensorProto.BOOL)
        model.node("If", [condition], out="w", then_branch=body, else_branch=body)

    return added(edit)


@pytest.mark.parametrize(
    "proto",
    [
        imported(("", 11), ("", 13)),
        imported(("", 13), ("", 11)),
        imported(("", 13), ("ai.onnx", 11)),
        imported(("ai.onnx", 11), ("", 13), ("own", 2), ("own", 1)),
        twice(tensor(1, 4), tensor(2, 4)),
        twice(tensor(2, 4, raw=False), tensor(1, 4)),
        twice(tensor(1, _LARGE), tensor(2, _LARGE, raw=False)),
        twice(tensor(1, _LARGE, raw=False), tensor(2, _LARGE)),
        constant(value_int=7, value_float=1.0),
        constant(value_float=1.0, value_int=7),
        added(lambda model: model.initializers.append(tensor(1, 4, more=5))),
        added(lambda model: model.initializers.append(tensor(1, _LARGE, more=5)), extents=(2, _LARGE)),
        added(lambda model: model.node("Constant", [], out="w", value=tensor(1, 4, more=5))),
        *(stored(sparse(3, 0, 3, 11), place) for place in ("initializer", "constant")),
        *(stored(sparse(0, 3, 11), place) for place in ("taken", "open")),
        stored(sparse(0, 3, 2, 1, form=(2, 2)), "initializer"),
        stored(sparse(11, kind=TensorProto.INT8), "initializer"),
        stored(sparse(), "initializer"),
    ],
)
def test_a_file_means_what_onnx_runtime_reads(proto: onnx.ModelProto) -> None:
    """Of two versions or initializers the last, of two values of a constant the first, of two fields the bytes."""
    data = proto.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    x = np.resize(X, [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim])
    (expected,) = session.run(None, {"x": x})
    compilation = compile_model(data, builtin_profile("edge4"), BY_RULES)
    assert compilation.report.values.checked
    assert compilation.executable is not None
    (found,) = run_executable(compilation.executable, {"x": x}).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("matrix", "code"),
    [
        (sparse(12), "invalid_tensor"),
        (sparse(-1), "invalid_tensor"),
        (sparse(0, 4, form=(1, 2)), "invalid_tensor"),
        (sparse(1, 2, 3, form=(1, 3)), "invalid_tensor"),
        (SparseTensorProto(dims=[2**32], values=sparse(1).values, indices=sparse(1).indices), "tensor_too_large"),
        (SparseTensorProto(dims=[-3, -4], values=sparse(1).values, indices=sparse(1).indices), "invalid_shape"),
    ],
)
@pytest.mark.parametrize("place", ["initializer", "constant"])
def test_a_sparse_tensor_that_does_not_fit_is_refused(matrix: SparseTensorProto, code: str, place: str) -> None:
    """IMPORT-4: places outside, too few of them, and more than the compiler makes whole."""
    with pytest.raises((ModelError, LimitError)) as caught:
        compile_model(stored(matrix, place).SerializeToString(), builtin_profile("edge4"), BY_RULES)
    assert caught.value.code == code


@pytest.mark.parametrize("place", ["initializer", "constant", "taken"])
@pytest.mark.parametrize("part", ["values", "indices"])
def test_a_sparse_tensor_opens_no_file(place: str, part: str) -> None:
    """IMPORT-4: neither at import nor, in the value check, on ONNX Runtime."""
    matrix = sparse(1)
    found = getattr(matrix, part)
    found.data_location = TensorProto.EXTERNAL
    found.external_data.append(onnx.StringStringEntryProto(key="location", value="w.bin"))
    assert refused(stored(matrix, place)).code == "external_data"


@pytest.mark.parametrize("place", ["attribute", "branch"])
def test_onnx_runtime_opens_no_file_to_judge_or_run_a_node(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IMPORT-4: a file of that name lies in the working directory, and the model did not bring one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.bin").write_bytes(np.float32(7).tobytes())
    value = TensorProto(data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    value.external_data.append(onnx.StringStringEntryProto(key="location", value="w.bin"))
    model = Model()
    x = model.input([4], "x")
    if place == "attribute":
        model.output(model.node("Add", [x, model.node("ConstantOfShape", [model.ints(4)], value=value)]))
    else:
        nodes = [helper.make_node("Constant", [], ["w"], value=value), helper.make_node("Add", ["x", "w"], ["t"])]
        body = helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info("t", TensorProto.FLOAT, [4])])
        condition = model.input([], dtype=TensorProto.BOOL)
        model.output(model.node("If", [condition], then_branch=body, else_branch=body))
    with pytest.raises(ModelError) as caught:
        compile_model(model.data(), builtin_profile("edge4"), BY_RULES)
    assert caught.value.code == "external_data"
