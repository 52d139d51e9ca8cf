"""Quantised ops too large for a core are written as DequantizeLinear, the float op and QuantizeLinear (IMPORT-9).

The passes that split large ops work on float ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Final

import numpy as np

from compiler.frontend.constant_values import literal
from compiler.ir.graph import HOST, Attribute, Graph, Op, Tensor
from compiler.ops import call_of, definition
from compiler.ops.quantised import QuantisedOp, base_kind, inner_attributes
from compiler.ops.slab import lengths
from compiler.partition.alone import replace_refused
from compiler.partition.made import Made
from compiler.partition.partition import CandidateFactory
from compiler.profile.schema import Profile
from compiler.units import element_bytes, numpy_dtype

# An op fits if each constant, and what one output position reads, takes less than 1/16 of the core's memory.
_SMALL: Final = 16
# Limits in float lie this part of a step outside, so that they round to the integer limits in 16-bit floats too.
_SLACK: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class SpellOut:
    """Pass: quantised forms that fit no core become DequantizeLinear, the op, Clip and QuantizeLinear."""

    name: str = "spell-out"
    profile: Profile
    candidates: CandidateFactory = field(repr=False)

    def run(self, graph: Graph) -> Graph:
        """The graph with such ops replaced."""
        return replace_refused(graph, self.candidates, self._is_large, lambda made, op, _: _spelled_out(made, op))

    def _is_large(self, graph: Graph, op: Op) -> bool:
        """Whether what one position reads, or a constant, takes much of a core's memory."""
        if op.kind == HOST or not isinstance(definition(op), QuantisedOp):
            return False
        call = call_of(graph, op)
        first = tuple((0, 1) for _ in call.result.shape)
        boxes = zip(call.inputs, definition(op).demanded(call, first), strict=True)
        read = [prod(lengths(box)) * element_bytes(t.dtype) for t, box in boxes if t is not None and box is not None]
        held = [tensor.size_bytes for tensor in graph.weights(op)]
        return _SMALL * max((*read, *held), default=0) > self.profile.nram.capacity_bytes


def _spelled_out(made: Made, op: Op) -> list[Op]:
    attributes = dict(op.attributes)
    floats = str(attributes["floats"])
    ops: list[Op] = []
    inputs = list(op.inputs)
    for number, (scale, zero) in enumerate(
        zip(_list(attributes, "input_scales"), _list(attributes, "input_zeros"), strict=True)
    ):
        if scale:
            read = made.tensors[op.inputs[number]]
            name = made.add(replace(read, name=f"{op.output}/input{number}", dtype=floats, constant=None))
            given = (read.name, *_parameters(made, op, scale, int(zero), read.dtype))
            ops.append(Op(kind="DequantizeLinear", inputs=given, output=name, origin=op.origin))
            inputs[number] = name
    kind, own = base_kind(op.kind), tuple(sorted(inner_attributes(attributes).items()))
    output = made.tensors[op.output]
    if not attributes.get("result_scale"):
        return [*ops, replace(op, kind=kind, inputs=tuple(inputs), attributes=own)]
    result = made.add(replace(output, name=f"{op.output}/floats", dtype=floats))
    ops.append(replace(op, kind=kind, inputs=tuple(inputs), attributes=own, output=result))
    scale, zero, least, most = (_number(attributes, name) for name in ("result_scale", "result_zero", "least", "most"))
    bounds = np.iinfo(numpy_dtype(output.dtype))  # type: ignore[type-var]
    if (least, most) != (bounds.min, bounds.max):
        limited = made.add(replace(output, name=f"{op.output}/limited", dtype=floats))
        ends = (("max", (most - zero + _SLACK) * scale), ("min", (least - zero - _SLACK) * scale))
        ops.append(Op(kind="Clip", inputs=(result,), output=limited, origin=op.origin, attributes=ends))
        result = limited
    given = (result, *_parameters(made, op, scale, int(zero), output.dtype))
    return [*ops, Op(kind="QuantizeLinear", inputs=given, output=op.output, origin=op.origin)]


def _parameters(made: Made, op: Op, scale: float, zero: int, integers: str) -> tuple[str, str]:
    """Scale and zero point as constants."""
    found = []
    for role, value, dtype in (("scale", scale, "float32"), ("zero", zero, integers)):
        constant = literal(np.asarray(value), dtype)
        found.append(made.add(Tensor(name=f"{op.output}/{role}", shape=(), dtype=dtype, axes=(), constant=constant)))
    return found[0], found[1]


def _list(attributes: dict[str, Attribute], name: str) -> Sequence[float]:
    value = attributes[name]
    assert isinstance(value, tuple)
    return [float(item) for item in value]


def _number(attributes: dict[str, Attribute], name: str) -> float:
    value = attributes[name]
    assert isinstance(value, int | float)
    return float(value)
