"""Written-out softmax: the exponential divided by its sum over one axis, with or without subtracting the maximum."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from compiler.frontend.patterns.graph_queries import Lookup, Replacement, Rewrite


def _softmax(lookup: Lookup, index: int) -> Replacement | None:
    """The rewrite at the exponential."""
    graph = lookup.graph
    exponential = graph.ops[index]
    readers = lookup.readers(exponential.output)
    total = next((reader for reader in readers if graph.ops[reader].kind == "ReduceSum"), None)
    axis = _axis(lookup, total) if total is not None else None
    if total is None or axis is None:
        return None
    quotient = lookup.sole_reader(graph.ops[total].output, "Div")
    if quotient is None or graph.ops[quotient].inputs != (exponential.output, graph.ops[total].output):
        return None
    found = {index, total, quotient}
    x, shift = _unshifted(lookup, exponential.inputs[0], axis)
    if not lookup.is_closed(found | shift):
        x, shift = exponential.inputs[0], frozenset()
    if not lookup.is_closed(found | shift):
        return None
    return Replacement(
        pattern="softmax",
        ops=tuple(sorted(found | shift)),
        kind="Softmax",
        inputs=(x,),
        attributes={"axis": axis},
    )


def _axis(lookup: Lookup, reduction: int) -> int | None:
    """The axis of a reduction over exactly one kept axis; None for other reductions."""
    attributes = dict(lookup.graph.ops[reduction].attributes)
    axes = attributes.get("axes")
    if not isinstance(axes, tuple) or len(axes) != 1 or not attributes.get("keepdims"):
        return None
    return int(axes[0])


def _unshifted(lookup: Lookup, name: str, axis: int) -> tuple[str, frozenset[int]]:
    """x and the skipped ops if `name` is x − max(x), whose softmax is that of x; else `name` and no ops."""
    difference = lookup.maker(name, "Sub")
    if difference is not None:
        x, top = lookup.graph.ops[difference].inputs
        maximum = lookup.maker(top, "ReduceMax")
        if maximum is not None and lookup.graph.ops[maximum].inputs[0] == x and _axis(lookup, maximum) == axis:
            return x, frozenset((difference, maximum))
    return name, frozenset()


SOFTMAX: Final[Mapping[str, Rewrite]] = MappingProxyType({"Exp": _softmax})
