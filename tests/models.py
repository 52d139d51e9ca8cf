"""Small ONNX models for tests, built by hand and without names where names do not matter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from compiler.errors import TesseraError
from compiler.frontend.lower import LowerModel
from compiler.frontend.normalise import FoldBatchNorm
from compiler.frontend.read import ReadModel
from compiler.frontend.source import ModelSource
from compiler.frontend.validate import ValidateModel
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.segment_graph import SegmentGraph, mask_of
from compiler.ir.graph import Graph
from compiler.ir.verify import verify_graph
from compiler.ops.op_facts import GraphFacts, graph_facts
from compiler.options import Options
from compiler.partition.partition import PartitionGraph
from compiler.partition.segments import PartitionedGraph, verify_partition
from compiler.profile import builtin_profile
from compiler.profile.schema import Profile

FloatArray = NDArray[np.float32]
Values = NDArray[Any]

LIGHT_NAMES = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)


def light_path(name: str) -> Path:
    """A network of the onnx package."""
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"


def light_source(name: str) -> ModelSource:
    """A network of the onnx package as the compiler takes it."""
    return ModelSource.from_bytes(light_path(name).read_bytes(), name=f"light_{name}")


class Model:
    """A model under construction; methods return the names of the values they make."""

    def __init__(self, *, opset: int = 17, ir_version: int = 8, seed: int = 0, name: str = "test") -> None:
        self.opset = opset
        self.ir_version = ir_version
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.random = np.random.default_rng(seed)
        self._count = 0

    def fresh(self, stem: str) -> str:
        """A name that no other value has."""
        self._count += 1
        return f"{stem}{self._count}"

    def input(self, shape: Sequence[int | str | None], name: str | None = None, dtype: int = TensorProto.FLOAT) -> str:
        """A graph input."""
        name = name or self.fresh("x")
        self.inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def constant(self, values: Any, name: str | None = None, dtype: Any = None) -> str:
        """An initialiser with given values."""
        name = name or self.fresh("k")
        self.initializers.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def ints(self, *values: int) -> str:
        """A list of int64 as an initialiser."""
        return self.constant(np.array(values, dtype=np.int64))

    def weight(self, *shape: int) -> str:
        """An initialiser of random float32 values."""
        return self.constant(self.random.standard_normal(shape).astype(np.float32))

    def node(
        self,
        op_type: str,
        inputs: Sequence[str],
        *,
        name: str | None = None,
        out: str | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> str:
        """A node with one output."""
        output = out or self.fresh("v")
        self.nodes.append(helper.make_node(op_type, list(inputs), [output], name=name, domain=domain, **attributes))
        return output

    def nodes_out(
        self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], name: str | None = None, **attributes: Any
    ) -> tuple[str, ...]:
        """A node with several outputs."""
        self.nodes.append(helper.make_node(op_type, list(inputs), list(outputs), name=name, **attributes))
        return tuple(outputs)

    def conv(
        self,
        x: str,
        channels: int,
        filters: int,
        kernel: int = 3,
        *,
        stride: int = 1,
        pad: int | None = None,
        group: int = 1,
        dilation: int = 1,
        bias: bool = False,
        name: str | None = None,
    ) -> str:
        """A square convolution with random weights; by default padded to keep the size at stride 1."""
        pad = dilation * (kernel - 1) // 2 if pad is None else pad
        inputs = [x, self.weight(filters, channels // group, kernel, kernel)]
        if bias:
            inputs.append(self.weight(filters))
        return self.node(
            "Conv",
            inputs,
            name=name,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
            group=group,
            dilations=[dilation, dilation],
        )

    def pool(self, x: str, kernel: int = 2, stride: int = 2, *, kind: str = "MaxPool", name: str | None = None) -> str:
        """A square pooling without padding."""
        return self.node(kind, [x], name=name, kernel_shape=[kernel, kernel], strides=[stride, stride])

    def relu(self, x: str, name: str | None = None) -> str:
        """A Relu."""
        return self.node("Relu", [x], name=name)

    def norm(self, x: str, channels: int, name: str | None = None, epsilon: float = 1e-5) -> str:
        """A batch normalisation with random statistics."""
        parameters = [self.weight(channels) for _ in range(3)]
        variance = self.constant((self.random.random(channels) + 0.5).astype(np.float32))
        return self.node("BatchNormalization", [x, *parameters, variance], name=name, epsilon=epsilon)

    def output(self, name: str, dtype: int = TensorProto.FLOAT) -> str:
        """A graph output; its shape is left to the compiler."""
        self.outputs.append(helper.make_tensor_value_info(name, dtype, None))
        return name

    def proto(self) -> onnx.ModelProto:
        """The finished model."""
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=self.ir_version)

    def data(self) -> bytes:
        """The finished model's file."""
        return bytes(self.proto().SerializeToString())

    def graph(self, dims: Mapping[str, int] | None = None, *, fold: bool = True) -> Graph:
        """The imported graph."""
        return import_graph(self.data(), dims, fold=fold)

    def facts(self) -> GraphFacts:
        """The imported graph's facts."""
        return graph_facts(self.graph())

    def run(self, feeds: Mapping[str, Values], outputs: Sequence[str] | None = None) -> list[Values]:
        """The values of outputs, by ONNX Runtime."""
        return run_reference(self.proto(), feeds, outputs)


def error_of(action: Callable[[], object]) -> TesseraError | None:
    """The error that an action ends in; None if it succeeds."""
    try:
        action()
    except TesseraError as error:
        return error
    return None


def import_graph(data: bytes, dims: Mapping[str, int] | None = None, *, fold: bool = True) -> Graph:
    """Read, validate, lower and (by default) fold batch normalisations; verified after each pass."""
    graph = LowerModel(dims=dims or {}).run(ValidateModel().run(ReadModel().run(ModelSource.from_bytes(data))))
    verify_graph(graph)
    if fold:
        graph = FoldBatchNorm().run(graph)
        verify_graph(graph)
    return graph


def partition_of(graph: Graph, profile: Profile | None = None, options: Options | None = None) -> PartitionedGraph:
    """The graph's segments, verified; on edge4 and by the default options unless others are given."""
    profile, options = profile or builtin_profile("edge4"), options or Options()
    compilers = SegmentCompilers(profile, options)
    partitioned = PartitionGraph(profile=profile, options=options, candidates=compilers.of).run(graph)
    verify_partition(partitioned)
    return partitioned


def whole_segment(facts: GraphFacts) -> SegmentGraph:
    """All ops of a graph as one segment."""
    return SegmentGraph(facts, tuple(range(len(facts.ops))))


def group_of(facts: GraphFacts, *nodes: str) -> int:
    """The bit set of the ops that come from the given ONNX nodes."""
    wanted = set(nodes)
    found = [index for index, op in enumerate(facts.graph.ops) if wanted & set(op.origin)]
    assert len(found) >= len(wanted) or not wanted, (nodes, [op.origin for op in facts.graph.ops])
    return mask_of(found)


def run_reference(
    proto: onnx.ModelProto, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, *, raw: bool = False
) -> list[Any]:
    """The values of a model's outputs (or of any values named) by ONNX Runtime, one thread.

    With `raw` values that are no arrays (sequences) stay what they are.
    """
    if outputs is not None:
        wanted = onnx.ModelProto()
        wanted.CopyFrom(proto)
        del wanted.graph.output[:]
        for name in outputs:
            wanted.graph.output.append(onnx.ValueInfoProto(name=name))
        proto = wanted
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = session.run(None, dict(feeds))
    return list(found) if raw else [np.asarray(value) for value in found]
