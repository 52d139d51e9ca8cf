"""Compares values: the error of a tensor against its reference, and the limit that rounding permits (SIM-1).

The measure is max |a − b| over the tensor relative to the root mean square of the reference b. Integers, booleans and
text agree exactly; infinities and NaN stand in the same places.

The limit follows from roundings. Each is at most the unit roundoff u of the type rounded to (2^-24 in float32, 2^-11 in
float16, 2^-8 in bfloat16) relative to the value. Roundings of different operations are independent, so their squares
add up, over one sum as over a chain of ops:

    limit = max(floor, √(Σ (3 u)² · operations + Σ (8 u')²)),   floor = 1e-4, and 1e-10 where all is float64

along the longest chain of ops behind a tensor. `operations` counts those of one element. The reference runs a
node at once, also where the compiler took it apart: of its ops together, as of a normalisation, `operations` is at
least the number of elements that one element of the result depends on, for a runtime may sum them one after another
(ONNX Runtime does; a LayerNormalization of 10^6 elements is 1.4e-4 off). u is the roundoff of the type that computes
them (16-bit floats are computed in float32). The factor 3: the partial sums of a random sum have half of
its variance, a rounding has the variance of a uniform error (u²/3), there are two implementations, and the largest of
many elements lies five deviations out: 5 · √(2/6) u < 3 u. u' is the roundoff of the type in which an op's result is
stored. Two implementations that agree except for float32 rounding may store neighbouring numbers, 2 u' apart, and the
largest element is about four times the root mean square.

In float32 the floor applies up to 300,000 operations, which covers all exported and light models; these were measured
to agree within 5e-6 and 5e-5. Ops that amplify errors (cancellation, division by small values, a softmax of huge
values) get no higher limit here. When an output misses this limit, `rounding_amplification.py` measures how much the
model amplifies rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from math import inf, prod, sqrt
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.errors import printable
from compiler.frontend.constant_values import materialise, onnx_type
from compiler.frontend.source import ModelSource
from compiler.ir.graph import HOST, Graph, Op
from compiler.ops import call_of, definition
from compiler.ops.base import OpClass
from compiler.ops.quantised import is_rounded
from compiler.ops.slab import Box, lengths

# The lower bound of the limit in float32 at any depth, and when every step is float64.
FLOOR: Final = 1e-4
_DOUBLE_FLOOR: Final = 1e-10
# The error of the worst element in unit roundoffs: after one operation of many, and after storing.
_PER_OPERATION: Final = 3.0
_PER_RESULT: Final = 8.0
_UNIT: Final[Mapping[str, float]] = MappingProxyType(
    {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
)
# So many elements of a quantised tensor may be a step off, and this part of the others.
LEAST_FEW: Final = 2.0
_FEW: Final = 2.0**-6
# Two numbers a step apart are floats, and so is the step.
_STEP_ROOM: Final = 1 + 1e-5
# Kinds whose results are among their inputs, up to the sign: they do not round.
_SELECTING: Final = frozenset(
    {"Relu", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "Max", "Min", "Clip", "Where", "Neg", "Abs"}
)
# Kinds computed next to 1: implementations differ by roundoffs of 1, however small the result is.
_NEXT_TO_ONE: Final = frozenset({"Sigmoid", "Softmax"})
Value = float | int | bool | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A tensor compared with its reference: the largest error, its position, and whether it is within the limit.

    `max_error` and `limit` are relative to the reference's root mean square; for integers they are differences, for
    booleans and text 1 and 0 if anything differs. `where` is the index of the largest error, with the element got and
    the expected one. It is empty for a scalar and if types or shapes differ; then `got` and `expected` name those.
    `differing`: how many elements are not equal. `is_relative`: the tensor is of floats.
    """

    tensor: str
    max_error: float
    limit: float
    where: tuple[int, ...]
    got: Value
    expected: Value
    holds: bool
    differing: int = 0
    is_relative: bool = False


def compare(tensor: str, got: Any, expected: Any, *, limit: float | None = None, step: float = 0.0) -> Comparison:
    """Compares a value with its reference; `limit` comes from `limits_of`, by default from the element type.

    `step` comes from `steps_of`: by so much may a few elements differ.

    Sequences are compared element by element; the result is that of the worst element, whose position in the sequence
    comes first in `where`. Maps (of ONNX's classical operators) have equal keys, and their values are compared in the
    order of the reference's keys.
    """
    if isinstance(expected, list | tuple):
        return _sequences(tensor, got, expected, limit, step)
    if isinstance(expected, dict) and isinstance(got, dict) and got.keys() == expected.keys():
        keys = list(expected)
        a, b = (np.array([values[key] for key in keys]) for values in (got, expected))
        return compare(tensor, a, b, limit=limit, step=step)
    if expected is None or got is None or isinstance(expected, dict) or isinstance(got, list | tuple | dict):
        return _exactly(tensor, _kind(got), _kind(expected), holds=got is None and expected is None)
    a, b = np.asarray(got), np.asarray(expected)
    if a.shape != b.shape or _type_name(a) != _type_name(b):
        return _exactly(tensor, _kind(a), _kind(b), holds=False)
    if b.size == 0:
        return _exactly(tensor, _kind(a), _kind(b), holds=True)
    is_float = b.dtype.kind in "fc" or b.dtype.name in _UNIT
    if not is_float:
        errors = _differences(a, b)
        allowed = step
    else:
        allowed = limit_of_type(_type_name(b)) if limit is None else limit
        errors = _relative_errors(a, b)
    within = errors <= (allowed if is_float else 0.0)
    plain = int(np.count_nonzero(~within))
    if step and not is_float:
        within |= errors <= step
    elif step:
        with np.errstate(all="ignore"):
            within |= np.abs(a.astype(np.float64) - b.astype(np.float64)) <= _STEP_ROOM * step
        size = _size_of(b.astype(np.float64))
        allowed = max(allowed, step / size) if size else allowed
    # of what is beyond the limit the worst, else of all
    worst = int(np.argmax(np.where(within, -1.0, errors) if not within.all() else errors))
    where = tuple(int(index) for index in np.unravel_index(worst, b.shape))
    error = float(errors.reshape(-1)[worst])
    return Comparison(
        tensor=tensor,
        max_error=error,
        limit=allowed,
        where=where,
        got=_element(a[where]),
        expected=_element(b[where]),
        holds=bool(within.all()) and plain <= (LEAST_FEW + _FEW * b.size if step else 0),
        differing=int(np.count_nonzero(errors)),
        is_relative=is_float,
    )


def _differences(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Per element |a − b| of integers; of what has no difference 1 where anything differs."""
    if a.dtype.kind not in "iu" or b.dtype.kind not in "iu":
        return np.where(a != b, 1.0, 0.0)
    # 64-bit integers beyond 2^53 may round to equal floats
    return np.asarray(np.maximum(np.abs(a.astype(np.float64) - b.astype(np.float64)), a != b), dtype=np.float64)


def relative_error(got: Any, expected: Any) -> float:
    """max |a − b| relative to the root mean square of b; infinite where shapes, infinities or NaN differ."""
    a, b = np.asarray(got), np.asarray(expected)
    if a.shape != b.shape:
        return inf
    return float(_relative_errors(a, b).max()) if b.size else 0.0


def agree_within_rounding(got: NDArray[Any], expected: NDArray[Any]) -> bool:
    """True if two values of one type differ by no more than each other's last rounding; integers are equal.

    For two computations of the same sums in other orders, in a wider type: max |a − b| is at most 8 unit roundoffs of
    the type, relative to the root mean square of b.
    """
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    if np.array_equal(got.view(f"u{got.itemsize}"), expected.view(f"u{got.itemsize}")):
        return True
    unit = _UNIT.get(got.dtype.name)
    return unit is not None and bool(_relative_errors(got, expected).max() <= _PER_RESULT * unit)


def _relative_errors(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Per element |a − b| / rms(b); infinite if only one is finite, or if both are non-finite and differ.

    The root mean square covers the reference's finite elements. If it is 0, only equal elements have a finite error.
    """
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite, rms = np.isfinite(y), _size_of(y)
        errors = np.abs(x - y)
        errors = errors / rms if rms > 0.0 else np.where(errors == 0.0, 0.0, inf)
        same = np.where(finite, False, (x == y) | (np.isnan(x) & np.isnan(y)))
    return np.where(same, 0.0, np.where(finite & np.isfinite(x), errors, inf))


def _size_of(values: NDArray[np.float64]) -> float:
    """The root mean square of the finite elements."""
    finite = np.isfinite(values)
    largest = float(np.max(np.abs(values), where=finite, initial=0.0))
    # squares of the values themselves could leave the range of float64
    return largest * sqrt(float(np.mean(np.square(values[finite] / largest)))) if largest > 0.0 else 0.0


def limit_of_type(dtype: str) -> float:
    """The limit for a value rounded once, into `dtype`; 0 for types other than floats."""
    unit = _UNIT.get(dtype)
    return 0.0 if unit is None else _limit(_Roundings(squares=(_PER_RESULT * unit) ** 2, unit=unit))


def rounding_of(graph: Graph, op: Op) -> float:
    """The standard deviation of the rounding in one op, relative to the element of its result.

    0 for ops that do not round. For a sum of n operations it is √n unit roundoffs, the random walk of its partial sums.
    """
    own = _UNIT.get(graph.tensors[op.output].dtype, 0.0)
    operations, stored = _operations(graph, op)
    return sqrt(operations * min(own, _UNIT["float32"]) ** 2 + stored * own**2)


def absolute_rounding_of(graph: Graph, op: Op) -> float:
    """As `rounding_of`, the part that does not shrink with the element, for kinds computed next to 1."""
    own = _UNIT.get(graph.tensors[op.output].dtype, 0.0)
    return min(own, _UNIT["float32"]) if op.kind in _NEXT_TO_ONE else 0.0


def limits_of(graph: Graph) -> Mapping[str, float]:
    """The limit of every graph input and of every tensor that an op makes, by the roundings before it.

    An integer computed from floats has limit 0 but passes on the earlier roundings. A host node counts as one rounding,
    or as its multiply-accumulates if their number is known.
    """
    behind: dict[str, _Roundings] = {}
    summed = _summed(graph)
    for op in graph.ops:
        given = [behind[name] for name in op.inputs if name in behind]
        squares = max((roundings.squares for roundings in given), default=0.0)
        unit = max((roundings.unit for roundings in given), default=0.0)
        dtype = graph.tensors[op.output].dtype
        own = _unit_within(dtype)
        operations, stored = _operations(graph, op)
        per_operation = (_PER_OPERATION * min(own, _UNIT["float32"])) ** 2
        squares += operations * per_operation + stored * (_PER_RESULT * own) ** 2
        elements = summed.get(op.output, {})
        at_once = max((behind[name].squares for name in elements if name in behind), default=0.0)
        squares = max(squares, at_once + max(elements.values(), default=0) * per_operation)
        behind[op.output] = _Roundings(squares=squares, unit=max(unit, own))
    limits = {name: limit_of_type(graph.tensors[name].dtype) for name in graph.inputs}
    for op in graph.ops:
        limits[op.output] = _limit(behind[op.output]) if _unit_within(graph.tensors[op.output].dtype) else 0.0
    return MappingProxyType(limits)


def _unit_within(dtype: str) -> float:
    """The unit roundoff of a type, or of the floats in a sequence, an optional or a map; 0 without floats.

    A host node's result whose type the model does not state counts as float32; what turns out to be of integers is
    compared exactly anyway.
    """
    if not dtype:
        return _UNIT["float32"]
    return next((unit for name, unit in _UNIT.items() if onnx_type(name) in onnx_type(dtype)), 0.0)


def _summed(graph: Graph) -> dict[str, dict[str, int]]:
    """For each result of a node without products: how many elements one of its positions depends on, by operand.

    An operand is what the node's ops do not make themselves.
    """
    found: dict[str, dict[str, int]] = {}
    for _, together in groupby(graph.ops, key=lambda op: op.origin):
        ops = list(together)
        if any(op.kind == HOST or definition(op).work(call_of(graph, op)).macs for op in ops):
            continue
        if all(op.kind in _SELECTING or definition(op).op_class is not OpClass.VECTOR for op in ops):
            continue
        read = {name for op in ops for name in op.inputs}
        for op in ops:
            if (op.output not in read or op.output in graph.outputs) and graph.tensors[op.output].elements:
                found[op.output] = _depends_on(graph, ops, op.output)
    return found


def _depends_on(graph: Graph, ops: Sequence[Op], output: str) -> dict[str, int]:
    """How many elements of what ops do not make themselves one position of a result of theirs depends on, by tensor."""
    made = {op.output for op in ops}
    boxes: dict[str, Box] = {output: tuple((extent // 2, extent // 2 + 1) for extent in graph.tensors[output].shape)}
    elements: dict[str, int] = {}
    for op in reversed(ops):
        box = boxes.get(op.output)
        if box is None:
            continue
        kind, call = definition(op), call_of(graph, op)
        for name, needed in zip(op.inputs, kind.demanded(call, box), strict=True):
            if needed is None:
                continue
            if name in made:
                others = boxes.get(name, needed)
                boxes[name] = tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(needed, others, strict=True))
                continue
            count = prod(lengths(needed))
            if kind.op_class is OpClass.MOVEMENT:
                # a gather's indices may name any row of the table, but only one for each position
                count = min(count, prod(lengths(box)))
            elements[name] = max(count, elements.get(name, 0))
    return elements


@dataclass(frozen=True, slots=True, kw_only=True)
class _Roundings:
    """The roundings before a value: squares of errors along the longest chain, and its coarsest unit roundoff."""

    squares: float
    unit: float


def steps_of(graph: Graph, source: ModelSource) -> Mapping[str, float]:
    """By how much the elements of quantised tensors, and of what is dequantised, may differ: one step (IMPORT-9).

    Runtimes round products of floats before they round to integers; next to a tie that decides.
    """
    steps: dict[str, float] = {}
    for op in graph.ops:
        if op.kind == "QuantizeLinear" or (op.kind != HOST and is_rounded(call_of(graph, op))):
            steps[op.output] = 1.0
        elif op.kind == "DequantizeLinear":
            scale = graph.tensors[op.inputs[1]]
            if scale.constant is not None and scale.elements == 1:
                steps[op.output] = float(abs(materialise(scale.constant, source).astype(np.float64)).item())
    return MappingProxyType(steps)


def _limit(roundings: _Roundings) -> float:
    floor = FLOOR if roundings.unit >= _UNIT["float32"] else _DOUBLE_FLOOR
    return max(floor, sqrt(roundings.squares))


def _operations(graph: Graph, op: Op) -> tuple[float, int]:
    """Operations per element of an op's result, and whether (0 or 1) the result is rounded once more."""
    output = graph.tensors[op.output]
    if op.kind == HOST:
        macs = graph.host[str(dict(op.attributes)["node"])].macs or 0
        return macs / max(1, output.elements), 1
    kind = definition(op)
    if op.kind in _SELECTING or kind.op_class in (OpClass.MOVEMENT, OpClass.VIEW):
        return 0.0, 0
    work = kind.work(call_of(graph, op))
    return float(work.macs + work.vector_ops), 1


def _sequences(
    tensor: str, got: Any, expected: list[Any] | tuple[Any, ...], limit: float | None, step: float
) -> Comparison:
    if not isinstance(got, list | tuple) or len(got) != len(expected):
        return _exactly(tensor, _kind(got), _kind(expected), holds=False)
    worst = _exactly(tensor, _kind(got), _kind(expected), holds=True)
    for position, (a, b) in enumerate(zip(got, expected, strict=True)):
        found = compare(tensor, a, b, limit=limit, step=step)
        if (not found.holds, found.max_error) > (not worst.holds, worst.max_error):
            worst = Comparison(
                tensor=tensor,
                max_error=found.max_error,
                limit=found.limit,
                where=(position, *found.where),
                got=found.got,
                expected=found.expected,
                holds=found.holds,
                is_relative=found.is_relative,
            )
    return worst


def _exactly(tensor: str, got: Value, expected: Value, *, holds: bool) -> Comparison:
    """Compares values that are no arrays, or types and shapes."""
    error = 0.0 if holds else inf
    return Comparison(tensor=tensor, max_error=error, limit=0.0, where=(), got=got, expected=expected, holds=holds)


def _kind(value: Any) -> str:
    """A value's type and shape in words."""
    if value is None:
        return "nothing"
    if isinstance(value, list | tuple):
        return f"sequence of {len(value)}"
    if isinstance(value, dict):
        return f"map of {', '.join(printable(str(key), 40) for key in islice(value, 8))}"
    array = np.asarray(value)
    return f"{_type_name(array)}{list(array.shape)}"


def _type_name(array: NDArray[Any]) -> str:
    return "string" if array.dtype.kind in "OSU" else array.dtype.name


def _element(value: Any) -> Value:
    """An element as a plain Python value."""
    plain = value.item() if hasattr(value, "item") else value
    return plain if isinstance(plain, bool | int | float | str) else float(plain) if _is_number(plain) else str(plain)


def _is_number(value: Any) -> bool:
    return hasattr(value, "__float__")
