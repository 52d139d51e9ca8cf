"""What follows an op up to its QuantizeLinear, as limits and a scaling of its result (IMPORT-9)."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from compiler.frontend.exact_moves import LIMITS
from compiler.frontend.patterns.graph_queries import Lookup
from compiler.ir.graph import Op
from compiler.ops.quantise import QUANTISED, quantised
from compiler.units import numpy_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Epilogue:
    """The ops behind an op up to its QuantizeLinear, and what they make of its result: integers within limits."""

    ops: tuple[int, ...]
    output: str
    dtype: str
    scale: float
    zero: int
    least: int
    most: int


def epilogue_of(lookup: Lookup, name: str) -> Epilogue | None:
    """The QuantizeLinear that alone reads a tensor, directly or through limits; None if there is none."""
    limits: list[int] = []
    while (reader := lookup.sole_reader(name)) is not None:
        op = lookup.graph.ops[reader]
        if op.kind == "QuantizeLinear":
            return _quantised_by(lookup, reader, limits) if op.inputs[0] == name else None
        if op.kind not in LIMITS or op.inputs[0] != name or bounds_of(lookup, op) is None:
            return None
        limits.append(reader)
        name = op.output
    return None


def bounds_of(lookup: Lookup, op: Op) -> tuple[float, float] | None:
    """The least and the most that a Relu or Clip lets pass; None if they are not known before the run."""
    if op.kind == "Relu":
        return 0.0, float("inf")
    attributes, found = dict(op.attributes), []
    for position, (name, default) in enumerate((("min", -float("inf")), ("max", float("inf"))), start=1):
        given = op.inputs[position] if len(op.inputs) > position else ""
        value = lookup.scalar(given) if given else attributes.get(name, default)
        if not isinstance(value, int | float) or value != value:
            return None
        found.append(float(value))
    return found[0], found[1]


def _quantised_by(lookup: Lookup, reader: int, limits: list[int]) -> Epilogue | None:
    op = lookup.graph.ops[reader]
    result = lookup.graph.tensors[op.output]
    scale = lookup.scalar(op.inputs[1])
    zero = lookup.scalar(op.inputs[2]) if len(op.inputs) > 2 and op.inputs[2] else 0.0
    if scale is None or zero is None or not isfinite(scale) or scale <= 0 or result.dtype not in QUANTISED:
        return None
    units, origin = np.asarray(scale, np.float32), np.asarray(int(zero))
    bounds: Any = np.iinfo(numpy_dtype(result.dtype))
    least, most = int(bounds.min), int(bounds.max)
    for limit in limits:
        low, high = bounds_of(lookup, lookup.graph.ops[limit]) or (0.0, 0.0)
        ends = np.asarray([low, high], np.float32)
        first, last = quantised(ends, units, origin, result.dtype).tolist()
        # as limits follow one another, a later one may move all that an earlier one let pass
        least, most = min(max(least, first), last), min(max(most, first), last)
    return Epilogue(
        ops=(*limits, reader),
        output=op.output,
        dtype=result.dtype,
        scale=float(units),
        zero=int(zero),
        least=least,
        most=most,
    )
