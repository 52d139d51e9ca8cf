"""Values of a model during lowering: tensors by name, aliases, and values of constants."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx

from compiler.errors import ModelError, RequestError, did_you_mean, printable
from compiler.frontend.constant_values import (
    constant_of,
    declared_extent,
    element_type,
    literal,
    materialise,
    sparse_constant_of,
    type_text,
)
from compiler.frontend.dimension_sums import declared_sums
from compiler.frontend.fold import FOLD_ELEMENTS, Folded, Symbolic, bounded, with_symbols
from compiler.frontend.lowering_errors import missing_dims, unmade_value
from compiler.frontend.node_attributes import attributes_of
from compiler.frontend.read import OnnxModel
from compiler.frontend.source import ModelSource
from compiler.frontend.validate import MAX_RANK
from compiler.frontend.varying_constants import element_symbols
from compiler.frontend.varying_scales import VaryingFloats
from compiler.ir.constant import Derived, Splat, Stored
from compiler.ir.graph import Tensor
from compiler.ir.symbol import Dim, Expression, Tie, bounds_of, is_dropped, ties_in
from compiler.ops.base import Array, Call, default_axes
from compiler.options import DimRange
from compiler.units import DTYPE_NAMES

# Kinds that take scales which vary with extents.
_SCALED: Final = frozenset(("Resize", "Upsample"))


class ValueTable:
    """Everything known of each value so far; lives as long as one walk over one model.

    `values` holds the values of small constants, `symbolic` their elements as `Dim`s. `fixed` holds the dynamic
    dimensions with their maxima, `plain` those with exactly this extent, `said` those that are expressions of others.
    """

    def __init__(
        self,
        model: OnnxModel,
        dims: Mapping[str, int],
        minima: Mapping[str, int],
        plain: Collection[str],
        tied: Mapping[str, Expression] = MappingProxyType({}),
    ) -> None:
        self.source: ModelSource = model.source
        self.dims = dims
        self.minima = minima
        self.plain = plain
        self.tensors: dict[str, Tensor] = {}
        self.alias: dict[str, str] = {}
        self.values: dict[str, Array] = {}
        self.symbolic: dict[str, Symbolic] = {}
        self.floats = VaryingFloats(self._known)
        # nesting depth of descriptions, for constants that are descriptions
        self.depths: dict[str, int] = {}
        self.fixed: dict[str, int] = {}
        # the same extents as `Dim`s
        self.fixed_dims: dict[str, int] = {}
        graph = model.proto.graph
        self.tied = MappingProxyType(dict(sorted(tied.items())))
        self.said = {**declared_sums(graph), **tied}
        # the types that the model declares for its values
        self.declared = {value.name: value.type for value in (*graph.value_info, *graph.output)}
        self.graph_inputs: list[str] = []
        self.empty_inputs: list[str] = []
        self._initialisers(model)
        self._inputs(model.proto.graph)

    def _initialisers(self, model: OnnxModel) -> None:
        """Makes initialisers constant tensors; their bytes stay in the file."""
        graph = model.proto.graph
        for position, proto in enumerate(graph.initializer):
            constant = constant_of(
                proto,
                span=model.weights.get(position),
                node=None,
                what=f"initializer {printable(proto.name, 120)!r}",
                files=self.source.files,
            )
            self.set_constant(proto.name, Folded(constant=constant))
        for sparse in graph.sparse_initializer:
            what = f"initializer {printable(sparse.values.name, 120)!r}"
            self.set_constant(sparse.values.name, Folded(constant=sparse_constant_of(sparse, node=None, what=what)))

    def _inputs(self, graph: onnx.GraphProto) -> None:
        """Adds the graph inputs without an initialiser; dynamic dimensions take their given maximum.

        An input without elements becomes a constant: no caller has to supply it.
        """
        missing: dict[str, tuple[str, int]] = {}
        for value in graph.input:
            if value.name in self.tensors:
                continue
            what = f"input {printable(value.name, 120)!r}"
            if not value.type.HasField("tensor_type"):
                kind = type_text(value.type)
                if not kind:
                    raise ModelError(
                        f"{what} has no type",
                        code="unsupported_dtype",
                        stage="import",
                        actual="no type",
                        limit="a tensor, sequence, optional or map type",
                    )
                self._input(value.name, None, kind)
                continue
            tensor_type = value.type.tensor_type
            dtype = element_type(tensor_type.elem_type, node=None, what=what)
            if not tensor_type.HasField("shape"):
                self._input(value.name, None, dtype)
                continue
            if len(tensor_type.shape.dim) > MAX_RANK:
                raise ModelError(
                    f"{what} has too many axes",
                    code="invalid_shape",
                    stage="import",
                    actual=len(tensor_type.shape.dim),
                    limit=MAX_RANK,
                )
            dims = enumerate(tensor_type.shape.dim)
            shape = tuple(self._extent(dim, axis, value.name, what, missing) for axis, dim in dims)
            bounded(shape, None, what)
            if 0 in shape:
                # an empty input has only one possible value
                nothing = onnx.TensorProto(data_type=tensor_type.elem_type, dims=[int(extent) for extent in shape])
                constant = constant_of(nothing, span=None, node=None, what=what)
                self.set_constant(value.name, Folded(constant=constant, shape=shape))
                self.empty_inputs.append(value.name)
            else:
                self._input(value.name, shape, dtype)
        for name in self.dims:
            if name not in self.fixed:
                known = sorted(printable(n, 40) for n in _dynamic(graph))
                raise RequestError(
                    f"option dims names {printable(name, 80)!r}, which no input of the model has",
                    code="unknown_dim",
                    stage="import",
                    actual=printable(name, 80),
                    limit=", ".join(known) or "no dynamic dimensions",
                    hint=_hint_of_dims(name, known),
                )
        if missing:
            raise missing_dims(missing)

    def _input(self, name: str, shape: tuple[int, ...] | None, dtype: str) -> None:
        self.tensors[name] = Tensor(
            name=name,
            shape=shape or (),
            dtype=dtype,
            axes=default_axes(len(shape or ())),
            is_known=shape is not None,
        )
        self.graph_inputs.append(name)

    def _extent(
        self,
        dim: onnx.TensorShapeProto.Dimension,
        axis: int,
        tensor: str,
        what: str,
        missing: dict[str, tuple[str, int]],
    ) -> int:
        declared = declared_extent(dim)
        if declared is not None:
            return declared
        name = dimension_name(dim, tensor, axis)
        if name in self.dims:
            self.fixed[name] = self.dims[name]
            self.fixed_dims[name] = self._dimension(name)
            return self.fixed_dims[name]
        said = self.said.get(name)
        absent = [name] if said is None else sorted(self._parts(said) - set(self.dims))
        if said is not None and not absent:
            self.fixed_dims[name] = self._value(said)
            return self.fixed_dims[name]
        for one in absent:
            missing.setdefault(one, (what, axis))
        return 1

    def _parts(self, said: Expression) -> frozenset[str]:
        """The dimensions that an expression is made of, where tied ones are what they are tied to."""
        return frozenset().union(*(self.tied[n].symbols if n in self.tied else {n} for n in said.symbols))

    def _value(self, said: Expression) -> int:
        return said.value(
            {n: self._value(self.tied[n]) if n in self.tied else self._dimension(n) for n in said.symbols}
        )

    def _dimension(self, name: str) -> int:
        extent = self.dims[name]
        return extent if name in self.plain else Dim.symbol(name, extent, self.minima.get(name, 1))

    def ties(self, names: Collection[str]) -> tuple[Tie, ...]:
        """What would have to be equal for the shapes of some values to be known at all extents."""
        return tuple(dict.fromkeys(tie for name in sorted(names) for tie in ties_in(self.tensors[name].shape)))

    def why_unknown(self, tensor: Tensor) -> str:
        """Why nodes that read the tensor stay on the host: its shape is not known."""
        if tensor.name in self.graph_inputs and "(" not in tensor.dtype:
            return f"the model states no shape of its input {tensor.name!r}"
        return f"the shape of its input {tensor.name!r} is known only when the host has run"

    def resolved(self, value: str) -> str:
        """The tensor behind a value's name, aliases resolved."""
        return self.alias.get(value, value)

    def call(self, node: onnx.NodeProto, name: str, version: int) -> Call:
        """The node as a Call for its definition; raises ModelError for a value that no node makes."""
        inputs: list[Tensor | None] = []
        values: dict[int, Array] = {}
        for position, value in enumerate(node.input):
            if not value:
                inputs.append(None)
                continue
            resolved = self.resolved(value)
            tensor = self.tensors.get(resolved)
            if tensor is None:
                raise unmade_value(node, name, value)
            if resolved in self.floats.known and node.op_type in _SCALED:
                values[position] = self.floats.known[resolved]
                inputs.append(replace(tensor, at_maxima=False))
                continue
            inputs.append(tensor)
            if resolved in self.symbolic:
                values[position] = self.symbolic[resolved]
            elif resolved in self.values:
                values[position] = self.values[resolved]
        return Call(
            op_type=node.op_type,
            node=name,
            attributes=attributes_of(node, name),
            inputs=tuple(inputs),
            opset=version,
            values=MappingProxyType(values),
        )

    def set_constant(self, name: str, folded: Folded) -> None:
        """Records a constant, and its values if it is small."""
        constant = folded.constant
        is_readable = prod(constant.shape) <= FOLD_ELEMENTS and constant.dtype in DTYPE_NAMES
        if is_readable:
            self.values[name] = materialise(constant, self.source)
        if is_readable and prod(constant.shape) == 1 and isinstance(constant.data, Stored | Derived):
            # single values are held here, since patterns compare them
            constant = literal(self.values[name], constant.dtype)
        elements = () if folded.symbolic is None else folded.symbolic.reshape(-1)
        # a constant that is longer at smaller extents has elements that were never evaluated
        grows = not isinstance(constant.data, Splat) and any(
            bounds_of(extent)[1] > int(extent) for extent in folded.shape or ()
        )
        self.tensors[name] = Tensor(
            name=name,
            shape=folded.shape or constant.shape,
            dtype=constant.dtype,
            axes=default_axes(len(constant.shape)),
            constant=constant,
            element_symbols=element_symbols(elements),
            at_maxima=folded.at_maxima or grows or any(is_dropped(item) for item in elements),
        )
        if folded.symbolic is not None:
            self.symbolic[name] = folded.symbolic

    def set_extents(self, name: str, extents: tuple[int, ...]) -> None:
        """Records a constant list of extents, which may vary."""
        elements = np.empty(len(extents), dtype=object)
        elements[:] = extents
        constant = literal(np.array([int(extent) for extent in extents], dtype=np.int64), "int64")
        self.set_constant(name, Folded(constant=constant, symbolic=with_symbols(elements)))

    def forget(self, name: str) -> None:
        """Drops everything that a failed attempt recorded of a value."""
        for known in (self.tensors, self.alias, self.values, self.symbolic, self.floats.known, self.depths):
            known.pop(name, None)

    def _known(self, tensor: Tensor) -> Symbolic | None:
        """The elements of a small constant; None for another tensor, and for a constant known at the maxima only."""
        if tensor.at_maxima or tensor.name not in self.values:
            return None
        return self.elements(tensor)

    def elements(self, tensor: Tensor) -> Symbolic:
        """The elements of a small constant; varying ones as `Dim`s."""
        known = self.symbolic.get(tensor.name)
        return self.values[tensor.name].astype(object) if known is None else known


def dimension_name(dim: onnx.TensorShapeProto.Dimension, tensor: str, axis: int) -> str:
    """The name in option dims of a dimension without an extent: its own, else x.1 for axis 1 of input x."""
    return dim.dim_param or f"{tensor}.{axis}"


def _hint_of_dims(name: str, known: list[str]) -> str:
    if not known:
        return "Leave out option dims: every extent of this model is fixed"
    dim, _, field = name.rpartition(".")
    if dim in known and field in DimRange.__struct_fields__:
        return f'Give a range as one object, such as --set \'dims.{dim}={{"min": 1, "max": 64}}\''
    return did_you_mean(name, known) or f"Name one of the model's dimensions, such as --set dims.{known[0]}=1"


def _dynamic(graph: onnx.GraphProto) -> set[str]:
    return {
        dimension_name(dim, value.name, axis)
        for value in graph.input
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if declared_extent(dim) is None
    }
