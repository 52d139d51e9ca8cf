"""Quantised networks in integers: what stands between DequantizeLinear and QuantizeLinear becomes one op (IMPORT-9)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType
from typing import Final

import numpy as np

from compiler.frontend.constant_values import literal, materialise
from compiler.frontend.epilogues import Epilogue, bounds_of, epilogue_of
from compiler.frontend.exact_moves import (
    LIMITS,
    ORDERS,
    Integers,
    attributes_on_integers,
    data_of,
    feeding_products,
    is_move,
)
from compiler.frontend.integer_factors import (
    Weight,
    depth_of,
    stored_bias,
    stored_weight,
    weight_by_channel,
    weight_made,
)
from compiler.frontend.packed_weights import packed_weight
from compiler.frontend.patterns.graph_queries import Lookup
from compiler.frontend.source import ModelSource, opened
from compiler.ir.constant import Constant
from compiler.ir.graph import Attribute, Graph, Op, Tensor
from compiler.ops import ALL_KINDS, OP_KINDS, call_of
from compiler.ops.base import FLOATS, Call, default_axes
from compiler.ops.contraction import Product
from compiler.ops.quantise import QUANTISED
from compiler.ops.quantised import (
    ACCUMULATOR,
    ARRAY_TYPE,
    EIGHT_BITS,
    LARGEST_DIFFERENCE,
    WEIGHT_SCALE,
    WEIGHT_ZERO,
    name_of,
)

# Without any of these a graph has nothing that is quantised.
_BEGINS: Final = frozenset({"DequantizeLinear", "QuantizeLinear", "MatMul", "Gemm"})
_WIDEST: Final = 2**31 - 1
# Up to what sum floats of 32 bits have all integers.
_EXACT: Final = 2**24
# What sums are multiplied in by scales of the run.
_WIDE: Final = "float32"
# So many elements a constant has at most that becomes integers because data beside it are.
_FEW: Final = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInIntegers:
    """Pass: ops on dequantised tensors become ops on the integers (IMPORT-9).

    1. A product whose factors are both dequantised sums integers, if the profile has an array for them and no sum can
       leave an accumulator of 32 bits. A bias joins the sum as int32 where its scale is that of the sum. A Relu or Clip
       and the QuantizeLinear behind it become limits and scaling of the sum. Weights of 4 bits stay packed. Where there
       is no such sum, a product by a matrix of 4 bits becomes a MatMulNBits.
    2. What moves elements moves the integers; the floats are made behind it, if anything still needs them. The same
       holds for limits before a product. ArgMax and ArgMin compare integers.
    3. Any other op that has a quantised form takes up the conversions before and behind it.
    4. Activations have one scale and zero point each. Those that are known at run time only are taken up by products
       alone. The op that takes up nodes has them as origin.
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
        self.integers: dict[str, Integers] = {}
        self.taken: set[int] = set()
        self.named: set[str] = set()
        self.multiplied = feeding_products(graph) if multiplies else frozenset()

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
        if isinstance(kind, Product):
            return (self.multiplies and self._product(index, op)) or self._packed(index, op)
        if op.kind in ORDERS:
            return self._ordered(index, op)
        if is_move(op) and self._moved(index, op):
            return True
        if op.kind in LIMITS and op.output in self.multiplied and self._limited(index, op):
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
        parameters = zip((scale, zero), (op.inputs[1], zero_name), strict=True)
        if any(value is None and self.tensors[name].elements != 1 for value, name in parameters):
            return
        if scale is not None and not 0 < scale < inf:
            return
        self.integers[op.output] = Integers(
            name=data.name,
            dtype=data.dtype,
            scale=1.0 if scale is None else float(np.float32(scale)),
            zero=int(zero or 0),
            scale_name=op.inputs[1] if scale is None else "",
            zero_name=zero_name if zero is None else "",
            floats=floats,
            by=op,
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
        weight = self._weight(op, call)
        if weight is None:
            return False
        scales = [name for name in (data.scale_name, weight.scale_name) if name]
        rank = max((len(self.tensors[scale].shape) for scale in scales), default=0)
        if scales and (len(op.inputs) > 2 or rank > len(call.result.shape)):
            return False
        depth, bias = depth_of(op, call), self._bias(op, data, weight)
        if depth * data.largest * weight.largest + self._largest(bias) > _WIDEST:
            return False
        epilogue, name = None if scales else epilogue_of(self.lookup, op.output), weight.name
        if weight.constant is not None:
            axes = self.tensors[op.inputs[1]].axes if not weight.layout else None
            name = self._constant(name, weight.constant, axes)
        inputs = [data.name, name, bias, "", data.zero_name, weight.zero_name]
        if weight.scales.size > 1:
            inputs[WEIGHT_SCALE] = self._constant(f"{op.output}/scales", literal(weight.scales, "float32"))
        if weight.zeros.size > 1:
            inputs[WEIGHT_ZERO] = self._constant(f"{op.output}/zeros", literal(weight.zeros, ACCUMULATOR))
        own: dict[str, Attribute] = {
            "input_scales": (data.scale, float(weight.scales[0]) if weight.scales.size == 1 else 0.0),
            "input_zeros": (data.zero, int(weight.zeros[0]) if weight.zeros.size == 1 else 0),
        }
        if weight.layout:
            own["packed"] = weight.layout
        made = self._result(op, data.floats, epilogue, own)
        if epilogue is None and not scales and not inputs[2] and data.scale == 1 and weight.scales.size == 1:
            made = self._sums(op, made, data, depth)
        while not inputs[-1]:
            inputs.pop()
        if not scales:
            self._take(index, made, inputs, [data.by, weight.by])
            return True
        attributes = {**dict(made.attributes), "floats": _WIDE, "result_type": _WIDE}
        sums = self._floats_of(f"{op.output}/sums", op.output)
        made = replace(made, output=sums, attributes=tuple(sorted(attributes.items())))
        self._take(index, made, inputs, [data.by, weight.by])
        self._scale(index, op, sums, scales)
        return True

    def _scale(self, index: int, op: Op, sums: str, scales: list[str]) -> None:
        """Multiplies sums by scales that are known at run time only; in float32, which has room for sums."""
        dtype = self.tensors[op.output].dtype
        for number, scale in enumerate(scales, start=1):
            wide = scale
            if dtype != _WIDE:
                wide = self._floats_of(f"{op.output}/scale", scale)
                cast = (("to", _WIDE),)
                self.ops.append(Op(kind="Cast", inputs=(scale,), output=wide, attributes=cast, origin=op.origin))
            is_last = number == len(scales) and dtype == _WIDE
            made = op.output if is_last else self._floats_of(f"{op.output}/scaled", op.output)
            self._follow(index, Op(kind="Mul", inputs=(sums, wide), output=made, origin=op.origin))
            sums = made
        if dtype != _WIDE:
            narrow = (("to", dtype),)
            self.ops.append(Op(kind="Cast", inputs=(sums,), output=op.output, attributes=narrow, origin=op.origin))

    def _floats_of(self, name: str, like: str) -> str:
        """A new float32 tensor of another's shape."""
        name = self._free(name)
        self.tensors[name] = replace(self.tensors[like], name=name, dtype=_WIDE)
        return name

    def _follow(self, index: int, op: Op) -> None:
        """Appends an op that is made beside another, with what it can take up."""
        if not self._other(index, op):
            self.ops.append(op)

    def _sums(self, op: Op, made: Op, data: Integers, depth: int) -> Op:
        """A product whose result is converted to int32 alone gives its sums, which are int32."""
        reader = self.lookup.sole_reader(op.output, "Cast")
        if reader is None or dict(made.attributes)["input_scales"] != (1.0, 1.0):
            return made
        # a model that says so itself rounds the sums to floats first
        if depth * LARGEST_DIFFERENCE**2 >= _EXACT and data.by.origin != op.origin:
            return made
        cast = self.graph.ops[reader]
        if dict(cast.attributes).get("to") != ACCUMULATOR:
            return made
        self.taken.add(reader)
        attributes = {**dict(made.attributes), "result_type": ACCUMULATOR}
        return replace(
            made, output=cast.output, origin=made.origin + cast.origin, attributes=tuple(sorted(attributes.items()))
        )

    def _weight(self, op: Op, call: Call) -> Weight | None:
        """The second factor as integers; None if it is none."""
        name = op.inputs[1]
        made, maker = self.integers.get(name), self.lookup.maker(name)
        if made is not None:
            return weight_made(made)
        if maker is not None:
            return weight_by_channel(op, call, self.graph.ops[maker], self.tensors, self.source)
        return stored_weight(op, call, self.tensors[name], self.source)

    def _bias(self, op: Op, data: Integers, weight: Weight) -> str:
        """The third input: as the int32 that is stored where these count in units of the sums; "" if there is none."""
        name = op.inputs[2] if len(op.inputs) > 2 else ""
        constant = self.tensors[name].constant if name else None
        if constant is None:
            return name
        stored = stored_bias(op, constant, data.scale * weight.scales.astype(np.float64), self.source)
        return name if stored is None else self._constant(f"{name}/integers", stored, axes=self.tensors[name].axes)

    def _packed(self, index: int, op: Op) -> bool:
        """Puts a product by a matrix of 4 bits, two in a byte, and the sum with a bias in the place of an op."""
        weight, attributes = self.tensors[op.inputs[1]].constant, dict(op.attributes)
        if op.kind not in ("MatMul", "Gemm") or weight is None or len(weight.shape) != 2 or op.symbols:
            return False
        if attributes.get("transA") or attributes.get("alpha", 1.0) != 1 or attributes.get("beta", 1.0) != 1:
            return False
        inner_axis = 1 if attributes.get("transB") else 0
        found = packed_weight(weight, self.tensors[op.inputs[0]].dtype, inner_axis)
        if found is None:
            return False
        inputs = [op.inputs[0]]
        for role, constant in zip(("packed", "scales", "zeros"), found.constants, strict=False):
            inputs.append(self._constant(f"{op.inputs[1]}/{role}", constant))
        given = (("K", weight.shape[inner_axis]), ("N", weight.shape[1 - inner_axis]), ("block_size", found.block))
        made, bias = replace(op, kind="MatMulNBits", attributes=given), "".join(op.inputs[2:])
        if not bias:
            self._take(index, made, inputs, [])
            return True
        product = self._free(f"{op.output}/product")
        self.tensors[product] = replace(self.tensors[op.output], name=product)
        self._take(index, replace(made, output=product), inputs, [])
        self._follow(index, Op(kind="Add", inputs=(product, bias), output=op.output, origin=op.origin))
        return True

    def _largest(self, bias: str) -> int:
        """The largest amount of a bias that joins the sums; 0 if none does."""
        constant = self.tensors[bias].constant if bias else None
        if constant is None or constant.dtype != ACCUMULATOR:
            return 0
        return int(np.abs(materialise(constant, self.source).astype(np.int64)).max(initial=0))

    def _moved(self, index: int, op: Op) -> bool:
        """Moves integers instead of the floats that they stand for."""
        read = [self.integers.get(name) for name in data_of(op)]
        data, kind = next((found for found in read if found is not None), None), OP_KINDS[op.kind]
        if data is None or data.dtype not in kind.input_dtypes.get(0, kind.dtypes):
            return False
        if any(found is not None and (found.meaning, found.floats) != (data.meaning, data.floats) for found in read):
            return False
        epilogue, output = epilogue_of(self.lookup, op.output), self.tensors[op.output]
        is_plain = epilogue is not None and (epilogue.dtype, epilogue.scale, epilogue.zero, "", "") == data.meaning
        is_plain &= epilogue is not None and len(epilogue.ops) == 1
        # the quantised form converts what it reads too
        reads = sum(int(self.tensors[name].elements) for name in data_of(op))
        if epilogue is not None and not is_plain and name_of(op.kind) in ALL_KINDS and reads <= output.elements:
            return False
        attributes = attributes_on_integers(op, data)
        names = [found.name if found else self._exact(name, data) for found, name in zip(read, op.inputs, strict=False)]
        if attributes is None or "" in names:
            return False
        inputs = [*names, *op.inputs[len(names) :]]
        conversions = [None if found is None else found.by for found in read]
        made = replace(op, attributes=attributes)
        if epilogue is not None and is_plain:
            made = replace(made, output=epilogue.output, origin=op.origin + self._origin(epilogue.ops))
            self._take(index, made, inputs, conversions)
            return True
        made = replace(made, output=self._dequantised_behind(op, data))
        self._take(index, made, inputs, conversions)
        self.ops.append(self.integers[op.output].by)
        return True

    def _dequantised_behind(self, op: Op, data: Integers) -> str:
        """A tensor for an op's integers, which mean what those of its data do; the floats are made from it."""
        name = self._free(f"{op.output}/integers")
        self.tensors[name] = replace(self.tensors[op.output], name=name, dtype=data.dtype)
        back = replace(data.by, inputs=(name, *data.by.inputs[1:]), output=op.output, origin=op.origin)
        self.named.add(back.output)  # its origin is that of the op before it
        self.integers[op.output] = replace(data, name=name, by=back)
        return name

    def _exact(self, name: str, data: Integers) -> str:
        """A constant as integers that mean what those of the data do; "" if it has none, or is large."""
        tensor = self.tensors[name]
        constant = tensor.constant
        if constant is None or constant.dtype != data.floats or tensor.elements > _FEW:
            return ""
        found = data.exact(materialise(constant, self.source))
        return "" if found is None else self._constant(f"{name}/integers", literal(found, data.dtype), tensor.axes)

    def _ordered(self, index: int, op: Op) -> bool:
        """Finds positions among integers, if unequal ones stand for unequal floats."""
        data = self.integers.get(op.inputs[0])
        if data is None or not data.is_known or data.dtype not in OP_KINDS[op.kind].dtypes:
            return False
        numbers = data.numbers()
        if not np.greater(numbers[1:], numbers[:-1]).all():
            return False
        self._take(index, op, [data.name], [data.by])
        return True

    def _limited(self, index: int, op: Op) -> bool:
        """Limits the integers before a product, if each then stands for the limited float."""
        data, bounds = self.integers.get(op.inputs[0]), bounds_of(self.lookup, op)
        if data is None or bounds is None or not data.is_known or epilogue_of(self.lookup, op.output) is not None:
            return False
        numbers = data.numbers()
        low, high = (numbers.dtype.type(bound) for bound in bounds)
        if data.exact(np.minimum(np.maximum(numbers, low), high)) is None:
            return False
        least, most = data.bounds
        name = self._dequantised_behind(op, data)
        same = Epilogue(ops=(), output=name, dtype=data.dtype, scale=data.scale, zero=data.zero, least=least, most=most)
        self._other(index, op, same)
        self.ops.append(self.integers[op.output].by)
        return True

    def _other(self, index: int, op: Op, epilogue: Epilogue | None = None) -> bool:
        """Puts the quantised form of an op in its place, if there is a conversion to take up."""
        read = [self.integers.get(name) for name in op.inputs]
        read = [found if found is not None and found.is_known else None for found in read]
        epilogue = epilogue or epilogue_of(self.lookup, op.output)
        given = [found for found in read if found is not None]
        floats = {found.floats for found in given} or {self.tensors[op.output].dtype}
        if (not given and epilogue is None) or len(floats) != 1 or floats.isdisjoint(FLOATS):
            return False
        own: dict[str, Attribute] = {
            "input_scales": tuple(0.0 if found is None else found.scale for found in read),
            "input_zeros": tuple(0 if found is None else found.zero for found in read),
        }
        made = self._result(op, floats.pop(), epilogue, own)
        inputs = [name if found is None else found.name for name, found in zip(op.inputs, read, strict=True)]
        self._take(index, made, inputs, [found.by for found in given])
        return True

    def _result(self, op: Op, floats: str, epilogue: Epilogue | None, own: dict[str, Attribute]) -> Op:
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
