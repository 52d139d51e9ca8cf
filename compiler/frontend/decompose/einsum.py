"""Einsum as matrix products: axes are permuted to (batch, rows, inner) and (batch, inner, columns), and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import onnx

from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.ir.symbol import Dim
from compiler.ops.base import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class _Term:
    """A value with a label per axis; axes under an ellipsis are labelled by their distance from its end."""

    value: str
    labels: tuple[str, ...]
    extents: tuple[int, ...]

    def extent(self, label: str) -> int:
        """The extent of a labelled axis; 1 if the value lacks the axis."""
        return self.extents[self.labels.index(label)] if label in self.labels else 1


def _einsum(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """Multiplies the operands in pairs, from the left."""
    given, wanted = _parsed(call)
    terms = [
        _diagonal(nodes, _Term(value=name, labels=labels, extents=call.tensor(i).shape))
        for i, (name, labels) in enumerate(zip(node.input, given, strict=True))
    ]
    result = _without(nodes, terms[0], keep=_labels(terms[1:]) | set(wanted))
    for number, term in enumerate(terms[1:], start=1):
        later = _labels(terms[number + 1 :]) | set(wanted)
        result = _product(nodes, result, _without(nodes, term, keep=set(result.labels) | later), later)
    order = [result.labels.index(label) for label in wanted]
    if order == sorted(order):
        nodes.add("Identity", result.value, out=node.output[0])
    else:
        nodes.transpose(result.value, order, out=node.output[0])


def _diagonal(nodes: NodeList, term: _Term) -> _Term:
    """The term where all axes of one label are at the same position: the diagonal, behind the other axes."""
    again = next((label for label in term.labels if term.labels.count(label) > 1), None)
    if again is None:
        return term
    first = term.labels.index(again)
    second = term.labels.index(again, first + 1)
    others = [axis for axis in range(len(term.labels)) if axis not in (first, second)]
    outer, extent = [term.extents[axis] for axis in others], int(term.extents[first])
    value = nodes.reshape(nodes.transpose(term.value, [*others, first, second]), [*outer, extent * extent])
    value = nodes.slice(value, len(others), 0, extent * extent, extent + 1)
    labels = (*(term.labels[axis] for axis in others), again)
    return _diagonal(nodes, _Term(value=value, labels=labels, extents=(*outer, extent)))


def _repeated(_: onnx.NodeProto, call: Call) -> object | None:
    given, wanted = _parsed(call)
    if len(set(wanted)) < len(wanted):
        return "".join(wanted)
    for position, labels in enumerate(given):
        twice = {label for label in labels if labels.count(label) > 1}
        extents = zip(labels, call.tensor(position).shape, strict=True)
        if any(label in twice and isinstance(extent, Dim) for label, extent in extents):
            return "".join(labels)
    return None


def _broadcast(_: onnx.NodeProto, call: Call) -> object | None:
    given, wanted = _parsed(call)
    for label, extents in _extents(call, given).items():
        if len(extents - {1}) > 1:
            call.fail(f"axis {label!r} has different extents", actual=sorted(extents))
        if len(extents) > 1 and not (label.startswith(".") and label in wanted):
            return f"{label}: {sorted(extents)}"
    return None


def _extents(call: Call, given: list[tuple[str, ...]]) -> dict[str, set[int]]:
    """The extents of every label."""
    found: dict[str, set[int]] = {}
    for position, labels in enumerate(given):
        for label, extent in zip(labels, call.tensor(position).shape, strict=True):
            found.setdefault(label, set()).add(int(extent))
    return found


def _labels(terms: Iterable[_Term]) -> set[str]:
    return {label for term in terms for label in term.labels}


def _parsed(call: Call) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Labels of every operand and of the result; raises ModelError if the equation does not fit the operands."""
    equation = call.text("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    operands = left.split(",")
    if len(operands) != len(call.inputs):
        call.fail("the equation has another number of operands", actual=equation, limit=f"{len(call.inputs)} operands")
    labels = [_axes(call, text, len(call.tensor(i).shape)) for i, text in enumerate(operands)]
    under = max((sum(label.startswith(".") for label in part) for part in labels), default=0)
    if arrow:
        wanted = _axes(call, right, len(right.replace("...", "")) + (under if "..." in right else 0))
        if not set(wanted) <= set().union(*labels):
            call.fail("the result has a label that no operand has", actual=equation)
        return labels, wanted
    plain = left.replace("...", "").replace(",", "")
    once = sorted(label for label in set(plain) if plain.count(label) == 1)
    return labels, (*(f".{under - i}" for i in range(under)), *once)


def _axes(call: Call, text: str, rank: int) -> tuple[str, ...]:
    before, dots, after = text.partition("...")
    hidden = rank - len(before) - len(after)
    if not (before + after + "a").isalpha() or hidden < 0 or (hidden and not dots):
        call.fail("the equation does not fit its operands", actual=text, limit=f"{rank} axes")
    return (*before, *(f".{hidden - i}" for i in range(hidden)), *after)


def _without(nodes: NodeList, term: _Term, keep: set[str]) -> _Term:
    """The term summed over axes that occur nowhere else."""
    dropped = [i for i, label in enumerate(term.labels) if label not in keep]
    if not dropped:
        return term
    return _Term(
        value=nodes.reduce_sum(term.value, *dropped),
        labels=tuple(label for label in term.labels if label in keep),
        extents=tuple(extent for i, extent in enumerate(term.extents) if i not in dropped),
    )


def _product(nodes: NodeList, left: _Term, right: _Term, keep: set[str]) -> _Term:
    """The product of two terms, summed over common axes that are not needed later."""
    common = [label for label in left.labels if label in right.labels]
    inner = [label for label in common if label not in keep]
    batch = sorted((label for label in common if label in keep), key=lambda label: (not label.startswith("."), label))
    rows = [label for label in left.labels if label not in common]
    columns = [label for label in right.labels if label not in common]
    made = {label: max(left.extent(label), right.extent(label), key=int) for label in (*batch, *rows, *columns)}
    if not inner:
        labels = (*batch, *rows, *columns)
        value = nodes.add("Mul", _spread(nodes, left, labels), _spread(nodes, right, labels))
        return _Term(value=value, labels=labels, extents=tuple(made[label] for label in labels))
    a = _matrix(nodes, left, batch, rows, inner)
    b = _matrix(nodes, right, batch, inner, columns)
    value = nodes.add("MatMul", a, b)
    if len(rows) != 1 or len(columns) != 1:
        value = nodes.reshape(value, [made[label] for label in (*batch, *rows, *columns)])
    labels = (*batch, *rows, *columns)
    return _Term(value=value, labels=labels, extents=tuple(made[label] for label in labels))


def _ordered(nodes: NodeList, term: _Term, labels: Sequence[str]) -> str:
    """The value with its axes in the order of `labels`."""
    order = [term.labels.index(label) for label in labels]
    return term.value if order == sorted(order) else nodes.transpose(term.value, order)


def _spread(nodes: NodeList, term: _Term, labels: tuple[str, ...]) -> str:
    """The value with its axes in order, and an axis of extent 1 for each missing label."""
    value = _ordered(nodes, term, [label for label in labels if label in term.labels])
    lacking = [i for i, label in enumerate(labels) if label not in term.labels]
    return nodes.unsqueeze(value, *lacking) if lacking else value


def _matrix(nodes: NodeList, term: _Term, batch: list[str], first: list[str], second: list[str]) -> str:
    """The value as a batch of matrices."""
    value = _ordered(nodes, term, [*batch, *first, *second])
    if len(first) == 1 and len(second) == 1:
        return value
    extents = [term.extent(label) for label in batch]
    return nodes.reshape(value, [*extents, *(prod(term.extent(label) for label in part) for part in (first, second))])


EINSUM: Final = Decomposition(
    op_type="Einsum",
    replace=_einsum,
    limits=(
        Limit("no result has a label twice, nor an operand one of varying extent", _repeated),
        Limit("axes broadcast only under an ellipsis that the result has", _broadcast),
    ),
)
