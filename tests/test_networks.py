"""The networks of N-1 and N-2 and their companions have the published layers, and Tessera takes them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.compile import Compilation, compile_model, plan_model
from compiler.profile import builtin_profile
from compiler.units import ceil_div
from tests.compiler.planning import BY_RULES
from tests.models import run_reference
from tests.networks import NETWORKS, fsrcnn, main

# plans are chosen by simulation, in samples too
pytestmark = pytest.mark.chosen

SCRIPT = Path(__file__).parent.parent / "scripts" / "build-networks"
FLOAT_BYTES = 4

# Filters, channels that each reads, height and width of the result, kernel: as published, layer by layer.
Layer = tuple[int, int, int, int, int]

FSRCNN: tuple[Layer, ...] = (
    (56, 1, 550, 970, 5),
    (12, 56, 550, 970, 1),
    (12, 12, 548, 968, 3),
    (12, 12, 546, 966, 3),
    (12, 12, 544, 964, 3),
    (12, 12, 542, 962, 3),
    (56, 12, 542, 962, 1),
    (16, 56, 540, 960, 3),
)
LAYERS: dict[str, tuple[Layer, ...]] = {
    "vgg_e_head": (
        (64, 3, 224, 224, 3),
        (64, 64, 224, 224, 3),
        (128, 64, 112, 112, 3),
        (128, 128, 112, 112, 3),
        (256, 128, 56, 56, 3),
    ),
    "fsrcnn": FSRCNN,
    # the rows are the published ones; so are the columns of the last five layers, to which the others are counted up
    "dmcnn_vd": (
        (64, 3, 550, 806, 3),
        *((64, 64, 548 - 2 * index, 804 - 2 * index, 3) for index in range(18)),
        (3, 64, 512, 768, 3),
    ),
    "mc_cnn": ((64, 1, 1248, 382, 3), (64, 64, 1246, 380, 3), (64, 64, 1244, 378, 3), (64, 64, 1242, 376, 3)),
    "mobilenet_v1": (
        (32, 3, 253, 253, 3),
        *(
            layer
            for channels, filters, extent in (
                (32, 64, 251),
                (64, 128, 125),
                (128, 128, 123),
                (128, 256, 61),
                (256, 256, 59),
                (256, 512, 29),
                (512, 512, 27),
                (512, 512, 25),
                (512, 512, 23),
                (512, 512, 21),
                (512, 512, 19),
                (512, 1024, 9),
                (1024, 1024, 7),
            )
            for layer in ((channels, 1, extent, extent, 3), (filters, channels, extent, extent, 1))
        ),
        (1000, 1024, 1, 1, 1),
    ),
    "resnet18": (
        (64, 3, 311, 311, 7),
        *((64, 64, extent, extent, 3) for extent in (153, 151, 149, 147)),
        (128, 64, 73, 73, 3),
        *((128, 128, extent, extent, 3) for extent in (71, 69, 67)),
        (256, 128, 33, 33, 3),
        *((256, 256, extent, extent, 3) for extent in (31, 29, 27)),
        (512, 256, 13, 13, 3),
        *((512, 512, extent, extent, 3) for extent in (11, 9, 7)),
        (1000, 512, 1, 1, 1),
    ),
}
INPUTS = {
    "vgg_e_head": (3, 224, 224),
    "fsrcnn": (1, 554, 974),
    "dmcnn_vd": (3, 552, 808),
    "mc_cnn": (1, 1250, 384),
    "mobilenet_v1": (3, 507, 507),
    "resnet18": (3, 627, 627),
}
# Weights (of N-1 with biases) and multiply-accumulates of all convolutions.
COUNTS = {
    "vgg_e_head": (555_328, 5_635_768_320),
    "fsrcnn": (15_992, 8_362_594_208),
    "dmcnn_vd": (667_008, 278_813_332_224),
    "mc_cnn": (111_168, 52_278_792_192),
    "mobilenet_v1": (4_209_088, 1_891_238_336),
    "resnet18": (11_506_880, 9_334_698_176),
}
OTHER_OPS = {
    "vgg_e_head": ["MaxPool"] * 2 + ["Relu"] * 5,
    "mobilenet_v1": ["AveragePool"],
    "resnet18": ["Add"] * 8 + ["AveragePool", "MaxPool"] + ["Pad"] * 3 + ["Slice"] * 8,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """A model with the shape of every value, by ONNX."""

    graph: onnx.GraphProto
    shapes: dict[str, tuple[int, ...]]

    def nodes(self, *op_types: str) -> Iterator[onnx.NodeProto]:
        """The nodes of these types."""
        return (node for node in self.graph.node if node.op_type in op_types)


@cache
def inferred(name: str) -> Inferred:
    """A network's shapes; strict inference refuses a stated shape that is not that of the layers."""
    model = onnx.shape_inference.infer_shapes(NETWORKS[name](), check_type=True, strict_mode=True, data_prop=True)
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    shapes = {value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim) for value in values}
    return Inferred(graph=model.graph, shapes=shapes)


@cache
def planned(name: str) -> Compilation:
    """A network's plan, once per test process."""
    return plan_model(NETWORKS[name]().SerializeToString(), builtin_profile("cluster4x4"), BY_RULES)


def attribute(node: onnx.NodeProto, name: str) -> Any:
    """The value of a node's attribute."""
    return next(onnx.helper.get_attribute_value(found) for found in node.attribute if found.name == name)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_a_valid_model_of_the_stated_versions(name: str) -> None:
    model = NETWORKS[name]()
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 8
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 17)]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_has_the_published_layers(name: str) -> None:
    found = inferred(name)
    layers = []
    for node in found.nodes("Conv"):
        filters, channels, kernel, _ = found.shapes[node.input[1]]
        _, result_channels, height, width = found.shapes[node.output[0]]
        assert filters == result_channels
        layers.append((filters, channels, height, width, kernel))
    assert tuple(layers) == LAYERS[name]
    assert found.shapes[found.graph.input[0].name] == (1, *INPUTS[name])
    others = [node.op_type for node in found.graph.node if node.op_type not in ("Conv", "ConstantOfShape")]
    assert sorted(others) == OTHER_OPS.get(name, [])


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_has_as_many_weights_and_products_as_its_layers(name: str) -> None:
    found = inferred(name)
    weights = sum(prod(found.shapes[node.output[0]]) for node in found.nodes("ConstantOfShape"))
    products = sum(prod((filters, channels, h, w, k, k)) for filters, channels, h, w, k in LAYERS[name])
    assert (weights, products) == COUNTS[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_only_the_head_of_vgg_has_padding_and_biases(name: str) -> None:
    """The workloads of DeFiNES read unpadded maps."""
    for node in inferred(name).nodes("Conv", "MaxPool", "AveragePool"):
        padded = name == "vgg_e_head" and node.op_type == "Conv"
        pads = next((list(found.ints) for found in node.attribute if found.name == "pads"), [0] * 4)
        assert pads == [int(padded)] * 4
        assert len(node.input) == (1 if node.op_type != "Conv" else 3 if padded else 2)


def test_shortcuts_of_the_residual_network_are_centred_on_what_they_are_added_to() -> None:
    """Without padding a block's input has a border that its result lost, equally wide on all sides."""
    found = inferred("resnet18")
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in found.graph.initializer}
    strides = []
    for node in found.nodes("Slice"):
        start, stride = int(values[node.input[1]][0]), int(values[node.input[4]][0])
        size, kept = found.shapes[node.input[0]][2], found.shapes[node.output[0]][2]
        last = start + stride * (kept - 1)
        assert start == size - 1 - last > 0
        strides.append(stride)
    assert strides == [1, 1, 2, 1, 2, 1, 2, 1]
    for node in found.nodes("Add"):
        assert found.shapes[node.input[0]] == found.shapes[node.input[1]] == found.shapes[node.output[0]]


def test_a_smaller_image_gives_a_smaller_network_with_the_same_weights() -> None:
    model = fsrcnn(height=3, width=5)
    (result,) = run_reference(model, {"input": np.ones((1, 1, 17, 19), dtype=np.float32)})
    assert result.shape == (1, 16, 3, 5)
    # every value is the same: ones through eight layers of constant weights
    expected = prod(channels * kernel**2 * 0.02 for _, channels, _, _, kernel in FSRCNN)
    assert np.allclose(result, expected, rtol=1e-4)


def test_the_array_of_metaproto_df_takes_the_published_cycles_for_fsrcnn() -> None:
    """N-2: 18,294,204 cycles by array utilisation alone."""
    array = builtin_profile("metaproto-df").matrix.arrays["int8"]
    cycles = 0
    for filters, channels, height, width, kernel in FSRCNN:
        steps = ceil_div(filters, array.k) * ceil_div(channels, array.c)
        cycles += steps * ceil_div(width, array.ox) * ceil_div(height, array.oy) * kernel**2
    assert cycles == 18_294_204


@pytest.mark.matrix(first=0, rest=2)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_compiler_plans_a_network_whole_on_the_accelerator(name: str) -> None:
    plan = planned(name).plan
    assert [segment.host for segment in plan.segments] == [()] * len(plan.segments)
    assert plan.totals.macs == COUNTS[name][1]


# of the others one simulation takes minutes
@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("name", ["mobilenet_v1", pytest.param("resnet18", marks=pytest.mark.full)])
def test_a_network_runs_with_the_values_of_onnx_runtime(name: str) -> None:
    """Equal weights and no bias: deep maps cancel to a thousandth, and faults of single rows stay to the end."""
    report = compile_model(NETWORKS[name]().SerializeToString(), builtin_profile("cluster4x4"), BY_RULES).report
    assert report.values.checked
    assert [(output.holds, output.verdict) for output in report.values.outputs] == [(True, "plain")]


def test_the_head_of_vgg_moves_the_published_bytes_without_weights() -> None:
    """N-1: reference 86.32 MiB, input and result alone 3.637 MiB."""
    totals = planned("vgg_e_head").plan.totals
    weight_bytes = COUNTS["vgg_e_head"][0] * FLOAT_BYTES
    assert totals.dram_bytes_reference - weight_bytes == 90_517_504
    assert totals.dram_bytes_floor - weight_bytes == 3_813_376


def test_two_kept_rows_of_the_convolutions_of_vgg_take_the_published_bytes() -> None:
    """N-1: 349,440 bytes, with padded columns 355,632."""
    found = inferred("vgg_e_head")
    inputs = [found.shapes[node.input[0]] for node in found.nodes("Conv")]
    assert sum(2 * channels * width * FLOAT_BYTES for _, channels, _, width in inputs) == 349_440
    assert sum(2 * channels * (width + 2) * FLOAT_BYTES for _, channels, _, width in inputs) == 355_632


def test_fsrcnn_moves_the_published_bytes() -> None:
    """N-2, in elements: in float32 each takes four bytes, in int8 one."""
    totals = planned("fsrcnn").plan.totals
    assert totals.dram_bytes_floor == (539_596 + 8_294_400 + 15_992) * FLOAT_BYTES
    assert totals.dram_bytes_reference == 190_292_516 * FLOAT_BYTES


def test_networks_are_written_the_same_each_time_and_small(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        assert main([str(tmp_path / folder / "deep")]) == 0
    written = sorted((tmp_path / "a" / "deep").iterdir())
    assert [path.stem for path in written] == sorted(NETWORKS)
    for path in written:
        assert path.read_bytes() == (tmp_path / "b" / "deep" / path.name).read_bytes()
        assert path.stat().st_size < 10_000  # weights are made in the graph


def script(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script's answer, called from a folder."""
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(
        [str(SCRIPT), *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_script_writes_the_networks_asked_for_where_the_caller_stands(tmp_path: Path) -> None:
    answer = script(tmp_path, "out", "mc_cnn")
    assert answer.returncode == 0, answer.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mc_cnn.onnx"]
    assert onnx.load(str(tmp_path / "out" / "mc_cnn.onnx")) == NETWORKS["mc_cnn"]()


def test_the_script_says_what_it_does_and_which_networks_there_are(tmp_path: Path) -> None:
    told, refused = script(tmp_path, "--help"), script(tmp_path, "out", "lenet")
    assert told.returncode == 0
    assert refused.returncode == 2
    assert "FOLDER" in told.stdout
    for name in NETWORKS:
        assert name in told.stdout
        assert name in refused.stderr
    assert not (tmp_path / "out").exists()
