"""Ops that rearrange elements by blocks or by index: DepthToSpace, SpaceToDepth, Gather."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from compiler.ir.box import WHOLE, AxisMap, same
from compiler.ir.graph import Attribute
from compiler.ir.symbol import Dim, is_always_least, unknown_extent
from compiler.ops.base import Access, Array, Call, Inferred, OpClass, OpKind, default_axes, from_front
from compiler.ops.slab import Box, Slab, aligned


def _blocks(call: Call) -> tuple[tuple[int, ...], int, str]:
    """The input's shape, the block size and the mode of DepthToSpace and SpaceToDepth."""
    shape, block, mode = call.tensor(0).shape, call.integer("blocksize", 0), call.text("mode", "DCR")
    if len(shape) != 4 or block < 1:
        call.fail("input must be [N, C, H, W] and blocksize at least 1", actual=f"{shape}, blocksize {block}")
    if mode not in ("DCR", "CRD"):
        call.fail("unknown mode", actual=mode, limit="DCR, CRD")
    return shape, block, mode


class DepthToSpace(OpKind):
    """Channels become `blocksize` × `blocksize` spatial positions, in the order of `mode` (DCR or CRD)."""

    op_class = OpClass.MOVEMENT

    def infer(self, call: Call) -> Inferred:
        (n, c, h, w), block, mode = _blocks(call)
        if c % (block * block):
            call.fail("blocksize² must divide the channels", actual=c, limit=f"a multiple of {block * block}")
        return Inferred(
            shape=(n, c // (block * block), h * block, w * block),
            dtype=call.tensor(0).dtype,
            axes=call.tensor(0).axes,
            kind=self.kind,
            inputs=(0,),
            attributes={"blocksize": block, "mode": mode},
        )

    def access(self, call: Call) -> Access:
        block = call.integer("blocksize", 1)
        channel = WHOLE if call.text("mode", "DCR") == "DCR" else AxisMap(axis=1, block=block * block)
        return ((same(0), channel, AxisMap(axis=2, divisor=block), AxisMap(axis=3, divisor=block)),)

    def enclosing(self, call: Call, box: Box) -> Box:
        block = call.integer("blocksize", 1)
        return (*box[:2], aligned(box[2], block), aligned(box[3], block))

    def local_attributes(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Mapping[str, Attribute]:
        """Attributes with `channel`: the box's first channel among those that the input's box produces."""
        del needed
        return {**call.attributes, "channel": box[1][0] if call.text("mode", "DCR") == "DCR" else 0}

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        (n, c, h, w), b = arrays[0].shape, call.integer("blocksize", 1)
        if call.text("mode", "DCR") == "DCR":
            split = arrays[0].reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            split = arrays[0].reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
        first = call.integer("channel", 0)
        return split[:, first : first + call.result.shape[1]].reshape(call.result.shape)


class SpaceToDepth(OpKind):
    """Spatial blocks become channels, in the order of `mode` (DCR or CRD)."""

    op_class = OpClass.MOVEMENT
    is_local = True

    def infer(self, call: Call) -> Inferred:
        (n, c, h, w), block, mode = _blocks(call)
        if h % block or w % block:
            call.fail("blocksize must divide height and width", actual=f"{h}, {w}", limit=f"multiples of {block}")
        return Inferred(
            shape=(n, c * block * block, h // block, w // block),
            dtype=call.tensor(0).dtype,
            axes=call.tensor(0).axes,
            kind=self.kind,
            inputs=(0,),
            attributes={"blocksize": block, "mode": mode},
        )

    def access(self, call: Call) -> Access:
        block = call.integer("blocksize", 1)
        channel = WHOLE if call.text("mode", "DCR") == "DCR" else AxisMap(axis=1, divisor=block * block)
        return ((same(0), channel, AxisMap(axis=2, block=block), AxisMap(axis=3, block=block)),)

    def local_attributes(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Mapping[str, Attribute]:
        """Attributes with `channel`: the box's first channel among those that the input's box produces."""
        begin = box[1][0]
        if needed[0] is not None and call.text("mode", "DCR") == "CRD":
            begin -= needed[0][1][0] * call.integer("blocksize", 1) ** 2
        return {**call.attributes, "channel": begin}

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        (n, c, h, w), b = arrays[0].shape, call.integer("blocksize", 1)
        split = arrays[0].reshape(n, c, h // b, b, w // b, b)
        channels = call.integer("channel", 0) + np.arange(call.result.shape[1])
        if call.text("mode", "DCR") == "DCR":
            rows, columns, depths = np.unravel_index(channels, (b, b, c))
        else:
            depths, rows, columns = np.unravel_index(channels, (c, b, b))
        return split[:, depths, :, rows, :, columns].transpose(1, 0, 2, 3)


class Gather(OpKind):
    """Slices of the data (input 0) along `axis`, chosen by the indices (input 1).

    From a constant table the transfer engine reads only the indexed slices. Other data are needed whole along the
    gathered axis, since the indices may name any position. Exception: constant indices at equal distances. Attributes
    `begin` and `step` of the IR op then give the positions, and there is no input 1.
    """

    op_class = OpClass.MOVEMENT
    is_local = True
    input_dtypes = MappingProxyType({1: ("int32", "int64")})

    def infer(self, call: Call) -> Inferred:
        data, indices = call.tensor(0), call.tensor(1)
        axis = call.axis("axis", 0, len(data.shape))
        attributes: dict[str, Attribute] = {"axis": axis}
        if 1 in call.values and indices.elements:
            attributes |= self._progression(call, data.shape[axis])
        shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
        return Inferred(
            shape=shape,
            dtype=data.dtype,
            axes=data.axes if len(indices.shape) == 1 and data.constant is None else default_axes(len(shape)),
            kind=self.kind,
            inputs=(0,) if "begin" in attributes else (0, 1),
            attributes=attributes,
        )

    def _progression(self, call: Call, extent: int) -> dict[str, Attribute]:
        """`begin` and `step` of constant indices of at most one axis, if they rise evenly; else empty."""
        given = call.value(1, "indices")
        if isinstance(extent, Dim) or any(isinstance(item, Dim) for item in np.asarray(given).reshape(-1).tolist()):
            return self._varying_progression(np.asarray(given).reshape(-1).tolist(), np.ndim(given), extent)
        values = np.asarray(given.tolist(), dtype=np.int64)
        low, high = int(values.min()), int(values.max())
        if low < -extent or high >= extent:
            actual = high if high >= extent else low
            call.fail("an index is out of range", actual=actual, limit=f"-{extent} to {extent - 1}")
        positions = (values % extent).reshape(-1)
        steps = np.unique(np.diff(positions))
        if values.ndim > 1 or len(steps) > 1 or (len(steps) and steps[0] < 1):
            return {}  # scattered or falling: the op reads the indices
        return {"begin": int(positions[0]), "step": int(steps[0]) if len(steps) else 1}

    def _varying_progression(self, indices: list[int], rank: int, extent: int) -> dict[str, Attribute]:
        """`begin` and `step` if the indices or the axis vary with dynamic dimensions."""
        positions = [from_front(index, extent) for index in indices]
        # a position outside the axis at some extents has no known value
        positions = [p if is_always_least(p - extent, -1) else unknown_extent(int(p)) for p in positions]
        steps = {after - before for before, after in pairwise(positions)}
        step = steps.pop() if steps else 1
        if rank > 1 or steps or step < 1 or isinstance(step, Dim):
            return {}
        return {"begin": positions[0], "step": int(step)}

    def access(self, call: Call) -> Access:
        axis, rank = call.integer("axis", 0), len(call.tensor(0).shape)
        count = len(call.result.shape) - rank + 1
        data = [WHOLE if i == axis else same(i if i < axis else i + count - 1) for i in range(rank)]
        begin, step = call.attributes.get("begin"), call.integer("step", 1)
        if isinstance(begin, int) and count == 1:
            data[axis] = AxisMap(axis=axis, scale=step, low=begin, high=begin)
        elif isinstance(begin, int) and rank > 1:
            # one fixed position: scale 0 makes the axis independent of the output's range
            data[axis] = AxisMap(axis=0, scale=0, low=begin, high=begin)
        return (tuple(data), tuple(same(axis + i) for i in range(count)))[: len(call.inputs)]

    def compute_box(
        self, call: Call, box: Box, operands: tuple[Slab | None, ...], *, gathered: Slab | None = None
    ) -> Array:
        if gathered is not None:  # the transfer engine has already applied the indices
            return gathered.cut(box)
        return super().compute_box(call, box, operands)

    def local_attributes(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Mapping[str, Attribute]:
        """Attributes with `begin` relative to the data's box."""
        begin, axis = call.attributes.get("begin"), call.integer("axis", 0)
        if not isinstance(begin, int) or needed[0] is None:
            return call.attributes
        first = call.integer("step", 1) * box[axis][0] if len(box) == len(needed[0]) else 0
        return {**call.attributes, "begin": begin + first - needed[0][axis][0]}

    def gathered(self, call: Call) -> tuple[int, ...]:
        return (0,) if call.tensor(0).constant is not None else ()

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        axis, shape = call.integer("axis", 0), call.result.shape
        if len(arrays) > 1:
            positions = arrays[1].astype(np.int64).reshape(-1)
        else:
            count = shape[axis] if len(shape) == arrays[0].ndim else 1
            positions = int(call.integer("begin", 0)) + call.integer("step", 1) * np.arange(count)
        return np.take(arrays[0], positions, axis=axis).reshape(shape)
