"""Products by weights of 2, 4 and 8 bits, and how those of 4 bits lie two in a byte (IMPORT-9)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod
from types import MappingProxyType
from typing import Final

import numpy as np

from compiler.errors import InternalError
from compiler.ir.box import WHOLE, AxisMap, same, window
from compiler.ops.base import FLOATS, Access, Array, Call, Constraint, Inferred, MatrixShape, OpClass, OpKind, Work
from compiler.ops.compute_types import narrowed, summable, widened
from compiler.ops.contraction import by_input
from compiler.ops.matmul import matmul_axes
from compiler.ops.slab import Box
from compiler.units import ceil_div

_BITS: Final = 4
# Those that ONNX Runtime runs.
_KNOWN_BITS: Final = (2, 4, 8)
_BYTE: Final = 8
# Positions of the smallest block that ONNX Runtime runs.
_LEAST_BLOCK: Final = 16
# Half of the 16 values: the zero point of weights that state none, and where the negative ones of int4 begin.
HALF_OF_FOUR_BITS: Final = 2 ** (_BITS - 1)
FOUR_BITS_MOST: Final = 2**_BITS - 1


class MatMulNBits(OpKind):
    """Data [..., M, K] times a weight [N, K] of few bits: [..., M, N]; the operator of that name of com.microsoft.

    The weight lies as [N, blocks of K, bytes], the lower bits of a byte first; scales [N, blocks], of the data's type;
    zero points, if given, [N, bytes], as many in a byte as weights, or [N, blocks] of the data's type. Blocks have
    `block_size` positions of K; what the last one has beyond K counts nothing. Weights are read packed and become
    floats on their way into the array.
    """

    op_class = OpClass.MAIN
    is_local = True
    dtypes = FLOATS
    input_dtypes = MappingProxyType({1: ("uint8",), 3: ("uint8", *FLOATS), 4: ("int32",)})
    constraints = (
        Constraint("weights have 2, 4 or 8 bits", lambda call: _other_bits(call.integer("bits", _BITS))),
        Constraint("block_size is a power of 2 from 16 on", lambda call: no_block(call.integer("block_size", 0))),
        Constraint("zero points of weights of 8 bits are integers", lambda call: _float_zeros_of_bytes(call)),
        Constraint("no order of the inner axis is given (input 4)", lambda call: "given" if call.has(4) else None),
        Constraint(
            "weights are as the operator says (weight_prepacked is 0)",
            lambda call: call.integer("weight_prepacked", 0) or None,
        ),
    )

    def infer(self, call: Call) -> Inferred:
        data, weight, scales = call.tensor(0), call.tensor(1), call.tensor(2)
        inner, columns, block = (call.integer(name, 0) for name in ("K", "N", "block_size"))
        bits = call.integer("bits", _BITS)
        if min(inner, columns, block) < 1 or block * bits % _BYTE:
            call.fail("K, N and a block_size of whole bytes are needed", actual=(inner, columns, block))
        blocks, size_bytes = ceil_div(inner, block), block * bits // _BYTE
        if not data.shape or data.shape[-1] != inner:
            call.fail("the data's last axis differs from K", actual=data.shape, limit=inner)
        if weight.shape != (columns, blocks, size_bytes):
            call.fail(
                "the weight differs from N, K and block_size", actual=weight.shape, limit=(columns, blocks, size_bytes)
            )
        self._check(call, 2, columns, blocks)
        of_type = [scales]
        if call.has(3):
            is_packed = call.tensor(3).dtype == "uint8"
            self._check(call, 3, columns, ceil_div(blocks * bits, _BYTE) if is_packed else blocks)
            of_type += [] if is_packed else [call.tensor(3)]
        for given in of_type:
            if given.dtype != data.dtype:
                call.fail("scales and data have different element types", actual=given.dtype, limit=data.dtype)
        shape = (*data.shape[:-1], columns)
        return Inferred(
            shape=shape,
            dtype=data.dtype,
            axes=matmul_axes(len(shape)),
            kind=self.kind,
            inputs=(0, 1, 2, 3) if call.has(3) else (0, 1, 2),
            attributes={"K": inner, "N": columns, "block_size": block, **({"bits": bits} if bits != _BITS else {})},
        )

    @staticmethod
    def _check(call: Call, index: int, columns: int, each: int) -> None:
        if call.tensor(index).shape not in ((columns * each,), (columns, each)):
            call.fail(
                f"input {index} differs from N and its blocks", actual=call.tensor(index).shape, limit=(columns, each)
            )

    def access(self, call: Call) -> Access:
        last = len(call.result.shape) - 1
        data = (*(same(axis) for axis in range(last)), WHOLE)
        maps: list[tuple[AxisMap, ...]] = [data, (same(last), WHOLE, WHOLE)]
        for index in (2, 3):
            if call.has(index):
                shape = call.tensor(index).shape
                each = prod(shape) // call.result.shape[last]
                row = window(last, kernel=each, stride=each, dilation=1, pad=0)
                maps.append((same(last), WHOLE) if len(shape) > 1 else (row,))
        return tuple(maps)

    def work(self, call: Call) -> Work:
        return Work(macs=Fraction(call.integer("K", 1)))

    def matrix(self, call: Call) -> MatrixShape:
        inner = call.integer("K", 1)
        return MatrixShape(groups=1, out_channels=call.tensor(1).shape[0], in_channels=inner, taps=1)

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        data, packed, scales, zeros = (*by_input(call, arrays), None)[:4]
        if data is None or packed is None or scales is None:
            raise InternalError("data, weight and scales are needed", node=call.node)
        columns, blocks, bits = *packed.shape[:2], call.integer("bits", _BITS)
        units = widened(scales).reshape(columns, blocks, 1)
        numbers = _of_bits(packed, bits).astype(units.dtype)
        zero: Array = np.full((columns, blocks), 2 ** (bits - 1), units.dtype)
        if zeros is not None and zeros.dtype == np.uint8:
            zero = _of_bits(zeros.reshape(columns, -1), bits)[:, :blocks].astype(units.dtype)
        elif zeros is not None:
            zero = widened(zeros).reshape(columns, blocks)
        weight = ((numbers - zero[:, :, None]) * units).reshape(columns, -1)
        factors = summable(narrowed(weight[:, : call.integer("K", 1)], call.tensor(0).dtype))
        return narrowed(np.matmul(summable(data), factors.T), call.result.dtype)


def _other_bits(bits: int) -> int | None:
    return None if bits in _KNOWN_BITS else bits


def no_block(size: int) -> int | None:
    """The size, if ONNX Runtime knows no blocks of it."""
    return None if size >= _LEAST_BLOCK and size & (size - 1) == 0 else size


def _float_zeros_of_bytes(call: Call) -> str | None:
    is_byte = call.integer("bits", _BITS) == _BYTE
    return call.tensor(3).dtype if is_byte and call.has(3) and call.tensor(3).dtype in FLOATS else None


def _of_bits(data: Array, bits: int) -> Array:
    """Bytes as numbers of so many bits without sign, along the last axis, the lower ones first."""
    parts = [(data >> shift) & (2**bits - 1) for shift in range(0, _BYTE, bits)]  # type: ignore[operator]
    return np.asarray(np.stack(parts, axis=-1).reshape(*data.shape[:-1], -1))


def unpacked(data: Array) -> Array:
    """Bytes as numbers of 4 bits without sign, twice as many along the last axis, the lower half first."""
    return _of_bits(data, _BITS)


def packed(numbers: Array) -> Array:
    """The opposite, of an even number along the last axis."""
    whole = numbers.astype(np.uint8)
    return np.asarray(whole[..., 0::2] | (whole[..., 1::2] << 4))


# How a weight of any rank lies packed. A `layout` has an entry per axis of the weight: its extent where the axis is
# packed, 0 where it is kept. The stored tensor is [kept axes..., bytes]: the packed axes are one, two numbers in a
# byte, the last byte of an odd number filled up.


def whole_shape(layout: Sequence[int], stored: Sequence[int]) -> tuple[int, ...]:
    """The shape of a weight from that of its stored tensor, or of a part of it."""
    kept = iter(stored)
    return tuple(extent or next(kept) for extent in layout)


def whole_box(layout: Sequence[int], stored: Box) -> Box:
    """The box of a weight that a box of its stored tensor holds."""
    kept = iter(stored)
    return tuple((0, extent) if extent else next(kept) for extent in layout)


def stored_access(layout: Sequence[int], access: tuple[AxisMap, ...]) -> tuple[AxisMap, ...]:
    """The access to the stored tensor from that to the weight."""
    return (*(axis_map for axis_map, extent in zip(access, layout, strict=True) if not extent), WHOLE)


def whole_weight(layout: Sequence[int], stored: Array) -> Array:
    """A weight's numbers, without sign, from its stored tensor."""
    extents = [extent for extent in layout if extent]
    numbers = unpacked(stored)[..., : prod(extents)].reshape(*stored.shape[:-1], *extents)
    return np.transpose(numbers, np.argsort(stored_order(layout)))


def stored_order(layout: Sequence[int]) -> tuple[int, ...]:
    """The axes of a weight in the order in which they are stored: kept ones, then packed ones."""
    return tuple(sorted(range(len(layout)), key=lambda axis: layout[axis] > 0))
