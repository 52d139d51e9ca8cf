"""Ranges of free dimensions where a compilation gives no option `dims`, from the model's own limits (SHAPE-9).

The model is imported at single extents, again and again. The first extents at which it is one are the point to start
from; from there every dimension is widened alone: in the smallest step that the model allows, down to the least
extent at which no tensor is empty, up to 8 along the first axis of inputs (the batch) and 256 elsewhere. Where import
decides differently within these ranges, each is narrowed alone, then all together. So are they while the tensors at the
maxima take more than 64 MiB. Dimensions that ops force to be equal to others have the extents that these give: imports
that let all vary, or leave one at 1, tell which these are. Beside the first few, which find where to start, the search
makes a number of imports that depends on the model's size alone; extents that were not tried by then count as refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from compiler.errors import CompilationCancelledError, LimitError, TesseraError
from compiler.frontend.lower import LowerModel
from compiler.frontend.read import OnnxModel, ReadModel
from compiler.frontend.source import ModelSource
from compiler.frontend.validate import ValidateModel
from compiler.ir.graph import Graph
from compiler.ir.symbol import Expression, Tie
from compiler.ir.ties import UnequalExtentsError, equal_dimensions
from compiler.options import DimRange, Options
from compiler.pipeline import Observer, SilentObserver, run_passes
from compiler.shapes.agreement import CheckExtents
from compiler.shapes.declared import declared_inputs
from compiler.shapes.extents import Range
from compiler.shapes.instance import refuse_what_is_at_maxima
from compiler.tied_dimensions import Tied, said_bounds
from compiler.units import DTYPE_NAMES

# The largest extents of default ranges: along the first axis of inputs, which is the batch, and along others.
MOST_OF_BATCH: Final = 8
MOST: Final = 256
# What all tensors that the model computes may take together at the maxima of default ranges.
MOST_BYTES: Final = 64 << 20
# Extents that are tried for all dimensions but the batch, which is 1: those of exported models, the likeliest first.
_STARTS: Final = (64, 224, 128, 32, 16, 8, 4, 2, 1, 256, 512)
_STEPS: Final = (1, 2, 4, 8, 16, 32, 64)
# Nodes that all imports of a search read together, at least one import of any model: about ten seconds. The exported
# networks of the tests need 19 to 50 imports and 20,000 nodes at most.
_MOST_NODES: Final = 50_000
_PHASE: Final = "default-ranges"


def with_default_ranges(source: ModelSource, options: Options, observer: Observer | None = None) -> Options:
    """The options with a range for each free dimension of the model, if option `dims` says nothing at all.

    The search is a phase for the observer. Raises CompilationCancelledError if it asks to stop.

    They stay as they are for a static model, and where no extents are found at which the model is one: the compilation
    then names the dimensions that have no extent.
    """
    if options.dims:
        return options
    try:
        model = ReadModel().run(source)
        is_batch = _free_dimensions(model)
        if not is_batch:
            return options
        model, _ = run_passes((ValidateModel(),), model, SilentObserver())
    except TesseraError:  # the compilation meets and names it
        return options
    watching = observer or SilentObserver()
    watching.phase(_PHASE, 1, 1)
    found = _Search(source=source, model=model, is_batch=is_batch, observer=watching).ranges()
    return msgspec.structs.replace(options, dims={name: _option(one) for name, one in found.items()})


def _free_dimensions(model: OnnxModel) -> dict[str, bool]:
    """The dimensions without an extent, by name; True for those that are the first axis of inputs and nothing else.

    Nothing where an input declares a negative extent, which is no free dimension, or a name that is no text.
    """
    declared = (dim for value in model.proto.graph.input for dim in value.type.tensor_type.shape.dim)
    if any(dim.dim_value < 0 or not isinstance(dim.dim_param, str) for dim in declared):
        return {}
    places: dict[str, set[int]] = {}
    for one in declared_inputs(model.proto.graph):
        for axis, extent in enumerate(one.extents):
            for name in () if isinstance(extent, int) else sorted(extent.symbols):
                places.setdefault(name, set()).add(axis)
    return {name: places[name] == {0} for name in sorted(places)}


def _option(one: Range) -> int | DimRange:
    return one.low if one.low == one.high else DimRange(min=one.low, max=one.high, step=one.step)


@dataclass(slots=True, kw_only=True)
class _Search:
    """Looks for extents at which a model is one; `known` remembers what was tried.

    `imports_left`: None while extents to start from are looked for, of which there are a few. `tied` are the dimensions
    that others say.
    """

    source: ModelSource
    model: OnnxModel
    is_batch: Mapping[str, bool]
    observer: Observer
    imports_left: int | None = None
    tied: Tied = field(default_factory=dict)
    known: dict[tuple[int, ...], frozenset[str] | None] = field(default_factory=dict)

    def ranges(self) -> dict[str, Range]:
        """The ranges by dimension; nothing where no extents to start from are found."""
        starts = ({name: 1 if batch else extent for name, batch in self.is_batch.items()} for extent in _STARTS)
        base = next((dims for dims in starts if self._empty(dims) is not None), None)
        if base is None:
            return {}
        self.imports_left = max(1, _MOST_NODES // max(1, len(self.model.proto.graph.node)))
        self.tied = self._tied_at(base)
        base = {name: extent for name, extent in base.items() if name not in self.tied}
        found = {name: self._widest(name, base) for name in base}
        if not self._holds(found):  # one that may not vary takes no other down with it
            found = {name: self._alone(found[name], name, base) for name in base}
        while not self._holds(found) and any(one.low < one.high for one in found.values()):
            found = {name: _nearer(one, base[name]) for name, one in found.items()}
        while self._bytes(found) > MOST_BYTES and any(one.high > base[name] for name, one in found.items()):
            longest = max(found, key=lambda name: ((found[name].high - base[name]) // found[name].step, name))
            one = found[longest]
            found[longest] = Range(low=one.low, high=_halved(one.high, base[longest], one.step), step=one.step)
        return {**found, **{name: _said(expression, found) for name, expression in self.tied.items()}}

    def _tied_at(self, base: Mapping[str, int]) -> Tied:
        """The dimensions that ops force to be equal to others: an import tells that lets all vary, or one alone."""

        tied: Tied = {}
        while len(base) > 1:
            most = {name: max(extent, 2) for name, extent in base.items() if name not in tied}
            ties = self._ties_at(most, tied)
            found = equal_dimensions(ties, tied)
            if not ties:
                return tied
            if len(found) == len(tied):
                break  # import does not say which dimensions are equal
            tied = found
        return {}

    def _ties_at(self, most: Mapping[str, int], tied: Tied) -> tuple[Tie, ...]:
        """What the first import asks for that is refused for unequal extents; nothing if none is."""
        for low, high in ((dict.fromkeys(most, 1), most), *(({**most, name: 1},) * 2 for name in most)):
            try:
                refuse_what_is_at_maxima(self._import(low, high, frozenset(), tied))
            except UnequalExtentsError as error:
                if error.ties:
                    return error.ties
            except CompilationCancelledError:
                raise
            except TesseraError:  # refused for another reason, or the search has made all its imports
                continue
        return ()

    def _widest(self, name: str, base: Mapping[str, int]) -> Range:
        """How far one dimension may go while the others stay."""
        start, always_empty = base[name], self._empty(base)
        assert always_empty is not None

        def is_one(extent: int) -> bool:
            empty = self._empty({**base, name: extent}) if extent >= 1 else None
            return empty is not None and empty <= always_empty

        step = next(
            (
                step
                for step in _STEPS
                if (is_one(start + step) and is_one(start + 3 * step))
                or (is_one(start - step) and is_one(start - 3 * step))
            ),
            0,
        )
        if not step:
            return Range(low=start, high=start)
        most = max(start, MOST_OF_BATCH if self.is_batch[name] else MOST)
        down = _farthest((start - 1) // step, lambda count: is_one(start - count * step))
        up = _farthest((most - start) // step, lambda count: is_one(start + count * step))
        return Range(low=start - down * step, high=start + up * step, step=step)

    def _alone(self, widest: Range, name: str, base: Mapping[str, int]) -> Range:
        """How far one dimension may vary within a range while the others stay."""
        points = {other: Range(low=extent, high=extent) for other, extent in base.items()}
        start, step = base[name], widest.step

        def holds(down: int, up: int) -> bool:
            return self._holds({**points, name: Range(low=start - down * step, high=start + up * step, step=step)})

        down = _farthest((start - widest.low) // step, lambda count: holds(count, 0))
        up = _farthest((widest.high - start) // step, lambda count: holds(down, count))
        return Range(low=start - down * step, high=start + up * step, step=step)

    def _holds(self, ranges: Mapping[str, Range]) -> bool:
        """Whether a compilation for the ranges finds that import decides everything for all their extents."""
        options = Options(dims={name: _option(one) for name, one in ranges.items()})

        def import_at(dims: Mapping[str, int]) -> Graph:
            return self._import(dims, dims, options.plain)

        try:
            graph = self._import(options.minima, options.maxima, options.plain)
            CheckExtents(source=self.source, options=options, import_at=import_at).run(graph)
        except TesseraError:
            return False
        return True

    def _bytes(self, ranges: Mapping[str, Range]) -> int:
        graph = self._imported({name: one.high for name, one in ranges.items()})
        if graph is None:
            return MOST_BYTES + 1  # it was not imported: the base is safe
        # text is of any length, and stays on the host
        tensors = (tensor for tensor in graph.tensors.values() if tensor.constant is None and tensor.is_known)
        return sum(tensor.size_bytes for tensor in tensors if tensor.dtype in DTYPE_NAMES)

    def _empty(self, dims: Mapping[str, int]) -> frozenset[str] | None:
        """The tensors without elements at single extents; None where the model is none."""
        key = tuple(dims[name] for name in sorted(dims))
        if key not in self.known:
            graph = self._imported(dims)
            tensors = () if graph is None else (one for one in graph.tensors.values() if one.is_known)
            self.known[key] = None if graph is None else frozenset(one.name for one in tensors if 0 in one.shape)
        return self.known[key]

    def _imported(self, dims: Mapping[str, int]) -> Graph | None:
        try:
            return self._import(dims, dims, frozenset(dims))
        except TesseraError:  # the model is none at these extents
            return None

    def _import(
        self, minima: Mapping[str, int], maxima: Mapping[str, int], plain: frozenset[str], tied: Tied | None = None
    ) -> Graph:
        if self.observer.cancelled():
            raise CompilationCancelledError(_PHASE)
        if self.imports_left is not None:
            if not self.imports_left:
                raise LimitError("default ranges have been looked for long enough", stage="import", limit=_MOST_NODES)
            self.imports_left -= 1
        lower = LowerModel(
            dims=dict(maxima), minima=dict(minima), plain=plain, tied=self.tied if tied is None else tied
        )
        graph, _ = run_passes((lower,), self.model, SilentObserver())
        assert isinstance(graph, Graph)
        return graph


def _said(expression: Expression, ranges: Mapping[str, Range]) -> Range:
    """The range of a dimension that others say."""
    parts = {name: ranges[name] for name in expression.symbols}
    extents = {name: range(one.low, one.high + 1, one.step) for name, one in parts.items()}
    high = expression.value({name: one.high for name, one in parts.items()})
    low, high, _ = said_bounds(expression, extents, range(1)) or (1, high, False)
    is_other = expression == Expression(terms=tuple((name, 1) for name in parts)) and len(parts) == 1
    return Range(low=low, high=high, step=next(iter(parts.values())).step if is_other else 1)


def _farthest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest count up to `most` that holds, where 0 does and all below one that does."""
    if not most or holds(most):
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _halved(extent: int, base: int, step: int) -> int:
    """Half as far from the base, in whole steps."""
    away = (extent - base) // step
    return base + (away // 2 if away >= 0 else -(-away // 2)) * step


def _nearer(one: Range, base: int) -> Range:
    low, high = _halved(one.low, base, one.step), _halved(one.high, base, one.step)
    return Range(low=low, high=high, step=one.step)
