"""Evaluation while lowering: ops that only make constants, and ops with only constant inputs (IMPORT-2).

No value larger than a stated size is expanded: small results are values, large ones descriptions (ir/constant.py),
constant splats stay splats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, isfinite, prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx

from compiler.errors import LimitError, ModelError
from compiler.frontend.constant_values import constant_of, literal, sparse_constant_of
from compiler.frontend.single_node import evaluated
from compiler.frontend.source import Buffer
from compiler.frontend.validate import MAX_ELEMENTS
from compiler.ir.constant import Constant, Literal, Splat
from compiler.ir.graph import Tensor
from compiler.ir.symbol import Dim, bounds_of, greater, is_always_least, is_dropped, lesser, unknown_extent
from compiler.ops.base import Array, Call
from compiler.units import dtype_name

# Constants of up to this many elements are evaluated while lowering; larger ones stay descriptions.
FOLD_ELEMENTS: Final = 65_536
# Largest range with varying ends that is evaluated; the host would treat the range as fixed.
_VARYING_RANGE: Final = 2**20
# Largest number of descriptions nested in one another ...
MAX_DERIVATION: Final = 32
# ... and largest growth in elements from its inputs; larger expansions are left to the accelerator.
_GROWTH: Final = 2
# A dequantised constant of one element is a number, no weight.
_SCALES: Final = 1
# Ops whose only purpose is to make constants.
COMPILE_TIME: Final = ("Constant", "ConstantOfShape", "Range", "Shape", "Size")
# Host ops that are evaluated at compile time: inputs and shape bound their result.
EVALUATED_AT_ONCE: Final = frozenset(
    {
        "NonZero",
        "ScatterND",
        "ScatterElements",
        "Scatter",
        "GatherND",
        "GatherElements",
        "Compress",
        "Unique",
        "TopK",
        "Tan",
        "Atan",
        "Asin",
        "Acos",
        "Sinh",
        "Cosh",
        "Asinh",
        "Acosh",
        "Atanh",
        "BitShift",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
        "BitwiseNot",
        "EyeLike",
        "Det",
        "ReverseSequence",
    }
)
Symbolic = np.ndarray[Any, np.dtype[np.object_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """A constant with its varying elements and extents as `Dim`s.

    `at_maxima`: at smaller extents the constant is not its leading part, or is unknown (frontend/varying_constants.py).
    """

    constant: Constant
    symbolic: Symbolic | None = None
    shape: tuple[int, ...] | None = None
    at_maxima: bool = False


def compile_time(node: onnx.NodeProto, call: Call, files: Mapping[str, Buffer]) -> Folded | None:
    """The result of an op that only makes constants; None for other ops and for results known only at run time."""
    match node.op_type:
        case "Constant":
            return _constant(node, call, files)
        case "ConstantOfShape":
            return _constant_of_shape(node, call)
        case "Shape" | "Size":
            return _shape(node, call)
        case "Range":
            return _range(call)
    return None


def _constant(node: onnx.NodeProto, call: Call, files: Mapping[str, Buffer]) -> Folded | None:
    if not node.attribute:
        call.fail("a constant has one value", actual="none", limit=1)
    # ONNX Runtime takes the first of several values
    for attribute in node.attribute[:1]:
        match attribute.name:
            case "value":
                return Folded(
                    constant=constant_of(attribute.t, span=None, node=call.node, what="attribute value", files=files)
                )
            case "sparse_value":
                return Folded(
                    constant=sparse_constant_of(attribute.sparse_tensor, node=call.node, what="attribute sparse_value")
                )
            case "value_float" | "value_floats":
                values: Any = attribute.f if attribute.name == "value_float" else list(attribute.floats)
                return Folded(constant=literal(np.array(values, dtype=np.float32), "float32"))
            case "value_int" | "value_ints":
                values = attribute.i if attribute.name == "value_int" else list(attribute.ints)
                return Folded(constant=literal(np.array(values, dtype=np.int64), "int64"))
    return None


def _constant_of_shape(node: onnx.NodeProto, call: Call) -> Folded | None:
    if 0 not in call.values:
        return None
    extents = call.constant_integers(0, "the shape")
    shape = tuple(int(extent) for extent in extents)
    if any(extent < 0 for extent in shape):
        call.fail("negative extent in the shape", code="invalid_shape", actual=shape, limit="at least 0")
    bounded(shape, call.node, f"output {node.output[0]!r}")
    value, dtype = b"\0\0\0\0", "float32"
    for attribute in node.attribute:
        if attribute.name == "value":
            one = constant_of(attribute.t, span=None, node=call.node, what="attribute value")
            if prod(one.shape) != 1 or not isinstance(one.data, Literal):
                call.fail("the value must have one element", actual=one.shape)
            value, dtype = one.data.data, one.dtype
    return Folded(constant=Constant(shape=shape, dtype=dtype, data=Splat(value=value)), shape=extents)


def _shape(node: onnx.NodeProto, call: Call) -> Folded | None:
    tensor = call.tensor(0)
    if not tensor.is_known:
        return None
    if node.op_type == "Size":
        extents = np.array(_product(tensor.shape), dtype=object)
    else:
        rank = len(tensor.shape)
        begin, end, _ = slice(call.integer("start", 0), call.integer("end", rank)).indices(rank)
        extents = np.empty(max(0, end - begin), dtype=object)
        extents[:] = tensor.shape[begin:end]
    return Folded(constant=literal(extents.astype(np.int64), "int64"), symbolic=with_symbols(extents))


def _range(call: Call) -> Folded | None:
    if any(index not in call.values for index in range(3)):
        return None
    start, limit, step = (call.values[index].reshape(()).item() for index in range(3))
    dtype = call.tensor(0).dtype
    if not all(isfinite(value) for value in (start, limit, step)) or not step:
        call.fail("the range has no end", actual=f"{start} to {limit} by {step}", limit="finite, a step other than 0")
    count = max(0, ceil((limit - start) / step))
    varies = any(isinstance(value, Dim) for value in (start, limit, step))
    if varies:
        # whole numbers of a float range are counted by expressions as those of integers are
        start, limit, step = (
            value if value != int(value) or isinstance(value, Dim) else int(value) for value in (start, limit, step)
        )
    if count > FOLD_ELEMENTS and not varies:
        bounded((count,), call.node, "the range")
        return None  # left to the host
    if count > _VARYING_RANGE:
        raise LimitError(
            "the range is too long: its ends vary with a dynamic dimension",
            code="expansion_too_large",
            stage="import",
            node=call.node,
            op_type=call.op_type,
            actual=count,
            limit=_VARYING_RANGE,
        )
    is_whole = all(isinstance(value, int) for value in (start, limit, step))
    first, distance = (int(start), int(step)) if is_whole else (float(start), float(step))
    values = first + np.arange(count) * distance
    extent = count
    if count and is_whole:
        extent = -((start - limit) // step)  # rounded up; keeps the expressions of the ends
    elif varies:
        extent = unknown_extent(count)
    elements = None
    if isinstance(start, Dim) or isinstance(step, Dim):
        # each element varies; at other extents the constant is the leading part
        elements = np.empty(count, dtype=object)
        elements[:] = [start + step * number for number in range(count)]
    return Folded(
        constant=literal(np.asarray(values).reshape(count), dtype),
        shape=(extent,),
        symbolic=None if elements is None or not is_whole else with_symbols(elements),
        at_maxima=elements is not None and not is_whole,
    )


def bounded(shape: tuple[int, ...], node: str | None, what: str) -> None:
    """Raises LimitError if a tensor of this shape exceeds Tessera's limit on elements."""
    elements = prod(map(int, shape))
    if elements > MAX_ELEMENTS:
        raise LimitError(
            f"{what} has too many elements",
            code="tensor_too_large",
            stage="import",
            node=node,
            actual=f"{elements} elements in {tuple(map(int, shape))}",
            limit=MAX_ELEMENTS,
        )


def may_describe(inputs: tuple[Constant, ...], output: Tensor, depths: list[int]) -> bool:
    """True if a large constant result may stay a description: limited growth and limited nesting."""
    given = sum(prod(part.shape) for part in inputs if not isinstance(part.data, Splat))
    return output.elements <= _GROWTH * given and max(depths, default=0) < MAX_DERIVATION


def keeps_quantised(kind: str, inputs: tuple[Constant, ...], output: Tensor) -> bool:
    """True if a result stays a description, so that its elements keep their quantised size in memory."""
    if output.elements <= _SCALES:
        return False
    return kind == "DequantizeLinear" or (kind in _MOVES and inputs[0].stored_dtype != inputs[0].dtype)


def evaluated_node(
    node: onnx.NodeProto, call: Call, arrays: Mapping[str, Array], opsets: Mapping[str, int]
) -> list[Array] | None:
    """All outputs of a host op with small constant inputs, evaluated at compile time; None if that is not possible.

    A failed evaluation is no error: the node stays on the host (IMPORT-7).
    """
    if node.op_type not in EVALUATED_AT_ONCE or node.domain not in ("", "ai.onnx"):
        return None
    if any(tensor is not None and tensor.name not in arrays for tensor in call.inputs):
        return None
    try:
        if _expanded_elements(call, arrays) > FOLD_ELEMENTS:
            return None
    except (ModelError, ValueError, IndexError):
        return None
    feeds = {
        name: arrays[tensor.name] for name, tensor in zip(node.input, call.inputs, strict=False) if tensor is not None
    }
    return evaluated(node, feeds, opsets, elements_max=FOLD_ELEMENTS)


def _expanded_elements(call: Call, arrays: Mapping[str, Array]) -> int:
    """Number of elements of the result, for ops whose result can exceed their inputs; 0 for others."""
    if call.op_type.startswith("Bit"):
        # element-wise ops among the Bit ops broadcast
        return prod(np.broadcast_shapes(*(arrays[t.name].shape for t in call.inputs if t is not None)))
    if call.op_type == "GatherND" and call.has(1):
        data, indices = call.tensor(0).shape, call.tensor(1).shape
        return prod(indices[:-1]) * prod(data[call.integer("batch_dims", 0) + (indices[-1] if indices else 0) :])
    return 0


def literal_of(array: Array) -> Constant:
    """An array as a constant of its own type."""
    return literal(array, dtype_name(array))


def with_symbols(elements: Symbolic) -> Symbolic | None:
    """The elements if any of them varies, else None."""
    return elements if any(isinstance(item, Dim) for item in elements.reshape(-1)) else None


def unknown_extents(elements: Array) -> Symbolic:
    """Integers that may vary in an unknown way."""
    return np.asarray(
        np.frompyfunc(lambda item: unknown_extent(int(item)), 1, 1)(elements.astype(object)), dtype=object
    )


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for extent in shape:
        total = total * extent
    return total


# Rules for arithmetic on varying extents, by op kind; other kinds drop the expressions.
_MOVES: Final = frozenset(("Reshape", "Transpose", "Slice", "Concat", "Gather", "Expand", "Cast", "Floor", "Ceil"))
_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = MappingProxyType(
    {
        "Add": lambda a, b: a + b,
        "Sub": lambda a, b: a - b,
        "Mul": lambda a, b: a * b,
        "Div": lambda a, b: _divided(a, b),
        "Mod": lambda a, b: _remainder(a, b),
        "Max": lambda a, b: _known(greater(a, b)),
        "Min": lambda a, b: _known(lesser(a, b)),
        "Equal": lambda a, b: _equal(a, b),
        "Less": lambda a, b: not _least(b, a),
        "LessOrEqual": lambda a, b: _least(a, b),
        "Greater": lambda a, b: not _least(a, b),
        "GreaterOrEqual": lambda a, b: _least(b, a),
    }
)


# The same for one operand.
_UNARY: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType(
    {"Neg": lambda a: -a, "Abs": lambda a: _absolute(a)}
)


class _UndecidedError(Exception):
    """The result of a rule depends on the extents in a way that no expression describes."""


def _on_integers(rule: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The rule, applied only where a varying number meets whole numbers."""

    def applied(a: Any, b: Any) -> Any:
        if not isinstance(a, Dim) and not isinstance(b, Dim):
            return rule(a, b)
        if any(not isinstance(item, Dim) and item != int(item) for item in (a, b)):
            raise _UndecidedError
        return rule(*(item if isinstance(item, Dim) else int(item) for item in (a, b)))

    return applied


def _divided(a: Any, b: Any) -> Any:
    """The quotient rounded towards 0, as ONNX divides integers.

    Raises _UndecidedError for a varying dividend of either sign, and for a varying divisor that may not be positive.
    """
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return a // b if (a < 0) == (b < 0) else -(-a // b)
    low, high = bounds_of(a)
    if low < 0 < high or bounds_of(b)[0] <= 0:
        raise _UndecidedError
    return a // b if low >= 0 else -(-a // b)


def _exact_quotient(a: Any, b: Any) -> Any:
    """The quotient of floats; raises _UndecidedError unless it is whole at all extents."""
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return a / b
    quotient = a // b
    if isinstance(quotient * b - a, Dim):
        raise _UndecidedError
    return quotient


def _remainder(a: Any, b: Any) -> Any:
    """The remainder; raises _UndecidedError for varying operands that may be negative: rules differ in its sign."""
    if (isinstance(a, Dim) or isinstance(b, Dim)) and (bounds_of(a)[0] < 0 or bounds_of(b)[0] <= 0):
        raise _UndecidedError
    return a % b


def _floor_remainder(a: Any, b: Any) -> Any:
    """The remainder with the sign of the divisor; raises _UndecidedError for a varying divisor that may be negative."""
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return a % b
    if bounds_of(b)[0] <= 0:
        raise _UndecidedError
    if is_always_least(0, a) and is_always_least(a + 1, b):
        return a
    return a + b if is_always_least(-b, a) and is_always_least(a, -1) else a % b


def _absolute(a: Any) -> Any:
    """Without its sign; raises _UndecidedError for a varying number of either sign."""
    low, high = bounds_of(a) if isinstance(a, Dim) else (a, a)
    if low < 0 < high:
        raise _UndecidedError
    return a if low >= 0 else -a


def _known(value: Any) -> Any:
    if is_dropped(value):
        raise _UndecidedError
    return value


def _least(a: Any, b: Any) -> bool:
    """Whether a is at most b; raises _UndecidedError if that depends on the extents."""
    found = is_always_least(a, b)
    if found is None:
        raise _UndecidedError
    return found


def _equal(a: Any, b: Any) -> bool:
    """Whether a equals b; raises _UndecidedError if that depends on the extents."""
    if not isinstance(a - b, Dim):
        return bool(a == b)
    if is_dropped(a - b) or bounds_of(a - b)[0] <= 0 <= bounds_of(a - b)[1]:
        raise _UndecidedError
    return False


def symbolic_result(
    kind: str,
    arrays: list[Symbolic],
    result: Array,
    evaluate: Callable[[list[Symbolic]], Any],
    *,
    fmod: object = None,
) -> Symbolic | None:
    """The elements of a folded `result` as `Dim`s; None if it is unknown whether they vary.

    `fmod` is that attribute of Mod: with 0 a remainder has the sign of its divisor.
    """
    rule = _floor_remainder if kind == "Mod" and fmod == 0 else _ARITHMETIC.get(kind)
    try:
        found = _by_rule(kind, rule, arrays, evaluate, is_whole=result.dtype.kind in "iub")
    except _UndecidedError:
        return None
    if found is None or not np.array_equal(found.reshape(-1).astype(np.float64), result.reshape(-1).astype(np.float64)):
        # the rule differs from the op here: a rounding conversion, or a remainder with another sign
        return None
    low, high = _exact_range(result.dtype)
    bounds = [bounds_of(item) for item in found.reshape(-1) if isinstance(item, Dim) and not is_dropped(item)]
    if any(least < low or most > high for least, most in bounds):
        return None
    return found.reshape(result.shape)


def _exact_range(dtype: np.dtype[Any]) -> tuple[float, float]:
    """The range in which an element type holds every whole number exactly."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind in "iu":
        return float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)
    digits = {"float64": 53, "float32": 24, "float16": 11}.get(dtype.name, 8)
    return -(2.0**digits), 2.0**digits


def _by_rule(
    kind: str,
    rule: Callable[[Any, Any], Any] | None,
    arrays: list[Symbolic],
    evaluate: Callable[[list[Symbolic]], Any],
    *,
    is_whole: bool,
) -> Symbolic | None:
    if kind == "Div" and not is_whole:
        return np.asarray(np.frompyfunc(_on_integers(_exact_quotient), 2, 1)(*arrays), dtype=object)
    if rule is not None and len(arrays) == 2:
        return np.asarray(np.frompyfunc(_on_integers(rule), 2, 1)(*arrays), dtype=object)
    if kind in _UNARY:
        return np.asarray(np.frompyfunc(_UNARY[kind], 1, 1)(arrays[0]), dtype=object)
    if kind == "Where":
        return np.asarray(np.where(arrays[0].astype(bool), arrays[1], arrays[2]), dtype=object)
    if kind in ("ReduceProd", "ReduceSum") and arrays[0].ndim == 1:
        total: Any = 1 if kind == "ReduceProd" else 0
        for item in arrays[0]:
            total = total * item if kind == "ReduceProd" else total + item
        return np.array([total], dtype=object)
    if kind in ("Cast", "Floor", "Ceil"):
        return arrays[0]
    if kind == "Gather" and any(isinstance(index, Dim) for index in arrays[-1].reshape(-1) if len(arrays) > 1):
        raise _UndecidedError
    if kind in _MOVES:
        return np.asarray(evaluate(arrays), dtype=object)
    return None
