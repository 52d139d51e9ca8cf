"""GridSample, AffineGrid and Col2Im: images read or put together at positions of a grid.

Between pixels GridSample reads the four around a position, each by a Gather of positions along merged axes, and weighs
them by how near they are; what it reads for positions that are no finite numbers ONNX leaves open. AffineGrid is a
product with the positions of the grid. Col2Im adds up overlapping blocks as a ConvTranspose does whose kernels have a
single 1 each.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx

from compiler.frontend.decompose.indexed_at_run_time import LOOKED_UP_BYTES
from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.frontend.fold import FOLD_ELEMENTS
from compiler.ir.symbol import Dim
from compiler.ops.base import FLOATS, Call
from compiler.units import numpy_dtype

_IMAGE_AXES: Final = 4
# What the interpolation between pixels is called, before operator set 20 and after.
_LINEAR: Final = ("bilinear", "linear")
_PADDINGS: Final = ("zeros", "border")
# Of images, whose elements have 4 bytes.
_MOST_PIXELS: Final = LOOKED_UP_BYTES // 4


def _grid_sample(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    images, channels, height, width = (int(extent) for extent in call.tensor(0).shape)
    grid = tuple(int(extent) for extent in call.tensor(1).shape)
    if grid[0] != images or grid[-1] != 2:
        call.fail("a grid must have a position of two numbers per image and pixel", actual=grid, limit=(images, "…", 2))
    pixels = node.input[0] if images == 1 else nodes.transpose(node.input[0], (1, 0, 2, 3))
    pixels = nodes.reshape(pixels, (channels, images * height * width))
    corners = _corners(nodes, call, node.input[1], (width, height))
    offsets = nodes.constant((np.arange(images, dtype=np.int64) * height * width).reshape(-1, 1, 1))
    parts = []
    for row in (corner.along(nodes, 1) for corner in corners):
        begin = row.place if images == 1 else nodes.add("Add", row.place, offsets)
        for column in (corner.along(nodes, 0) for corner in corners):
            found = nodes.add("Gather", pixels, nodes.add("Add", begin, column.place), axis=1)
            if row.is_inside is not None and column.is_inside is not None:
                # chosen, not weighed: what lies at the edge may be infinite
                is_inside = nodes.add("And", row.is_inside, column.is_inside)
                found = nodes.add("Where", is_inside, found, nodes.number(0, "float32"))
            parts.append(nodes.add("Mul", found, nodes.add("Mul", row.weight, column.weight)))
    total = parts[0]
    for part in parts[1:]:
        total = nodes.add("Add", total, part)
    if images == 1:
        nodes.reshape(total, (images, channels, *grid[1:-1]), out=node.output[0])
    else:
        nodes.transpose(total, (1, 0, 2, 3), out=node.output[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Corner:
    """Pixels beside positions, by coordinate: what they add to the flat place, how much they count, if they exist.

    `is_inside` is None where all do.
    """

    place: str
    weight: str
    is_inside: str | None

    def along(self, nodes: NodeList, number: int) -> _Corner:
        """The same along one coordinate."""

        def its(values: str) -> str:
            return nodes.add("Gather", values, nodes.number(number, "int64"), axis=-1)

        inside = None if self.is_inside is None else its(self.is_inside)
        return _Corner(place=its(self.place), weight=its(self.weight), is_inside=inside)


def _corners(nodes: NodeList, call: Call, grid: str, extents: tuple[int, int]) -> list[_Corner]:
    """The pixels before and after each position; of those outside the image that at the border, or none.

    `extents`: of the coordinates.
    """
    ends = np.array(extents)

    def floats(values: np.ndarray[Any, Any] | float) -> str:
        return nodes.constant(np.asarray(values, dtype=np.float32))

    moved = nodes.add("Add", grid, floats(1))
    if call.integer("align_corners", 0):
        position = nodes.add("Mul", moved, floats((ends - 1) / 2))
    else:
        position = nodes.add("Sub", nodes.add("Mul", moved, floats(ends / 2)), floats(0.5))
    at_border = call.text("padding_mode", "zeros") == "border"
    if at_border:
        position = nodes.add("Min", nodes.add("Max", position, floats(0)), floats(ends - 1))
    whole = nodes.add("Floor", position)
    beyond = nodes.add("Sub", position, whole)
    before = nodes.cast(whole, "int64")
    after = nodes.add("Add", before, nodes.number(1, "int64"))
    first, last = nodes.number(0, "int64"), nodes.constant(ends.astype(np.int64) - 1)
    strides = nodes.constant(np.array([1, extents[0]], dtype=np.int64))
    found = []
    for pixel, weight in ((before, nodes.add("Sub", floats(1), beyond)), (after, beyond)):
        # as integers, so that a position that is no number has a place as well
        inside = nodes.add("Min", nodes.add("Max", pixel, first), last)
        is_inside = None if at_border else nodes.add("Equal", pixel, inside)
        found.append(_Corner(place=nodes.add("Mul", inside, strides), weight=weight, is_inside=is_inside))
    return found


def _affine_grid(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    theta, sizes = call.tensor(0), [int(extent) for extent in call.value(1, "size").reshape(-1)]
    extents, axes = sizes[2:], len(sizes) - 2
    if tuple(theta.shape) != (sizes[0], axes, axes + 1):
        call.fail("theta must have a matrix per image", actual=theta.shape, limit=(sizes[0], axes, axes + 1))
    steps = []
    for extent in extents:
        if call.integer("align_corners", 0):
            steps.append(np.linspace(-1, 1, extent))
        else:
            steps.append((2 * np.arange(extent) + 1) / extent - 1)
    # coordinates of a position begin with the last axis
    places = np.stack([*np.meshgrid(*steps, indexing="ij")[::-1], np.ones(extents)], axis=-1).reshape(-1, axes + 1)
    grid = nodes.constant(places.astype(numpy_dtype(theta.dtype)))
    found = nodes.add("MatMul", grid, nodes.transpose(node.input[0], (0, 2, 1)))
    nodes.reshape(found, (sizes[0], *extents, axes), out=node.output[0])


def _col2im(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    images, rows, blocks = (int(extent) for extent in call.tensor(0).shape)
    extents, kernel = ([int(extent) for extent in call.value(index, name)] for index, name in enumerate(_COL2IM, 1))
    axes, size = len(extents), prod(kernel)
    strides, dilations = (list(call.integers(name) or (1,) * axes) for name in ("strides", "dilations"))
    pads = list(call.integers("pads") or (0,) * 2 * axes)
    reach = [dilation * (extent - 1) + 1 for dilation, extent in zip(dilations, kernel, strict=True)]
    room = [extent + pads[axis] + pads[axes + axis] - reach[axis] for axis, extent in enumerate(extents)]
    counts = [free // stride + 1 for free, stride in zip(room, strides, strict=True)]
    if rows % size or prod(counts) != blocks or min(room) < 0:
        call.fail("blocks must be as many as fit the image", actual=(rows, blocks), limit=(f"n x {size}", prod(counts)))
    channels = rows // size
    ones = np.tile(np.eye(size).reshape(size, 1, *kernel), (channels, *(1,) * (axes + 1)))
    nodes.add(
        "ConvTranspose",
        nodes.reshape(node.input[0], (images, rows, *counts)),
        nodes.constant(ones.astype(numpy_dtype(call.tensor(0).dtype))),
        out=node.output[0],
        group=channels,
        strides=strides,
        dilations=dilations,
        pads=pads,
        output_padding=[free % stride for free, stride in zip(room, strides, strict=True)],
    )


_COL2IM: Final = ("image_shape", "block_shape")


def _other_interpolation(_: onnx.NodeProto, call: Call) -> object | None:
    mode, padding = call.text("mode", _LINEAR[0]), call.text("padding_mode", "zeros")
    return None if mode in _LINEAR and padding in _PADDINGS else f"{mode}, {padding}"


def _large(_: onnx.NodeProto, call: Call) -> object | None:
    """The shape of images that are no images, vary, or do not lie in a core; None if they do."""
    shape, grid = call.tensor(0).shape, call.tensor(1).shape
    if any(isinstance(extent, Dim) for extent in (*shape, *grid)) or not len(shape) == len(grid) == _IMAGE_AXES:
        return str(tuple(map(str, shape)))
    pixels = int(shape[0] * shape[2] * shape[3])
    return None if pixels <= _MOST_PIXELS and call.tensor(0).elements and call.tensor(1).elements else pixels


def _many_places(_: onnx.NodeProto, call: Call) -> object | None:
    sizes = call.value(1, "size").reshape(-1).tolist()
    if any(isinstance(extent, Dim) for extent in (*sizes, *call.tensor(0).shape)) or len(sizes) not in (4, 5):
        return str(sizes)
    elements = prod(sizes[2:]) * (len(sizes) - 1)
    return None if 0 < elements <= FOLD_ELEMENTS else elements


def _single_places(_: onnx.NodeProto, call: Call) -> object | None:
    """ONNX does not say where the one position of an axis lies; the host decides."""
    sizes = call.value(1, "size").reshape(-1)
    return 1 if call.integer("align_corners", 0) and 1 in sizes[2:].tolist() else None


def _many_factors(_: onnx.NodeProto, call: Call) -> object | None:
    shape = call.tensor(0).shape
    extents = (*shape, *call.value(1, _COL2IM[0]).reshape(-1), *call.value(2, _COL2IM[1]).reshape(-1))
    if any(isinstance(extent, Dim) for extent in extents) or len(shape) != 3 or not 1 <= call.tensor(2).elements <= 3:
        return str(tuple(map(str, shape)))
    factors = int(shape[1]) * prod(map(int, call.value(2, _COL2IM[1]).reshape(-1)))
    return None if factors <= FOLD_ELEMENTS and call.tensor(0).elements else factors


SAMPLING: Final = (
    Decomposition(
        op_type="GridSample",
        replace=_grid_sample,
        dtypes=MappingProxyType({0: ("float32",), 1: ("float32",)}),
        limits=(
            Limit("mode is linear (bilinear), and padding_mode zeros or border", _other_interpolation),
            Limit(f"images are of fixed extents, with two spatial axes and 1 to {_MOST_PIXELS} pixels", _large),
        ),
    ),
    Decomposition(
        op_type="AffineGrid",
        replace=_affine_grid,
        dtypes=MappingProxyType({0: FLOATS, 1: ("int64",)}),
        constant_inputs=MappingProxyType({1: "size"}),
        limits=(
            Limit(f"the grid is of fixed extents, and has {FOLD_ELEMENTS} coordinates at most", _many_places),
            Limit("with align_corners there are two positions or more along each axis", _single_places),
        ),
    ),
    Decomposition(
        op_type="Col2Im",
        replace=_col2im,
        dtypes=MappingProxyType({0: FLOATS, 1: ("int64",), 2: ("int64",)}),
        constant_inputs=MappingProxyType({1: _COL2IM[0], 2: _COL2IM[1]}),
        limits=(
            Limit(
                f"extents are fixed, with 1 to 3 spatial axes, and rows times a block have {FOLD_ELEMENTS} elements "
                "at most",
                _many_factors,
            ),
        ),
    ),
)
