"""Quantised networks in integers: what stands between DequantizeLinear and QuantizeLinear becomes one op (IMPORT-9)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import isfinite
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from compiler.frontend.constant_values import literal, materialise
from compiler.frontend.dequantised import scale_and_zero, stored_constant
from compiler.frontend.packed_weights import packed_weight
from compiler.frontend.patterns.graph_queries import Lookup
from compiler.frontend.source import ModelSource, opened
from compiler.ir.constant import Constant
from compiler.ir.graph import Attribute, Graph, Op, Tensor
from compiler.ops import ALL_KINDS, OP_KINDS, call_of, definition
from compiler.ops.base import FLOATS, Array, Call, default_axes
from compiler.ops.contraction import Product
from compiler.ops.quantise import QUANTISED, quantised
from compiler.ops.quantised import ACCUMULATOR, ARRAY_TYPE, EIGHT_BITS, name_of
from compiler.units import numpy_dtype

# Ops whose results are elements of their first input, so that integers pass through them as they are.
MOVES: Final = frozenset(
    {
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Identity",
        "Dropout",
        "Transpose",
        "Slice",
        "Expand",
        "Tile",
        "Gather",
        "DepthToSpace",
        "SpaceToDepth",
        "MaxPool",
    }
)
# Without any of these a graph has nothing that is quantised.
_BEGINS: Final = frozenset({"DequantizeLinear", "QuantizeLinear", "MatMul"})
# What may stand between an op and the QuantizeLinear behind it: limits of the result.
_LIMITS: Final = ("Relu", "Clip")
# By how much the scale of a bias may differ from the product of the scales of data and weight, which is a float32.
_SAME: Final = 1e-6
_WIDEST: Final = 2**31 - 1
# The largest difference of two numbers of 8 bits; up to what sum floats of 32 bits have all integers.
_BYTE: Final = 255
_EXACT: Final = 2**24


@dataclass(frozen=True, slots=True, kw_only=True)
class _Integers:
    """A float tensor as integers: their tensor, scale, zero point (a tensor where it is not known before the run).

    `by`: the DequantizeLinear that makes the floats. `floats`: their element type.
    """

    name: str
    dtype: str
    scale: float
    zero: int
    zero_name: str
    floats: str
    by: Op

    @property
    def meaning(self) -> tuple[object, ...]:
        """What decides which number an integer stands for."""
        return self.dtype, self.scale, self.zero, self.zero_name

    @property
    def largest(self) -> int:
        """The largest |q − zero point|."""
        bounds: Any = np.iinfo(numpy_dtype(self.dtype))
        return max(int(bounds.max) - self.zero, self.zero - int(bounds.min)) if not self.zero_name else 255


@dataclass(frozen=True, slots=True, kw_only=True)
class _Epilogue:
    """The ops behind an op up to its QuantizeLinear, and what they make of its result: integers within limits."""

    ops: tuple[int, ...]
    output: str
    dtype: str
    scale: float
    zero: int
    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weight:
    """The second factor of a product: its integers, scales (one, or by output channel), and one zero point."""

    name: str
    scales: Array
    zero: int
    largest: int
    by: Op | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInIntegers:
    """Pass: ops on dequantised tensors become ops on the integers (IMPORT-9).

    1. A product whose factors are both dequantised sums integers, if the profile has an array for them and no sum can
       leave an accumulator of 32 bits. A bias joins the sum as int32 where its scale is that of the sum. A Relu or Clip
       and the QuantizeLinear behind it become limits and scaling of the sum.
    2. What moves elements moves the integers; the floats are made behind it, if anything still needs them.
    3. Any other op that has a quantised form takes up the conversions before and behind it.
    4. Scales of activations are constants of one element. The op that takes up nodes has them as origin.
    `arrays` are the element types that the profile has arrays for; `source` is the model file.
    """

    name: str = "integers"
    source: ModelSource
    arrays: Collection[str]

    def run(self, graph: Graph) -> Graph:
        """The graph in integers; the same object if nothing is dequantised."""
        if not any(op.kind in _BEGINS for op in graph.ops):
            return graph
        return _Rewriting(graph, opened(graph.source, self.source), multiplies=ARRAY_TYPE in self.arrays).graph_made()


class _Rewriting:
    """The state of one walk over a graph; lives as long as the walk."""

    def __init__(self, graph: Graph, source: ModelSource, *, multiplies: bool) -> None:
        self.graph = graph
        self.source = source
        self.multiplies = multiplies
        self.lookup = Lookup(graph, source)
        self.tensors = dict(graph.tensors)
        self.ops: list[Op] = []
        # the integers that a float tensor stands for; ops that others took up; DequantizeLinears in some op's origin
        self.integers: dict[str, _Integers] = {}
        self.taken: set[int] = set()
        self.named: set[str] = set()

    def graph_made(self) -> Graph:
        """The rewritten graph, without conversions that nobody reads."""
        for index, op in enumerate(self.graph.ops):
            if index in self.taken:
                continue
            if op.kind == "DequantizeLinear":
                self._note(op)
            elif op.kind in OP_KINDS and self._rewrite(index, op):
                continue
            self.ops.append(op)
        ops, read = [], set(self.graph.outputs)
        for op in reversed(self.ops):
            if op.kind != "DequantizeLinear" or op.output in read:
                ops.append(op)
                read.update(op.inputs)
        ops.reverse()
        names = {name for op in ops for name in (*op.inputs, op.output)} | {*self.graph.inputs, *self.graph.outputs}
        kept = {name: tensor for name, tensor in self.tensors.items() if name in names}
        patterns = tuple(pattern for pattern in self.graph.patterns if kept.keys() >= set(pattern.ops))
        return replace(self.graph, ops=tuple(ops), tensors=MappingProxyType(kept), patterns=patterns)

    def _rewrite(self, index: int, op: Op) -> bool:
        kind = OP_KINDS[op.kind]
        if op.kind == "MatMul" and self._packed(index, op):
            return True
        if isinstance(kind, Product):
            return self.multiplies and self._product(index, op)
        if op.kind in MOVES and self._moved(index, op):
            return True
        return name_of(op.kind) in ALL_KINDS and self._other(index, op)

    def _note(self, op: Op) -> None:
        """Remembers what a DequantizeLinear of one scale makes."""
        data, floats = self.tensors[op.inputs[0]], self.tensors[op.output].dtype
        scale = self.lookup.scalar(op.inputs[1])
        zero_name = op.inputs[2] if len(op.inputs) > 2 else ""
        zero = self.lookup.scalar(zero_name) if zero_name else 0.0
        if data.constant is not None or data.dtype not in QUANTISED or floats not in FLOATS:
            return
        if (
            scale is None
            or not isfinite(scale)
            or scale <= 0
            or (zero is None and self.tensors[zero_name].elements != 1)
        ):
            return
        self.integers[op.output] = _Integers(
            name=data.name,
            dtype=data.dtype,
            scale=float(np.float32(scale)),
            zero=int(zero or 0),
            zero_name=zero_name if zero is None else "",
            floats=floats,
            by=op,
        )

    def _epilogue(self, name: str) -> _Epilogue | None:
        """The QuantizeLinear that alone reads a tensor, directly or through limits; None if there is none."""
        limits: list[int] = []
        while (reader := self.lookup.sole_reader(name)) is not None:
            op = self.graph.ops[reader]
            if op.kind == "QuantizeLinear":
                return self._quantised_by(reader, limits) if op.inputs[0] == name else None
            if op.kind not in _LIMITS or op.inputs[0] != name or self._bounds(op) is None:
                return None
            limits.append(reader)
            name = op.output
        return None

    def _bounds(self, op: Op) -> tuple[float, float] | None:
        """The least and the most that a Relu or Clip lets pass; None if they are not known before the run."""
        if op.kind == "Relu":
            return 0.0, float("inf")
        attributes, found = dict(op.attributes), []
        for position, (name, default) in enumerate((("min", -float("inf")), ("max", float("inf"))), start=1):
            given = op.inputs[position] if len(op.inputs) > position else ""
            value = self.lookup.scalar(given) if given else attributes.get(name, default)
            if not isinstance(value, int | float) or value != value:
                return None
            found.append(float(value))
        return found[0], found[1]

    def _quantised_by(self, reader: int, limits: list[int]) -> _Epilogue | None:
        op = self.graph.ops[reader]
        result = self.tensors[op.output]
        scale = self.lookup.scalar(op.inputs[1])
        zero = self.lookup.scalar(op.inputs[2]) if len(op.inputs) > 2 and op.inputs[2] else 0.0
        if scale is None or zero is None or not isfinite(scale) or scale <= 0 or result.dtype not in QUANTISED:
            return None
        units, origin = np.asarray(scale, np.float32), np.asarray(int(zero))
        bounds: Any = np.iinfo(numpy_dtype(result.dtype))
        least, most = int(bounds.min), int(bounds.max)
        for limit in limits:
            low, high = self._bounds(self.graph.ops[limit]) or (0.0, 0.0)
            ends = np.asarray([low, high], np.float32)
            first, last = quantised(ends, units, origin, result.dtype).tolist()
            # as limits follow one another, a later one may move all that an earlier one let pass
            least, most = min(max(least, first), last), min(max(most, first), last)
        return _Epilogue(
            ops=(*limits, reader),
            output=op.output,
            dtype=result.dtype,
            scale=float(units),
            zero=int(zero),
            least=least,
            most=most,
        )

    def _product(self, index: int, op: Op) -> bool:
        """Puts a product of integers in the place of one of floats, if it can be one."""
        data, attributes = self.integers.get(op.inputs[0]), dict(op.attributes)
        if (
            data is None
            or data.dtype not in EIGHT_BITS
            or attributes.get("alpha", 1.0) != 1
            or attributes.get("beta", 1.0) != 1
        ):
            return False
        call = call_of(self.graph, op)
        weight = self._weight(op)
        if weight is None or (weight.by is not None and data.zero_name):
            return False
        depth, bias = _depth(op, call), self._bias(op, data, weight)
        if depth * data.largest * weight.largest + self._largest(bias) > _WIDEST:
            return False
        epilogue = self._epilogue(op.output)
        inputs = [data.name, weight.name, bias, "", data.zero_name]
        if weight.scales.size > 1:
            inputs[3] = self._constant(f"{op.output}/scales", literal(weight.scales.reshape(-1), "float32"))
        own: dict[str, Attribute] = {
            "input_scales": (data.scale, float(weight.scales.reshape(-1)[0]) if weight.scales.size == 1 else 0.0),
            "input_zeros": (data.zero, weight.zero),
        }
        made = self._result(op, data.floats, epilogue, own)
        if epilogue is None and not inputs[2] and data.scale == 1 and weight.scales.size == 1:
            made = self._sums(op, made, data, depth)
        while not inputs[-1]:
            inputs.pop()
        self._take(index, made, inputs, [data.by, weight.by])
        return True

    def _sums(self, op: Op, made: Op, data: _Integers, depth: int) -> Op:
        """A product whose result is converted to int32 alone gives its sums, which are int32."""
        reader = self.lookup.sole_reader(op.output, "Cast")
        if reader is None or dict(made.attributes)["input_scales"] != (1.0, 1.0):
            return made
        # a model that says so itself rounds the sums to floats first
        if depth * _BYTE * _BYTE >= _EXACT and data.by.origin != op.origin:
            return made
        cast = self.graph.ops[reader]
        if dict(cast.attributes).get("to") != ACCUMULATOR:
            return made
        self.taken.add(reader)
        attributes = {**dict(made.attributes), "result_type": ACCUMULATOR}
        return replace(
            made, output=cast.output, origin=made.origin + cast.origin, attributes=tuple(sorted(attributes.items()))
        )

    def _weight(self, op: Op) -> _Weight | None:
        """The second factor as integers; None if it is no dequantised tensor of one zero point and fitting scales."""
        name = op.inputs[1]
        made = self.integers.get(name)
        if made is not None:
            if made.zero_name or made.dtype not in EIGHT_BITS:
                return None
            return _Weight(
                name=made.name,
                scales=np.asarray([made.scale], np.float32),
                zero=made.zero,
                largest=made.largest,
                by=made.by,
            )
        tensor = self.tensors[name]
        if tensor.constant is None or tensor.stored_dtype not in EIGHT_BITS or tensor.dtype not in FLOATS:
            return None
        scales, zeros = scale_and_zero(tensor.constant, self.source)
        axis = _channel_axis(op, len(tensor.shape))
        along = [number for number, extent in enumerate(scales.shape) if extent > 1]
        if np.ptp(zeros.astype(np.int32)) or (along and along != [axis]) or not np.isfinite(scales).all():
            return None
        stored = stored_constant(tensor.constant)
        zero, bounds = int(zeros.reshape(-1)[0]), np.iinfo(numpy_dtype(stored.dtype))  # type: ignore[type-var]
        return _Weight(
            name=self._constant(f"{name}/integers", stored, axes=tensor.axes),
            scales=np.asarray(scales, dtype=np.float32),
            zero=zero,
            largest=max(int(bounds.max) - zero, zero - int(bounds.min)),
            by=None,
        )

    def _bias(self, op: Op, data: _Integers, weight: _Weight) -> str:
        """The third input: as the int32 that is stored where these count in units of the sums; "" if there is none."""
        name = op.inputs[2] if len(op.inputs) > 2 else ""
        constant = self.tensors[name].constant if name else None
        if constant is None or constant.stored_dtype != ACCUMULATOR or constant.dtype not in FLOATS:
            return name
        scales, zeros = scale_and_zero(constant, self.source)
        units = data.scale * weight.scales.astype(np.float64).reshape(-1)
        channels = 0 if op.kind in ("Conv", "ConvTranspose") else scales.ndim - 1
        along = [axis for axis, extent in enumerate(scales.shape) if extent > 1]
        if zeros.any() or along not in ([], [channels]) or scales.size not in (1, units.size):
            return name
        # not a number is near to nothing
        if not (np.abs(scales.astype(np.float64).reshape(-1) - units) <= _SAME * np.abs(units)).all():
            return name
        return self._constant(f"{name}/integers", stored_constant(constant), axes=self.tensors[name].axes)

    def _packed(self, index: int, op: Op) -> bool:
        """Puts a product by a weight of 4 bits, two in a byte, in the place of one by floats."""
        weight = self.tensors[op.inputs[1]].constant
        if weight is None or len(weight.shape) != 2 or op.inputs[0] in self.integers or op.symbols:
            return False
        found = packed_weight(weight, self.tensors[op.inputs[0]].dtype)
        if found is None:
            return False
        inputs = [op.inputs[0]]
        for role, constant in zip(("packed", "scales", "zeros"), found.constants, strict=False):
            inputs.append(self._constant(f"{op.inputs[1]}/{role}", constant))
        attributes = (("K", weight.shape[0]), ("N", weight.shape[1]), ("block_size", found.block))
        self._take(index, replace(op, kind="MatMulNBits", attributes=attributes), inputs, [])
        return True

    def _largest(self, bias: str) -> int:
        """The largest amount of a bias that joins the sums; 0 if none does."""
        constant = self.tensors[bias].constant if bias else None
        if constant is None or constant.dtype != ACCUMULATOR:
            return 0
        return int(np.abs(materialise(constant, self.source).astype(np.int64)).max(initial=0))

    def _moved(self, index: int, op: Op) -> bool:
        """Moves integers instead of the floats that they stand for."""
        data, kind = self.integers.get(op.inputs[0]), OP_KINDS[op.kind]
        if data is None or data.dtype not in kind.input_dtypes.get(0, kind.dtypes):
            return False
        epilogue = self._epilogue(op.output)
        output = self.tensors[op.output]
        if (
            epilogue is not None
            and (epilogue.dtype, epilogue.scale, epilogue.zero, "") == data.meaning
            and len(epilogue.ops) == 1
        ):
            made = replace(op, output=epilogue.output, origin=op.origin + self._origin(epilogue.ops))
            self._take(index, made, [data.name, *op.inputs[1:]], [data.by])
            return True
        name = self._free(f"{op.output}/integers")
        self.tensors[name] = replace(output, name=name, dtype=data.dtype)
        self._take(index, replace(op, output=name), [data.name, *op.inputs[1:]], [data.by])
        back = replace(data.by, inputs=(name, *data.by.inputs[1:]), output=op.output, origin=op.origin)
        self.ops.append(back)
        self.named.add(back.output)  # its origin is that of the op before it
        self.integers[op.output] = replace(data, name=name, by=back)
        return True

    def _other(self, index: int, op: Op) -> bool:
        """Puts the quantised form of an op in its place, if there is a conversion to take up."""
        read = [self.integers.get(name) for name in op.inputs]
        read = [None if found is None or found.zero_name else found for found in read]
        epilogue = self._epilogue(op.output)
        given = [found for found in read if found is not None]
        floats = {found.floats for found in given} or {self.tensors[op.output].dtype}
        if (not given and epilogue is None) or len(floats) != 1 or floats.isdisjoint(FLOATS):
            return False
        if op.kind == "Concat" and epilogue is not None and self._is_plain(read, epilogue):
            made = replace(op, output=epilogue.output, origin=op.origin + self._origin(epilogue.ops))
            self._take(index, made, [found.name for found in given], [found.by for found in given])
            return True
        own: dict[str, Attribute] = {
            "input_scales": tuple(0.0 if found is None else found.scale for found in read),
            "input_zeros": tuple(0 if found is None else found.zero for found in read),
        }
        made = self._result(op, floats.pop(), epilogue, own)
        inputs = [name if found is None else found.name for name, found in zip(op.inputs, read, strict=True)]
        self._take(index, made, inputs, [found.by for found in given])
        return True

    @staticmethod
    def _is_plain(read: list[_Integers | None], epilogue: _Epilogue) -> bool:
        """True if all inputs and the result have one meaning, and nothing limits it."""
        wanted = (epilogue.dtype, epilogue.scale, epilogue.zero, "")
        return len(epilogue.ops) == 1 and all(found is not None and found.meaning == wanted for found in read)

    def _result(self, op: Op, floats: str, epilogue: _Epilogue | None, own: dict[str, Attribute]) -> Op:
        """The quantised form with what follows it; inputs are still those of the op."""
        own["floats"] = floats
        if epilogue is None:
            own["result_type"] = self.tensors[op.output].dtype
            own["result_scale"] = 0.0
        else:
            own |= {
                "result_type": epilogue.dtype,
                "result_scale": epilogue.scale,
                "result_zero": epilogue.zero,
                "least": epilogue.least,
                "most": epilogue.most,
            }
        attributes = {**dict(op.attributes), **own}
        made = replace(op, kind=name_of(op.kind), attributes=tuple(sorted(attributes.items())))
        if epilogue is None:
            return made
        return replace(made, output=epilogue.output, origin=op.origin + self._origin(epilogue.ops))

    def _take(self, index: int, made: Op, inputs: list[str], conversions: list[Op | None]) -> None:
        """Appends an op that has taken up others."""
        origin = list(made.origin)
        for conversion in conversions:
            if conversion is not None and conversion.output not in self.named:
                self.named.add(conversion.output)
                origin += conversion.origin
        self.taken.add(index)
        self.ops.append(replace(made, inputs=tuple(inputs), origin=tuple(dict.fromkeys(origin))))

    def _origin(self, ops: tuple[int, ...]) -> tuple[str, ...]:
        self.taken.update(ops)
        return tuple(node for index in ops for node in self.graph.ops[index].origin)

    def _constant(self, name: str, constant: Constant, axes: tuple[str, ...] | None = None) -> str:
        """A constant of the graph; equal ones of one name are one."""
        known = self.tensors.get(name)
        if known is not None and known.constant == constant:
            return name
        name = self._free(name)
        self.tensors[name] = Tensor(
            name=name,
            shape=constant.shape,
            dtype=constant.dtype,
            axes=axes or default_axes(len(constant.shape)),
            constant=constant,
        )
        return name

    def _free(self, name: str) -> str:
        while name in self.tensors:
            name += "'"
        return name


def _depth(op: Op, call: Call) -> int:
    """How many products a sum has at most."""
    if op.kind in ("Conv", "ConvTranspose"):
        return call.tensor(1).elements // call.result.shape[1]
    return int(definition(op).work(call).macs)


def _channel_axis(op: Op, rank: int) -> int | None:
    """The axis of a product's weight that output channels lie on; None if none follows them alone."""
    attributes = dict(op.attributes)
    match op.kind:
        case "Conv":
            return 0
        case "ConvTranspose":
            return 1 if attributes.get("group", 1) == 1 else None
        case "Gemm":
            return 0 if attributes.get("transB") else 1
        case "MatMul" if rank > 1:
            return rank - 1
    return None
