"""How far beyond the ranges of its dimensions what import decided about a model still holds (SHAPE-9).

Import decides by the ranges: what is longer, where a cut ends, which branch is taken. Imported between wider bounds,
the model gives the same graph where each decision is the same there. Then a shape beyond the ranges means the same ops
on other extents, and whether it is served is a question of units alone (`served.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from compiler.errors import TesseraError
from compiler.ir.constant import Splat
from compiler.ir.graph import Graph, Op, Tensor
from compiler.shapes.extents import Range

# A graph of the model between the minima and the maxima given.
ImportBetween = Callable[[Mapping[str, int], Mapping[str, int]], Graph]
# Bounds that are tried, the widest first: whether from the least extent of all, and up to how many times the maximum.
_WIDER: Final = ((True, 16), (False, 16), (True, 2), (True, 1))
# No dimension has more (SHAPE-9, `Extent` of option `dims`).
_MOST: Final = 2**31 - 1
# Imports of models with more ops take too long to be repeated often: these are tried with all dimensions together.
_MANY_OPS: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class FindReach:
    """Pass: notes in the graph between which extents it holds; `import_between` imports it again."""

    name: str = "find-reach"
    ranges: Callable[[Graph], Mapping[str, Range]]
    import_between: ImportBetween

    def run(self, graph: Graph) -> Graph:
        """Dimensions of a single extent keep it."""
        ranges = self.ranges(graph)
        open_names = [name for name, one in ranges.items() if one.low < one.high]
        together = self._wider(graph, ranges, {}, open_names, _WIDER[:1])
        found = together
        if not found and len(open_names) > 1 and len(graph.ops) <= _MANY_OPS:
            for name in open_names:
                found = found | self._wider(graph, ranges, found, [name], _WIDER)
        elif not found and open_names:
            found = self._wider(graph, ranges, {}, open_names, _WIDER[1:])
        reach = {name: found.get(name, one) for name, one in ranges.items()}
        return replace(graph, reach=MappingProxyType({name: (one.low, one.high) for name, one in reach.items()}))

    def _wider(
        self,
        graph: Graph,
        ranges: Mapping[str, Range],
        known: Mapping[str, Range],
        names: list[str],
        tried: tuple[tuple[bool, int], ...],
    ) -> dict[str, Range]:
        """The first of the bounds for these dimensions at which import says the same; nothing where none does."""
        for is_lower, times in tried:
            wider = {name: _widened(ranges[name], is_lower, times) for name in names}
            bounds = {name: wider.get(name, known.get(name, one)) for name, one in ranges.items()}
            if self._holds(graph, bounds):
                return wider
        return {}

    def _holds(self, graph: Graph, bounds: Mapping[str, Range]) -> bool:
        try:
            other = self.import_between(
                {name: one.low for name, one in bounds.items()}, {name: one.high for name, one in bounds.items()}
            )
        except TesseraError:  # the model is none at such extents, or too large
            return False
        return is_same(graph, other)


def reach_of(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """What the graph notes, by dimension of `ranges`, in the same steps; the range itself where nothing is noted."""
    found = {}
    for name, one in ranges.items():
        low, high = graph.reach.get(name, (one.low, one.high))
        found[name] = Range(low=low, high=high - (high - low) % one.step, step=one.step)
    return found


def _widened(one: Range, is_lower: bool, times: int) -> Range:
    """In the same steps: an extent between them may be one at which the model is none."""
    low = (one.low - 1) % one.step + 1 if is_lower else one.low
    return Range(low=low, high=min(_MOST, one.high * times))


def is_same(graph: Graph, other: Graph) -> bool:
    """Whether two imports of a model at other maxima say the same of all extents."""
    if (graph.inputs, graph.output_names, graph.output_tensors) != (
        other.inputs,
        other.output_names,
        other.output_tensors,
    ):
        return False
    if len(graph.ops) != len(other.ops) or set(graph.tensors) != set(other.tensors) or graph.host != other.host:
        return False
    if not all(_same_op(mine, its) for mine, its in zip(graph.ops, other.ops, strict=True)):
        return False
    return all(_same_tensor(tensor, other.tensors[name]) for name, tensor in graph.tensors.items())


def _same_op(op: Op, other: Op) -> bool:
    """Apart from the values of attributes at the maxima."""
    if (op.kind, op.inputs, op.output, op.symbols) != (other.kind, other.inputs, other.output, other.symbols):
        return False
    varying = {(name, position) for name, position, _ in op.symbols}

    def fixed(one: Op) -> list[object]:
        return [
            (
                name,
                [None if (name, place) in varying else item for place, item in enumerate(value)]
                if isinstance(value, tuple)
                else None
                if (name, 0) in varying
                else value,
            )
            for name, value in one.attributes
        ]

    return fixed(op) == fixed(other)


def _same_tensor(tensor: Tensor, other: Tensor) -> bool:
    """Apart from extents at the maxima, and from the elements of constants that vary."""
    mine = (tensor.dtype, tensor.axes, tensor.symbols, tensor.at_maxima, tensor.is_known, len(tensor.shape))
    if mine != (other.dtype, other.axes, other.symbols, other.at_maxima, other.is_known, len(other.shape)):
        return False
    varying = {axis for axis, _ in tensor.symbols}
    if any(a != b for axis, (a, b) in enumerate(zip(tensor.shape, other.shape, strict=True)) if axis not in varying):
        return False
    if tensor.constant is None or other.constant is None:
        return tensor.constant is other.constant
    if tensor.symbols:
        splats = isinstance(tensor.constant.data, Splat), isinstance(other.constant.data, Splat)
        return splats == (False, False) or tensor.constant.data == other.constant.data
    if tensor.element_symbols:
        return tensor.element_symbols == other.element_symbols
    return tensor.constant == other.constant
