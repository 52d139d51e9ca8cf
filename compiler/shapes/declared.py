"""Values of dynamic dimensions from shapes in a request, before anything is compiled (IMPORT-10)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import onnx

from compiler.errors import printable
from compiler.frontend.constant_values import declared_extent
from compiler.frontend.dimension_sums import declared_sums
from compiler.frontend.lowering_errors import missing_dims
from compiler.frontend.tensor_table import dimension_name
from compiler.ir.symbol import Expression
from compiler.ops.base import Array
from compiler.options import DimRange, Options
from compiler.shapes.extents import InputShape, Range, dims_shown, parse_shapes

_MOST: Final = 2**31 - 1


def dims_from_words(graph: onnx.GraphProto, options: Options, words: Sequence[str]) -> dict[str, int]:
    """As `dims_from_shapes`, of words such as `x:1x3x225x199`."""
    inputs = declared_inputs(graph, options.dims)
    return dims_from_shapes(graph, options, parse_shapes(words, inputs, _ranges(inputs, options)))


def dims_from_arrays(graph: onnx.GraphProto, options: Options, arrays: Mapping[str, Array]) -> dict[str, int]:
    """As `dims_from_shapes`, of arrays by name.

    Where option `dims` leaves nothing out, whether arrays fit is left to who takes them.
    """
    inputs = declared_inputs(graph, options.dims)
    if set(_ranges(inputs, options)) <= set(options.dims):
        return {}
    others = {value.name for value in graph.input} - {one.name for one in inputs}
    return dims_from_shapes(graph, options, {name: a.shape for name, a in arrays.items() if name not in others})


def dims_from_shapes(graph: onnx.GraphProto, options: Options, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The extents of the dimensions that shapes of inputs show and option `dims` leaves out.

    Raises RequestError for a shape that the model or option `dims` does not allow, and where shapes show two extents of
    one dimension.
    """
    inputs = declared_inputs(graph, options.dims)
    shown = dims_shown(inputs, _ranges(inputs, options), shapes)
    return {name: extent for name, extent in shown.items() if name not in options.dims}


def refuse_free(graph: onnx.GraphProto) -> None:
    """Raise ModelError that names every dimension without an extent, with the words that give them (IMPORT-10)."""
    missing: dict[str, tuple[str, int]] = {}
    for one in declared_inputs(graph):
        for axis, extent in enumerate(one.extents):
            for name in () if isinstance(extent, int) else sorted(extent.symbols):
                missing.setdefault(name, (f"input {printable(one.name, 80)!r}", axis))
    if missing:
        raise missing_dims(missing)


def declared_inputs(graph: onnx.GraphProto, named: Collection[str] = ()) -> tuple[InputShape, ...]:
    """The inputs that a model declares as tensors with a shape; those with an initialiser are constants.

    An extent whose name is a sum of others is that sum, unless `named` has it.
    """
    sums = {name: one for name, one in declared_sums(graph).items() if name not in named}
    constants = {proto.name for proto in graph.initializer}
    return tuple(
        InputShape(name=value.name, dtype="", extents=_extents(value, sums))
        for value in graph.input
        if value.name not in constants and value.type.tensor_type.HasField("shape")
    )


def _extents(value: onnx.ValueInfoProto, sums: Mapping[str, Expression]) -> tuple[int | Expression, ...]:
    return tuple(
        sums.get(name, Expression(terms=((name, 1),))) if extent is None else extent
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        for name, extent in ((dimension_name(dim, value.name, axis), declared_extent(dim)),)
    )


def _ranges(inputs: Sequence[InputShape], options: Options) -> dict[str, Range]:
    """What option `dims` allows for every dimension that inputs show."""
    names = sorted(
        {name for one in inputs for extent in one.extents if not isinstance(extent, int) for name in extent.symbols}
    )
    return {name: _range(options.dims.get(name)) for name in names}


def _range(asked: int | DimRange | None) -> Range:
    if asked is None:
        return Range(low=1, high=_MOST)
    if isinstance(asked, DimRange):
        return Range(low=asked.min, high=asked.max, step=asked.step)
    return Range(low=asked, high=asked)
