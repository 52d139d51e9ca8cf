"""Reads of a number in double precision that was one of single or half precision before: taken from there.

Torch's exporter asks whether a value is infinite after a Cast to float64, which the accelerator lacks. A float keeps
its value in float64, so what reads it there may read the float itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from compiler.ir.graph import HOST, HostNode, Op, Tensor
from compiler.ops.base import FLOATS, Call

# Operators whose result depends on the value of input 0 alone, not on its element type.
_READERS: Final = ("Cast", "IsInf", "IsNaN")
# From this operator set on IsInf takes half precision.
_INFINITE_HALVES: Final = 20


def without_detour(
    call: Call,
    made_by: Mapping[str, int],
    ops: Sequence[Op],
    hosts: Mapping[str, HostNode],
    tensors: Mapping[str, Tensor],
) -> Call:
    """The call, with what a Cast to float64 on the host was given in place of its result; `made_by`: by position."""
    given = call.inputs[0] if call.op_type in _READERS and call.inputs else None
    if given is None or given.dtype != "float64" or given.name not in made_by:
        return call
    maker = ops[made_by[given.name]]
    is_cast = maker.kind == HOST and hosts[str(dict(maker.attributes)["node"])].op_type == "Cast"
    source = tensors.get(maker.inputs[0]) if is_cast else None
    if source is None or source.dtype not in FLOATS:
        return call
    if call.op_type == "IsInf" and source.dtype != "float32" and call.opset < _INFINITE_HALVES:
        return call
    return replace(call, inputs=(source, *call.inputs[1:]))
