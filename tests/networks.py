"""The networks of N-1 and N-2 and their companions, built from layer dimensions: `python -m tests.networks FOLDER`.

N-1 is the head of VGG-19. The others are the workloads that DeFiNES (HPCA 2023) publishes for the accelerator of
profile `metaproto-df`: every layer reads what the layers before it make, without padding, so the first map is as large
as the last one needs; layers are bare convolutions, poolings and additions, without bias and activation. Tensors are
float32, for which the published ones have eight bits. All weights are the constant 0.02, made in the graph: good for
structure, traffic and time, not for values.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.models import Model

OPSET: Final = 17
IR_VERSION: Final = 8
_WEIGHT: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """A feature map under construction: the value's name and its extents, one image."""

    name: str
    channels: int
    height: int
    width: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The extents in the order N, C, H, W."""
        return (1, self.channels, self.height, self.width)


class _Network(Model):
    """A network whose weights are constants of the graph and whose layers know their extents."""

    def __init__(self, name: str) -> None:
        super().__init__(opset=OPSET, ir_version=IR_VERSION, name=name)

    def weight(self, *shape: int) -> str:
        """Weights without a byte in the file."""
        value = numpy_helper.from_array(np.array([_WEIGHT], dtype=np.float32))
        return self.node("ConstantOfShape", [self.ints(*shape)], out=self.fresh("w"), value=value)

    def image(self, channels: int, height: int, width: int) -> Map:
        """The input."""
        return Map(
            name=self.input([1, channels, height, width], "input"), channels=channels, height=height, width=width
        )

    def layer(
        self,
        x: Map,
        filters: int,
        kernel: int,
        name: str,
        *,
        stride: int = 1,
        pad: int = 0,
        depthwise: bool = False,
        bias: bool = False,
    ) -> Map:
        """A convolution; with `depthwise` each channel by itself."""
        group = x.channels if depthwise else 1
        out = self.conv(x.name, x.channels, filters, kernel, stride=stride, pad=pad, group=group, bias=bias, name=name)
        height, width = ((extent + 2 * pad - kernel) // stride + 1 for extent in (x.height, x.width))
        return Map(name=out, channels=filters, height=height, width=width)

    def pooled(self, x: Map, kernel: int, stride: int, name: str, kind: str = "MaxPool") -> Map:
        """A pooling without padding."""
        out = self.pool(x.name, kernel, stride, kind=kind, name=name)
        height, width = ((extent - kernel) // stride + 1 for extent in (x.height, x.width))
        return Map(name=out, channels=x.channels, height=height, width=width)

    def sum(self, x: Map, shortcut: Map, stride: int, name: str) -> Map:
        """The addition of a block's result and its input, which has a border that the result lost without padding.

        Of the square input the positions are kept that the result's windows are centred on, `stride` apart; if it has
        fewer channels, zeros stand for those that it lacks.
        """
        border = (shortcut.height - stride * (x.height - 1) - 1) // 2
        last = border + stride * (x.height - 1) + 1
        kept = self.node(
            "Slice",
            [
                shortcut.name,
                self.ints(border, border),
                self.ints(last, last),
                self.ints(2, 3),
                self.ints(stride, stride),
            ],
            name=f"{name}_shortcut",
        )
        if shortcut.channels < x.channels:
            missing = x.channels - shortcut.channels
            kept = self.node("Pad", [kept, self.ints(0, 0, 0, 0, 0, missing, 0, 0)], name=f"{name}_channels")
        out = self.node("Add", [x.name, kept], name=name)
        return Map(name=out, channels=x.channels, height=x.height, width=x.width)

    def finished(self, result: Map) -> onnx.ModelProto:
        """The model with its one output."""
        self.outputs.append(helper.make_tensor_value_info(result.name, onnx.TensorProto.FLOAT, result.shape))
        return self.proto()


def vgg_e_head() -> onnx.ModelProto:
    """VGG-19's first five convolutions with ReLU, biases and padding, and their two poolings (N-1)."""
    net = _Network("vgg_e_head")
    x = net.image(3, 224, 224)
    for name, filters in (("1_1", 64), ("1_2", 64), ("2_1", 128), ("2_2", 128), ("3_1", 256)):
        x = net.layer(x, filters, 3, f"conv{name}", pad=1, bias=True)
        x = Map(name=net.relu(x.name, f"relu{name}"), channels=x.channels, height=x.height, width=x.width)
        if name.endswith("_2"):
            x = net.pooled(x, 2, 2, f"pool{name[0]}")
    return net.finished(x)


def fsrcnn(height: int = 540, width: int = 960) -> onnx.ModelProto:
    """FSRCNN up to the 16 channels that make up the enlarged image, for a last map of `height` × `width` (N-2)."""
    layers = ((56, 5), (12, 1), (12, 3), (12, 3), (12, 3), (12, 3), (56, 1), (16, 3))
    return _chain("fsrcnn", 1, layers, height, width)


def dmcnn_vd() -> onnx.ModelProto:
    """DMCNN-VD, demosaicing: twenty 3×3 convolutions of 64 channels, last map 512×768.

    The published workload counts 10 columns too few in its first 15 layers (796 to 768, then again from 776): no
    chain of layers has such maps. Here all of them lead to the last one: 806 columns in the first layer's result.
    """
    return _chain("dmcnn_vd", 3, ((64, 3),) * 19 + ((3, 3),), 512, 768)


def mc_cnn() -> onnx.ModelProto:
    """One branch of MC-CNN (fast), stereo matching: four 3×3 convolutions of 64 channels, last map 1242×376."""
    return _chain("mc_cnn", 1, ((64, 3),) * 4, 1242, 376)


def mobilenet_v1() -> onnx.ModelProto:
    """MobileNet v1 without padding: an image of 507×507 gives the usual 7×7 map; the classifier is a convolution."""
    net = _Network("mobilenet_v1")
    x = net.layer(net.image(3, 507, 507), 32, 3, "conv0", stride=2)
    blocks = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
    for index, (filters, stride) in enumerate(blocks, start=1):
        x = net.layer(x, x.channels, 3, f"depthwise{index}", stride=stride, depthwise=True)
        x = net.layer(x, filters, 1, f"pointwise{index}")
    x = net.pooled(x, 7, 1, "pool", "AveragePool")
    return net.finished(net.layer(x, 1000, 1, "classifier"))


def resnet18() -> onnx.ModelProto:
    """ResNet-18 without padding: an image of 627×627 gives the usual 7×7 map; the classifier is a convolution.

    The published workload adds maps of unequal extents. Here the shortcut is the block's input cropped, subsampled and
    filled up with zero channels (option A of the ResNet paper), which has no weights and no multiply-accumulates, as
    there.
    """
    net = _Network("resnet18")
    x = net.layer(net.image(3, 627, 627), 64, 7, "conv1", stride=2)
    x = net.pooled(x, 3, 2, "pool1")
    for stage, filters in ((2, 64), (3, 128), (4, 256), (5, 512)):
        for block in (1, 2):
            stride = 2 if stage > 2 and block == 1 else 1
            y = net.layer(x, filters, 3, f"conv{stage}_{2 * block - 1}", stride=stride)
            y = net.layer(y, filters, 3, f"conv{stage}_{2 * block}")
            x = net.sum(y, x, stride, f"add{stage}_{block}")
    x = net.pooled(x, 7, 1, "pool5", "AveragePool")
    return net.finished(net.layer(x, 1000, 1, "classifier"))


def _chain(name: str, channels: int, layers: tuple[tuple[int, int], ...], height: int, width: int) -> onnx.ModelProto:
    """Convolutions (filters, kernel) one after another, without padding, that end in a map of height × width."""
    net = _Network(name)
    border = sum(kernel - 1 for _, kernel in layers)
    x = net.image(channels, height + border, width + border)
    for index, (filters, kernel) in enumerate(layers):
        x = net.layer(x, filters, kernel, f"conv{index}")
    return net.finished(x)


NETWORKS: Final[Mapping[str, Callable[[], onnx.ModelProto]]] = MappingProxyType(
    {
        "vgg_e_head": vgg_e_head,
        "fsrcnn": fsrcnn,
        "dmcnn_vd": dmcnn_vd,
        "mc_cnn": mc_cnn,
        "mobilenet_v1": mobilenet_v1,
        "resnet18": resnet18,
    }
)


def main(arguments: list[str]) -> int:
    """Write the networks asked for, or all of them, to a folder, which is made if it does not exist."""
    parser = argparse.ArgumentParser(
        prog="scripts/build-networks",
        description="Write the networks that Tessera's figures are checked on (N-1, N-2 and their companions) as ONNX "
        "files, FOLDER/NAME.onnx; a file of that name is replaced. Weights are the constant 0.02 and take no room in "
        "the files.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where to write them; made if it does not exist")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NETWORKS)}; without names all of them")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in NETWORKS]
    if unknown:
        parser.error(f"unknown network {', '.join(unknown)}; known: {', '.join(NETWORKS)}")
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.names or NETWORKS:
        path = given.folder / f"{name}.onnx"
        data = NETWORKS[name]().SerializeToString(deterministic=True)
        path.write_bytes(data)
        print(f"{path}: {len(data):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
