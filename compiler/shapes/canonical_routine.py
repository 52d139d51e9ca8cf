"""A routine without names: what its library of shape units is made from, and nothing else (SHAPE-1).

Ops are listed as a walk from the result through the inputs meets them, whatever their order in the file. Tensors are
numbered as that list first mentions them, dimensions as the tensors do. Two routines with equal descriptions have
equal signatures, equal units at equal costs, and equal table keys, in whichever models they occur.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NoReturn

from compiler.errors import RequestError
from compiler.ir.constant import Constant, Derived, Splat
from compiler.ir.graph import Graph, Op, Tensor
from compiler.ir.symbol import Atom, Compound, Expression
from compiler.ops.op_facts import gathered_name
from compiler.shapes.buffers import addresses_name
from compiler.shapes.extents import Range
from compiler.shapes.instance import graph_at
from compiler.shapes.routine import canonical_order
from compiler.shapes.size_class import Sized, size_class
from compiler.units import element_bytes

_ORIGIN: Final = ("routine",)


@dataclass(frozen=True, kw_only=True, eq=False)
class CanonicalRoutine:
    """A routine of a model beside its form without names.

    `graph` holds the routine's ops alone, at the maxima of `ranges`, under canonical names. `in_place` are the
    constants of it that lie whole in every core. `ops`, `names` and `dims` lead back into the model: the ops of its
    graph in canonical order, its tensors and its dimensions by their canonical names.
    """

    graph: Graph
    ranges: Mapping[str, Range]
    in_place: frozenset[str]
    signature: str
    ops: tuple[int, ...]
    names: Mapping[str, str]
    dims: Mapping[str, str]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the ops, in canonical order."""
        return tuple(op.kind for op in self.graph.ops)

    @cached_property
    def size_classes(self) -> tuple[Sized, ...]:
        """What a library may be made for, the one that most models share first.

        The first has every dimension at its size class. The second has the model's own ranges: it serves where the
        routine means nothing at the class (a table of positions is no longer than it is), or where no tile fits there.
        """
        own = Sized(graph=self.graph, ranges=self.ranges, in_place=self.in_place, is_class=False)
        raised = self._at_class()
        return (own,) if raised is None else (raised, own)

    def _at_class(self) -> Sized | None:
        """The routine at its size class; None where it means nothing there, or is smaller somewhere than now."""
        highs = {name: size_class(one.high) for name, one in self.ranges.items()}
        graph = _at(self.graph, highs)
        if graph is None or any(
            there < here
            for name, tensor in self.graph.tensors.items()
            for there, here in zip(graph.tensors[name].shape, tensor.shape, strict=True)
        ):
            return None
        ranges = {name: Range(low=_least(self.graph, highs, name), high=high) for name, high in highs.items()}
        return Sized(graph=graph, ranges=MappingProxyType(ranges), in_place=self.in_place, is_class=True)


def canonical_routine(
    graph: Graph, ops: Collection[int], ranges: Mapping[str, Range], in_place: Collection[str] = ()
) -> CanonicalRoutine:
    """The form without names of a routine of a graph at the maxima of `ranges`; the last op makes its result."""
    order = canonical_order(graph, ops)
    numbers: dict[str, str] = {}
    for op in order:
        for name in (*graph.ops[op].inputs, graph.ops[op].output):
            if name:
                numbers.setdefault(name, f"t{len(numbers)}")
    slots = _slots(graph, order, numbers)
    dims = {name: f"d{number}" for number, name in enumerate(_ordered_dims(slots, ranges))}
    held = frozenset(numbers[name] for name in in_place if name in numbers)
    own = _renamed(graph, order, numbers, dims)
    return CanonicalRoutine(
        graph=own,
        ranges=MappingProxyType({new: ranges[name] for name, new in dims.items()}),
        in_place=held,
        signature=hashlib.sha256(_description(own, held).encode()).hexdigest(),
        ops=order,
        names=MappingProxyType({new: name for name, new in numbers.items()}),
        dims=MappingProxyType({new: name for name, new in dims.items()}),
    )


def buffer_names(routine: CanonicalRoutine, graph: Graph, tensors: Collection[str]) -> dict[str, str]:
    """The model's names of a unit's buffers by their canonical ones: tensors, gathered rows, address tables.

    `tensors` are the names in the facts of the model's `graph`.
    """
    found = dict(routine.names)
    for op in routine.graph.ops:
        result = routine.names[op.output]
        found[gathered_name(routine.graph, op.output)] = gathered_name(graph, result)
        found[addresses_name(routine.graph.tensors, op.output)] = addresses_name(tensors, result)
    return found


def _slots(graph: Graph, order: Sequence[int], numbers: Mapping[str, str]) -> list[Expression]:
    """All expressions of a routine, in canonical order."""
    found = [expression for name in numbers for _, expression in graph.tensors[name].symbols]
    return found + [expression for op in order for _, _, expression in sorted(graph.ops[op].symbols, key=_place)]


def _place(symbol: tuple[str, int, Expression]) -> tuple[str, int]:
    return symbol[0], symbol[1]


def _ordered_dims(slots: Sequence[Expression], ranges: Mapping[str, Range]) -> list[str]:
    """Dimensions as expressions first mention them, those first mentioned together by all that they occur in."""

    def key(name: str) -> tuple[object, ...]:
        where = [number for number, expression in enumerate(slots) if name in expression.symbols]
        alone = {other: "?" for expression in slots for other in expression.symbols} | {name: "*"}
        texts = [_text(_rendered(slots[number], alone)) for number in where]
        one = ranges[name]
        return where, texts, one.high, one.low, one.step

    return sorted(frozenset[str]().union(*(one.symbols for one in slots)), key=key)


def _rendered(expression: Expression, names: Mapping[str, str]) -> list[Any]:
    """An expression as plain values under other names of its symbols; the order of its terms follows these names."""
    terms = [[_rendered_atom(atom, names), factor] for atom, factor in expression.terms]
    return [expression.constant, sorted(terms, key=_text)]


def _rendered_atom(atom: Atom, names: Mapping[str, str]) -> Any:
    if isinstance(atom, str):
        return names[atom]
    sides = [_rendered(atom.left, names), _rendered(atom.right, names)]
    return [atom.operator, *(sorted(sides, key=_text) if atom.operator == "*" else sides)]


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _renamed_expression(expression: Expression, names: Mapping[str, str]) -> Expression:
    terms = [(_renamed_atom(atom, names), factor) for atom, factor in expression.terms]
    return Expression(terms=tuple(sorted(terms, key=lambda term: str(term[0]))), constant=expression.constant)


def _renamed_atom(atom: Atom, names: Mapping[str, str]) -> Atom:
    if isinstance(atom, str):
        return names[atom]
    sides = [_renamed_expression(atom.left, names), _renamed_expression(atom.right, names)]
    left, right = sorted(sides, key=str) if atom.operator == "*" else sides
    return Compound(operator=atom.operator, left=left, right=right, size=atom.size, depth=atom.depth)


def _renamed(graph: Graph, order: Sequence[int], numbers: Mapping[str, str], dims: Mapping[str, str]) -> Graph:
    """The ops alone under canonical names, constants without their elements."""
    made = {graph.ops[op].output for op in order}
    read = [name for name in numbers if name not in made and graph.tensors[name].constant is None]
    result = numbers[graph.ops[order[-1]].output]
    return Graph(
        name="routine",
        ops=tuple(_renamed_op(graph.ops[op], numbers, dims) for op in order),
        tensors=MappingProxyType(
            {new: _renamed_tensor(graph.tensors[name], new, dims) for name, new in numbers.items()}
        ),
        inputs=tuple(numbers[name] for name in read),
        outputs=(result,),
        output_names=(result,),
        output_tensors=(result,),
        opset=graph.opset,
    )


def _renamed_op(op: Op, numbers: Mapping[str, str], dims: Mapping[str, str]) -> Op:
    return Op(
        kind=op.kind,
        inputs=tuple(numbers[name] if name else "" for name in op.inputs),
        output=numbers[op.output],
        origin=_ORIGIN,
        attributes=tuple(sorted(op.attributes)),
        symbols=tuple((name, at, _renamed_expression(one, dims)) for name, at, one in sorted(op.symbols, key=_place)),
    )


def _renamed_tensor(tensor: Tensor, name: str, dims: Mapping[str, str]) -> Tensor:
    return Tensor(
        name=name,
        shape=tensor.shape,
        dtype=tensor.dtype,
        axes=tensor.axes,
        constant=None if tensor.constant is None else _without_elements(tensor.constant),
        symbols=tuple((axis, _renamed_expression(one, dims)) for axis, one in tensor.symbols),
    )


def _without_elements(constant: Constant) -> Constant:
    """A constant of the same type: no choice of units depends on elements."""
    stored = constant.stored_dtype
    zero = Constant(shape=constant.shape, dtype=stored, data=Splat(value=bytes(element_bytes(stored))))
    if stored == constant.dtype:
        return zero
    return Constant(
        shape=constant.shape, dtype=constant.dtype, data=Derived(function="DequantizeLinear", inputs=(zero,))
    )


def _description(graph: Graph, in_place: frozenset[str]) -> str:
    """A canonical graph as text, extents that vary as expressions: what its signature is the digest of."""
    same = {name: name for op in graph.ops for _, _, one in op.symbols for name in one.symbols}
    same |= {name: name for tensor in graph.tensors.values() for _, one in tensor.symbols for name in one.symbols}
    tensors = []
    for name, tensor in graph.tensors.items():
        varying = {axis: _rendered(one, same) for axis, one in tensor.symbols}
        shape = [varying.get(axis, extent) for axis, extent in enumerate(tensor.shape)]
        is_constant = tensor.constant is not None
        tensors.append([name, tensor.dtype, tensor.stored_dtype, tensor.axes, shape, is_constant, name in in_place])
    ops = []
    for op in graph.ops:
        attributes: dict[str, Any] = {
            name: list(value) if isinstance(value, tuple) else value for name, value in op.attributes
        }
        for name, at, one in op.symbols:
            varies = {"varies": _rendered(one, same)}
            if isinstance(attributes[name], list):
                attributes[name][at] = varies
            else:
                attributes[name] = varies
        ops.append([op.kind, attributes, op.inputs, op.output])
    return _text({"opset": graph.opset, "ops": ops, "tensors": tensors})


def is_described(routine: CanonicalRoutine) -> bool:
    """Whether a routine's signature and maxima say all of its graph, as they do of one that import made.

    One from elsewhere may have extents or attributes that its expressions do not give, constants of other shapes than
    their tensors, an attribute twice, or expressions in no place.
    """
    graph = routine.graph
    for op in graph.ops:
        attributes = dict(op.attributes)
        if len(attributes) != len(op.attributes):
            return False
        for name, at, _ in op.symbols:
            value = attributes[name]
            if not 0 <= at < (len(value) if isinstance(value, tuple) else 1):
                return False
    for tensor in graph.tensors.values():
        axes = [axis for axis, _ in tensor.symbols]
        if len(set(axes)) != len(axes) or not all(0 <= axis < len(tensor.shape) for axis in axes):
            return False
        constant = tensor.constant
        if constant is not None and (constant.shape, constant.dtype) != (tensor.shape, tensor.dtype):
            return False
    found = _at(graph, {name: one.high for name, one in routine.ranges.items()})
    return found is not None and replace(found, dims=graph.dims) == graph


def _at(graph: Graph, dims: Mapping[str, int]) -> Graph | None:
    """The graph with these maxima; None where it means nothing at them."""
    try:
        found = graph_at(graph, dims, no_elements)
    except (RequestError, ArithmeticError):
        return None
    return replace(
        found,
        ops=tuple(replace(now, symbols=before.symbols) for now, before in zip(found.ops, graph.ops, strict=True)),
        tensors=MappingProxyType(
            {
                name: replace(
                    tensor,
                    symbols=graph.tensors[name].symbols,
                    # a part of a constant as long as this model has it says how long that is
                    constant=None if tensor.constant is None else _without_elements(tensor.constant),
                )
                for name, tensor in found.tensors.items()
            }
        ),
    )


def no_elements(constant: Constant) -> NoReturn:
    """Stands for the elements of a canonical routine's constants, which nothing asks for."""
    raise AssertionError(constant)


def _least(graph: Graph, highs: Mapping[str, int], name: str) -> int:
    """The least extent of a dimension at which the graph means something, the others at their maxima.

    Tried are all up to 64, then powers of two.
    """
    high = highs[name]
    extents = [*range(1, min(high, 65)), *(1 << bits for bits in range(7, high.bit_length()))]
    return next((extent for extent in extents if _at(graph, {**highs, name: extent}) is not None), high)
