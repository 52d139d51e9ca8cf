"""Products of halves in the chip's float32 array, where it has none for halves (IMPORT-7).

A product of two float16 or bfloat16 numbers is exact in float32, in which such products are summed anyway. So factors
are converted before, constant ones at compile time, and the sums behind: the result is what an array for halves makes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from compiler.frontend.constant_values import derive
from compiler.ir.constant import Opaque
from compiler.ir.graph import Graph, Op, Tensor
from compiler.profile.schema import Profile

_WIDE: Final = "float32"
_HALVES: Final = frozenset({"float16", "bfloat16"})
_PRODUCTS: Final = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WidenProducts:
    """Pass: products of halves become products of float32 between conversions, if the profile has that array alone."""

    name: str = "widen-products"
    profile: Profile

    def run(self, graph: Graph) -> Graph:
        """The graph with such products; what they are called stays the name of the converted result."""
        arrays = self.profile.matrix.arrays
        narrow = _HALVES.difference(arrays) if _WIDE in arrays else frozenset()
        chosen = {op.output for op in graph.ops if op.kind in _PRODUCTS and graph.tensors[op.output].dtype in narrow}
        if not chosen:
            return graph
        tensors, ops, wide = dict(graph.tensors), list[Op](), dict[str, str]()
        for op in graph.ops:
            if op.output not in chosen:
                ops.append(op)
                continue
            for name in dict.fromkeys(op.inputs):
                if name and name not in wide:
                    wide[name] = _widened(name, tensors)
                    if tensors[name].constant is None:
                        ops.append(_cast(name, wide[name], _WIDE, op.origin))
            sums = _added(replace(tensors[op.output], dtype=_WIDE), tensors)
            ops.append(replace(op, inputs=tuple(wide.get(name, "") for name in op.inputs), output=sums))
            ops.append(_cast(sums, op.output, tensors[op.output].dtype, op.origin))
        read = {name for op in ops for name in (*op.inputs, op.output)} | {*graph.inputs, *graph.output_tensors}
        return replace(
            graph,
            ops=tuple(ops),
            tensors=MappingProxyType({name: its for name, its in tensors.items() if name in read}),
            # what a pattern names is a product no more
            patterns=tuple(pattern for pattern in graph.patterns if chosen.isdisjoint(pattern.ops)),
        )


def _widened(name: str, tensors: dict[str, Tensor]) -> str:
    """The name of the same values in float32; a constant is converted."""
    tensor = tensors[name]
    constant = tensor.constant
    if constant is not None and not isinstance(constant.data, Opaque):
        constant = derive("Cast", (constant,), constant.shape, {"to": _WIDE}, _WIDE)
    return _added(replace(tensor, dtype=_WIDE, constant=constant), tensors)


def _added(tensor: Tensor, tensors: dict[str, Tensor]) -> str:
    name = f"{tensor.name}/wide"
    while name in tensors:
        name += "'"
    tensors[name] = replace(tensor, name=name)
    return name


def _cast(source: str, target: str, dtype: str, origin: tuple[str, ...]) -> Op:
    return Op(kind="Cast", inputs=(source,), output=target, attributes=(("to", dtype),), origin=origin)
