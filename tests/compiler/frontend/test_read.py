"""Reading: what is no model of a known version is refused with code, actual value and limit (IMPORT-1, IMPORT-4)."""

from __future__ import annotations

import mmap
from pathlib import Path

import onnx
import onnxruntime
import pytest

from compiler.compile import plan_model
from compiler.errors import ModelError
from compiler.frontend.read import UNSAID_OPSET, ReadModel
from compiler.frontend.source import ModelSource
from compiler.profile import builtin_profile
from tests.models import Model, import_graph, light_path


def simple(opset: int = 17, ir_version: int = 8) -> onnx.ModelProto:
    """A Relu."""
    model = Model(opset=opset, ir_version=ir_version)
    model.output(model.relu(model.input([1, 4])))
    return model.proto()


def refused(data: bytes) -> ModelError:
    """The error that a file gives."""
    with pytest.raises(ModelError) as caught:
        ReadModel().run(ModelSource.from_bytes(data))
    return caught.value


def test_an_empty_file_is_refused() -> None:
    error = refused(b"")
    assert (error.code, error.actual) == ("empty_model", "0 bytes")


def test_a_truncated_file_is_refused() -> None:
    data = light_path("squeezenet").read_bytes()
    assert refused(data[: len(data) // 2]).code == "not_onnx"


def test_a_model_without_nodes_and_outputs_is_refused() -> None:
    proto = simple()
    del proto.graph.node[:]
    del proto.graph.output[:]
    error = refused(proto.SerializeToString())
    assert error.code == "empty_graph"
    assert error.actual == "0 nodes"


def test_a_model_without_nodes_whose_output_nothing_makes_is_refused() -> None:
    proto = simple()
    del proto.graph.node[:]
    with pytest.raises(ModelError) as caught:
        import_graph(proto.SerializeToString())
    assert (caught.value.code, caught.value.actual) == ("missing_value", proto.graph.output[0].name)


def test_a_model_whose_output_is_its_input_has_no_ops() -> None:
    """Legal: there is nothing to compute."""
    proto = simple()
    del proto.graph.node[:]
    proto.graph.output[0].name = proto.graph.input[0].name
    graph = import_graph(proto.SerializeToString())
    assert (graph.ops, graph.outputs) == ((), graph.inputs)


def test_a_future_opset_is_refused_with_the_newest_known() -> None:
    newest = onnx.defs.onnx_opset_version()
    error = refused(simple(opset=newest + 1).SerializeToString())
    assert (error.code, error.actual, error.limit) == ("unsupported_opset", newest + 1, f"1 to {newest}")
    assert error.hint is not None
    assert str(newest) in error.hint


def test_a_future_ir_version_is_refused_with_the_newest_known() -> None:
    proto = simple()
    proto.ir_version = onnx.IR_VERSION + 1
    error = refused(proto.SerializeToString())
    assert (error.code, error.actual) == ("unsupported_ir_version", onnx.IR_VERSION + 1)


@pytest.mark.parametrize("opset", [1, 7, 13, 17, onnx.defs.onnx_opset_version()])
def test_every_released_opset_is_read(opset: int) -> None:
    read = ReadModel().run(ModelSource.from_bytes(simple(opset=opset).SerializeToString()))
    assert read.opsets == {"": opset}


@pytest.mark.parametrize("ir_version", [-1, 0, 3, 8, onnx.IR_VERSION])
def test_every_released_ir_version_is_read_and_any_before_them(ir_version: int) -> None:
    data = simple(ir_version=ir_version).SerializeToString()
    assert ReadModel().run(ModelSource.from_bytes(data)).proto.ir_version == ir_version


def test_opsets_of_all_domains_are_kept() -> None:
    proto = simple()
    proto.opset_import.append(onnx.helper.make_opsetid("local", 7))
    assert ReadModel().run(ModelSource.from_bytes(proto.SerializeToString())).opsets == {"": 17, "local": 7}


def test_a_model_that_imports_no_opset_is_refused() -> None:
    """IMPORT-4: as by ONNX Runtime, whatever the IR version is."""
    for ir_version in (2, 8):
        proto = simple(ir_version=ir_version)
        del proto.opset_import[:]
        assert refused(proto.SerializeToString()).code == "missing_opset"


def test_a_domain_imported_twice_in_one_version_is_read() -> None:
    proto = simple()
    proto.opset_import.append(onnx.helper.make_opsetid("ai.onnx", 17))
    assert ReadModel().run(ModelSource.from_bytes(proto.SerializeToString())).opsets == {"": 17}


def test_the_default_opset_that_nothing_imports_is_the_newest_of_onnx_runtime() -> None:
    """IMPORT-4: what ONNX Runtime runs is legal, and Gelu is an op of opset 20."""
    proto = simple()
    del proto.opset_import[:]
    proto.opset_import.append(onnx.helper.make_opsetid("local", 1))
    proto.graph.node[0].op_type = "Gelu"
    opsets = ReadModel().run(ModelSource.from_bytes(proto.SerializeToString())).opsets
    assert opsets == {"": UNSAID_OPSET, "local": 1}
    onnxruntime.InferenceSession(proto.SerializeToString())
    proto.opset_import.append(onnx.helper.make_opsetid("", UNSAID_OPSET))
    onnxruntime.InferenceSession(proto.SerializeToString())
    proto.opset_import[1].version += 1
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail, match=f"till opset {UNSAID_OPSET}"):
        onnxruntime.InferenceSession(proto.SerializeToString())


def test_a_memory_mapped_file_compiles_as_its_bytes_do(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(simple().SerializeToString())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        source = ModelSource.from_buffer(mapped)
        plan = plan_model(source, builtin_profile("edge4")).plan
    assert plan == plan_model(path.read_bytes(), builtin_profile("edge4")).plan


def test_the_source_is_identified_by_the_hash_of_its_bytes() -> None:
    assert ModelSource.from_bytes(b"abc").sha256.startswith("ba7816bf8f01cfea")


def test_the_hash_of_a_source_covers_the_files_beside_it() -> None:
    """IMPORT-1: other weights are another model."""
    plain = ModelSource.from_bytes(b"abc")
    sources = [
        ModelSource.from_buffer(b"abc", files=files)
        for files in ({"w": b"12"}, {"w": b"13"}, {"v": b"12"}, {"w": b"1", "x": b"2"})
    ]
    assert len({source.sha256 for source in [plain, *sources]}) == 5
    assert ModelSource.from_buffer(b"abc", files={"w": b"1", "v": b"2"}).sha256 == (
        ModelSource.from_buffer(b"abc", files={"v": b"2", "w": b"1"}).sha256
    )
