"""Generates random inputs that a graph accepts: the same seed gives the same bytes (SIM-1).

Floats are standard normal, moved into the domain of an op that reads them directly (Log, Sqrt, ...). Unsigned and
signed bytes use their whole range. Integers of 16 bits and more are indices if a table is read through them, or if they
are compared with positions (token ids: below the table's extent, found by interval arithmetic over the integer ops
between). If their sum says how many positions count, as that of an attention mask does, rows are ones and then zeros:
not fewer ones than the tokens of this call, not more than there are. They are flags (0 or 1) if they only become floats
or booleans. Else they are small counts. Booleans are mostly true, and no row along the last axis is all false, as a
mask that hides everything has no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.errors import LimitError, RequestError
from compiler.ir.graph import HOST, Graph, HostNode, Op, Tensor
from compiler.simulator.indices import Interval, index_range, sum_range
from compiler.units import DTYPE_NAMES, numpy_dtype

Array = NDArray[Any]
# Limit on the bytes of all inputs together.
MAX_INPUT_BYTES: Final = 2**31
_TRUE_SHARE: Final = 0.75
# Values for integers that are neither indices nor flags.
_SMALL: Final = 8
_POSITIVE: Final = frozenset({"Log", "Sqrt"})
_UP_TO_ONE: Final = frozenset({"Asin", "Acos", "Atanh"})
_FROM_ONE: Final = frozenset({"Acosh"})
# Kinds that pass values on unchanged: their readers read the input.
_PASSING: Final = frozenset(
    {
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Identity",
        "Dropout",
        "Transpose",
        "Concat",
        "Slice",
        "Expand",
        "Tile",
    }
)


def random_inputs(graph: Graph, seed: int, *, dims: Mapping[str, int] = MappingProxyType({})) -> dict[str, Array]:
    """Random values for every input of the graph, by name; `dims` sets dynamic dimensions below their maxima.

    The values of an input depend on the seed, its name and its type only, so graphs of one model agree. Raises
    RequestError for an input that is not a tensor, LimitError if the inputs are too large to generate.
    """
    shapes = {name: _shape(graph.tensors[name], graph, dims) for name in graph.inputs}
    size = sum(_size_bytes(graph.tensors[name], shape) for name, shape in shapes.items())
    if size > MAX_INPUT_BYTES:
        raise LimitError(
            "the inputs are too large to be made up",
            code="inputs_too_large",
            stage="simulate",
            actual=f"{size} bytes",
            limit=f"{MAX_INPUT_BYTES} bytes",
        )
    return {name: _values(graph, graph.tensors[name], shapes[name], seed) for name in graph.inputs}


def _shape(tensor: Tensor, graph: Graph, dims: Mapping[str, int]) -> tuple[int, ...]:
    """The extents at the given dynamic dimensions, the others at their maxima."""
    if not tensor.symbols:
        return tensor.shape
    symbols = {**graph.dims, **dims}
    varying = {axis: expression.value(symbols) for axis, expression in tensor.symbols}
    return tuple(varying.get(axis, extent) for axis, extent in enumerate(tensor.shape))


def _size_bytes(tensor: Tensor, shape: tuple[int, ...]) -> int:
    if tensor.dtype == "string":
        return prod(shape) * 64
    if tensor.dtype not in DTYPE_NAMES or not tensor.is_known:
        raise RequestError(
            f"no values can be made up for input {tensor.name!r}",
            code="input_missing",
            stage="simulate",
            actual=tensor.dtype or "unknown type",
            limit="a tensor of numbers, booleans or text",
            hint="Give its values",
        )
    return int(prod(shape) * numpy_dtype(tensor.dtype).itemsize)


def _values(graph: Graph, tensor: Tensor, shape: tuple[int, ...], seed: int) -> Array:
    random = np.random.default_rng([seed, *tensor.name.encode()])
    if tensor.dtype == "string":
        return np.array([f"text {n}" for n in random.integers(0, 100, prod(shape))], dtype=object).reshape(shape)
    dtype: np.dtype[Any] = numpy_dtype(tensor.dtype)
    index = index_range(graph, tensor.name) if dtype.itemsize > 1 and dtype.kind in "iu" else None
    is_mask = dtype.kind == "b" or (dtype.itemsize > 1 and dtype.kind in "iu")
    sums = sum_range(graph, tensor.name) if is_mask and index is None else None
    if sums is not None:
        return _counted(shape, sums, random).astype(dtype)
    if tensor.dtype == "bool":
        flags = random.random(shape) < _TRUE_SHARE
        if shape and shape[-1] > 1:
            flags[..., 0] = True
        return np.asarray(flags)
    if dtype.kind in "iu":
        low, high = _range(graph, tensor, index)
        return np.asarray(random.integers(low, high, shape, dtype=dtype))
    return _in_domain(random.standard_normal(shape), _operators(graph, tensor.name)).astype(dtype)


def _range(graph: Graph, tensor: Tensor, index: Interval | None) -> tuple[int, int]:
    """The half-open range of an integer input's values; `index`: those that indices computed from it allow."""
    bounds = np.iinfo(numpy_dtype(tensor.dtype))  # type: ignore[type-var]
    if tensor.dtype in ("int8", "uint8"):
        return int(bounds.min), int(bounds.max) + 1
    if index is not None:
        return index.low, index.high + 1
    readers = _readers(graph, tensor.name)
    if any(op.kind == HOST for op in readers):
        return 1, 3  # counts and extents: 0 would leave nothing to compute
    if readers and all(graph.tensors[op.output].dtype not in ("int16", "int32", "int64") for op in readers):
        return 0, 2
    return 0, _SMALL


def _counted(shape: tuple[int, ...], sums: Interval, random: np.random.Generator) -> NDArray[np.bool_]:
    """Rows that are true up to a place: their sums are within bounds and differ where there is room.

    The first row is the shortest of two at least, so that what does not count is seen to be left out.
    """
    low, high = min(sums.low, shape[-1]), min(sums.high, shape[-1])
    lengths = [*random.permutation(np.arange(low, high)).tolist()]
    lengths.insert(1, high)
    counts = np.resize(np.array(lengths, np.int64), shape[:-1])
    return np.asarray(np.arange(shape[-1]) < counts[..., None])


def _readers(graph: Graph, name: str) -> list[Op]:
    """The ops that read an input's values unchanged; data movement in between is skipped."""
    found: list[Op] = []
    todo, seen = [name], {name}
    while todo:
        for index in graph.consumers.get(todo.pop(), ()):
            op = graph.ops[index]
            if op.kind not in _PASSING:
                found.append(op)
            elif op.output not in seen:
                seen.add(op.output)
                todo.append(op.output)
    return found


def _operators(graph: Graph, name: str) -> set[str]:
    """The operators that read an input's values unchanged."""
    return {_host_of(graph, op).op_type if op.kind == HOST else op.kind for op in _readers(graph, name)}


def _host_of(graph: Graph, op: Op) -> HostNode:
    return graph.host[str(dict(op.attributes)["node"])]


def _in_domain(values: NDArray[np.float64], operators: set[str]) -> NDArray[np.float64]:
    """Moves values into the domain of the operators that read them directly."""
    if operators & _FROM_ONE:
        return np.asarray(1.0 + np.abs(values))
    if operators & _UP_TO_ONE:
        return np.asarray(np.tanh(values))
    return np.asarray(np.abs(values) + 0.125) if operators & _POSITIVE else values
