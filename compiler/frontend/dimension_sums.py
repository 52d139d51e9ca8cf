"""Dimensions of inputs that are named as sums of others, such as `past_sequence_length + sequence_length`.

Exporters of decoders name the extent of an attention mask so, since torch keeps no relation between dimensions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import onnx

from compiler.frontend.constant_values import declared_extent
from compiler.ir.symbol import Expression


def declared_sums(graph: onnx.GraphProto) -> Mapping[str, Expression]:
    """By name, the dimensions of inputs that are sums of at least one other dimension of inputs and of numbers."""
    given = (dim for value in graph.input for dim in value.type.tensor_type.shape.dim if declared_extent(dim) is None)
    names = {dim.dim_param for dim in given if isinstance(dim.dim_param, str) and dim.dim_param}
    found = ((name, _sum(name, names)) for name in sorted(names) if "+" in name)
    return {name: one for name, one in found if one is not None}


def _sum(name: str, names: set[str]) -> Expression | None:
    parts = [part.strip() for part in name.split("+")]
    counts = Counter(part for part in parts if part in names)
    numbers = [part for part in parts if part not in names]
    if not counts or not all(part.isdecimal() and len(part) < 10 for part in numbers):
        return None
    return Expression(terms=tuple(sorted(counts.items())), constant=sum(map(int, numbers)))
