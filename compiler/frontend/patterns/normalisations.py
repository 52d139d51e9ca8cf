"""LayerNorm and RMSNorm written out as reductions and arithmetic (IMPORT-2).

    layer-norm   d = x − mean(x),  d / √(mean(d²) + ε) · scale + bias
    rms-norm     d = x,            d / √(mean(d²) + ε) · scale

over the last axis or axes. The square is a power or a product; the quotient is a division or a product with the
reciprocal. ε, scale and bias are optional; d may be computed twice. Values between x and the quotient may have a wider
element type if the quotient is converted back before scale and bias: ONNX defines both ops that way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from compiler.frontend.constant_values import derive
from compiler.frontend.patterns.graph_queries import Lookup, Replacement, Rewrite
from compiler.ir.constant import Constant, Splat
from compiler.ir.graph import Op, Tensor
from compiler.units import numpy_dtype

# Wider types that represent every value of an element type exactly.
_WIDER: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "float16": ("float16", "float32", "float64"),
        "bfloat16": ("bfloat16", "float32", "float64"),
        "float32": ("float32", "float64"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quotient:
    """d / √(mean(d²) + ε): its ops from x on, the op that makes it, and how it reads x.

    `entries` are the tensors where it begins: x itself, or conversions of x.
    """

    ops: frozenset[int]
    last: int
    entries: tuple[str, ...]
    axis: int
    epsilon: float
    is_centred: bool


class _Walk:
    """A walk upwards from a root; remembers the ops passed."""

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self.ops: set[int] = set()

    def op(self, name: str, *kinds: str) -> Op | None:
        """The op of one of `kinds` that makes `name`, skipping conversions."""
        passed = []
        maker = self.lookup.maker(name)
        while maker is not None and self.lookup.graph.ops[maker].kind == "Cast":
            passed.append(maker)
            maker = self.lookup.maker(self.lookup.graph.ops[maker].inputs[0])
        if maker is None or self.lookup.graph.ops[maker].kind not in kinds:
            return None
        self.ops.update((*passed, maker))
        return self.lookup.graph.ops[maker]

    def reduced(self, name: str) -> tuple[str, tuple[int, ...]] | None:
        """The operand and the axes if `name` is a mean that keeps its axes with extent 1, else None."""
        op = self.op(name, "ReduceMean")
        attributes = dict(op.attributes) if op is not None else {}
        axes = attributes.get("axes")
        if op is None or not isinstance(axes, tuple) or not attributes.get("keepdims"):
            return None
        return op.inputs[0], tuple(int(axis) for axis in axes)

    def squared(self, name: str) -> str | None:
        """The operand if `name` is a square, else None."""
        op = self.op(name, "Pow", "Mul")
        if op is None:
            return None
        if op.kind == "Pow":
            return op.inputs[0] if self.lookup.scalar(op.inputs[1]) == 2 else None
        return op.inputs[0] if op.inputs[0] == op.inputs[1] else None

    def centred(self, name: str, axes: tuple[int, ...]) -> tuple[str, ...] | None:
        """The operands x of x − mean(x) over `axes`; None if `name` is something else."""
        op = self.op(name, "Sub")
        mean = self.reduced(op.inputs[1]) if op is not None else None
        if op is None or mean is None or mean[1] != axes:
            return None
        return op.inputs[0], mean[0]


def _normalisation(lookup: Lookup, index: int) -> Replacement | None:
    """The rewrite at the square root."""
    quotient = _quotient(lookup, index)
    if quotient is None:
        return None
    # include the conversion of x if possible, else start behind it
    casts = [lookup.maker(entry, "Cast") for entry in quotient.entries]
    sources = [lookup.graph.ops[cast].inputs[0] for cast in casts if cast is not None]
    for x in dict.fromkeys((*sources, *quotient.entries)):
        found = _finished(lookup, quotient, x)
        if found is not None:
            return found
    return None


def _quotient(lookup: Lookup, index: int) -> _Quotient | None:
    walk = _Walk(lookup)
    walk.ops.add(index)
    root = lookup.graph.ops[index]
    exponent = lookup.scalar(root.inputs[1]) if root.kind == "Pow" else 0.5
    if exponent not in (0.5, -0.5):
        return None
    epsilon, mean_square = _without_epsilon(walk, root.inputs[0])
    mean = walk.reduced(mean_square)
    deviation = walk.squared(mean[0]) if mean is not None else None
    divided = _divided(walk, root.output, is_inverse=exponent == -0.5)
    if mean is None or deviation is None or divided is None or not 0 <= epsilon < float("inf"):
        return None
    dividend, last = divided
    axes = mean[1]
    entries = _both_centred(walk, deviation, dividend, axes)
    is_centred = entries is not None
    if entries is None:
        entries = (deviation, dividend)
    rank = len(lookup.tensor(dividend).shape)
    if axes != tuple(range(rank - len(axes), rank)):
        return None
    return _Quotient(
        ops=frozenset(walk.ops),
        last=last,
        entries=tuple(dict.fromkeys(entries)),
        axis=rank - len(axes),
        epsilon=epsilon,
        is_centred=is_centred,
    )


def _without_epsilon(walk: _Walk, name: str) -> tuple[float, str]:
    """The constant added under the root, and the other operand; 0 if there is none (exporters drop tiny ones)."""
    op = walk.op(name, "Add", "Sum")
    split = walk.lookup.split(op) if op is not None else None
    return (0.0, name) if split is None else (split[1], split[0])


def _divided(walk: _Walk, name: str, *, is_inverse: bool) -> tuple[str, int] | None:
    """The value divided by `name` (multiplied if `name` is the inverse), and the op that makes the quotient."""
    lookup = walk.lookup
    while (reader := lookup.sole_reader(name)) is not None:
        op = lookup.graph.ops[reader]
        walk.ops.add(reader)
        if op.kind == "Cast":
            name = op.output
        elif not is_inverse and (op.kind == "Reciprocal" or _is_one_over(lookup, op, name)):
            name, is_inverse = op.output, True
        elif not is_inverse and op.kind == "Div" and op.inputs[1] == name:
            return op.inputs[0], reader
        elif is_inverse and op.kind == "Mul":
            return op.inputs[1 if op.inputs[0] == name else 0], reader
        else:
            return None
    return None


def _is_one_over(lookup: Lookup, op: Op, name: str) -> bool:
    return op.kind == "Div" and op.inputs[1] == name and lookup.scalar(op.inputs[0]) == 1


def _both_centred(walk: _Walk, deviation: str, dividend: str, axes: tuple[int, ...]) -> tuple[str, ...] | None:
    """The operands x of both, if both are x − mean(x), computed once or twice; else None."""
    before = set(walk.ops)
    first, second = walk.centred(deviation, axes), walk.centred(dividend, axes)
    if first is None or second is None:
        walk.ops = before
        return None
    return first + second


def _finished(lookup: Lookup, quotient: _Quotient, x: str) -> Replacement | None:
    """The op on `x` that replaces the quotient and the following scale and bias."""
    graph, data = lookup.graph, lookup.tensor(x)
    ops = set(quotient.ops)
    for entry in quotient.entries:
        if entry != x:
            cast = lookup.maker(entry, "Cast")
            if cast is None or graph.ops[cast].inputs[0] != x:
                return None
            ops.add(cast)
    last = quotient.last
    if lookup.tensor(graph.ops[last].output).dtype != data.dtype:
        back = lookup.sole_reader(graph.ops[last].output, "Cast")
        if back is None or lookup.tensor(graph.ops[back].output).dtype != data.dtype:
            return None
        last = back
        ops.add(back)
    wider = _WIDER.get(data.dtype, ())
    if not all(lookup.tensor(graph.ops[index].output).dtype in wider for index in ops):
        return None
    # a new constant scale needs fixed extents
    if any(varying >= quotient.axis for varying, _ in data.symbols):
        return None
    scale, last = _parameter(lookup, last, "Mul", data, quotient.axis)
    bias = None
    if scale is not None:
        ops.add(last)
    if quotient.is_centred:
        bias, last = _parameter(lookup, last, "Add", data, quotient.axis)
        ops.add(last)
    if not lookup.is_closed(ops):
        return None
    inputs = (x, _ones(data, quotient.axis) if scale is None else scale, *(() if bias is None else (bias,)))
    pattern, kind = ("layer-norm", "LayerNormalization") if quotient.is_centred else ("rms-norm", "RMSNormalization")
    return Replacement(
        pattern=pattern,
        ops=tuple(sorted(ops)),
        kind=kind,
        inputs=inputs,
        attributes={"axis": quotient.axis, "epsilon": quotient.epsilon},
    )


def _parameter(lookup: Lookup, last: int, kind: str, data: Tensor, axis: int) -> tuple[str | Constant | None, int]:
    """The constant by which the sole reader multiplies (or adds), in the normalised axes' shape, and that reader.

    If there is no such constant: None, and `last`.
    """
    name = lookup.graph.ops[last].output
    reader = lookup.sole_reader(name, kind)
    if reader is None:
        return None, last
    op = lookup.graph.ops[reader]
    others = [other for other in op.inputs if other != name]
    constant = lookup.tensor(others[0]).constant if len(others) == 1 and not op.attributes else None
    wanted = data.shape[axis:]
    if constant is None or (1,) * (len(data.shape) - len(constant.shape)) + constant.shape != (1,) * axis + wanted:
        return None, last
    if constant.shape == wanted:
        return others[0], reader
    return derive("Reshape", (constant,), wanted, {"shape": wanted}), reader


def _ones(data: Tensor, axis: int) -> Constant:
    value = np.ones((), dtype=numpy_dtype(data.dtype)).tobytes()
    return Constant(shape=data.shape[axis:], dtype=data.dtype, data=Splat(value=value))


NORMALISATIONS: Final[Mapping[str, Rewrite]] = MappingProxyType({"Sqrt": _normalisation, "Pow": _normalisation})
