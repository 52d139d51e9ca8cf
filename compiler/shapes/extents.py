"""Dynamic dimensions: their ranges, and their values from the shapes of inputs (SHAPE-9)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from compiler.errors import RequestError, printable
from compiler.ir.graph import Tensor
from compiler.ir.symbol import Expression

# Extents as users write them; none at all is a scalar's shape.
_EXTENTS: Final = re.compile(r"(-?[0-9]{1,18}(x-?[0-9]{1,18})*)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The extents that a dynamic dimension may have: `low` to `high`, both included, from `low` in steps."""

    low: int
    high: int
    step: int = 1

    def __str__(self) -> str:
        if self.low == self.high:
            return str(self.low)
        return f"{self.low} to {self.high}" + (f" in steps of {self.step}" if self.step > 1 else "")

    def __contains__(self, extent: int) -> bool:
        return self.low <= extent <= self.high and not (extent - self.low) % self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class InputShape:
    """An input of a model: its name, and per axis its extent, or the expression that says it.

    `is_read` is False for one that the model declares and no op needs.
    """

    name: str
    dtype: str
    extents: tuple[int | Expression, ...]
    is_read: bool = True

    @classmethod
    def of(cls, tensor: Tensor, *, is_read: bool = True) -> InputShape:
        """From a tensor of the graph."""
        varying = dict(tensor.symbols)
        extents = tuple(varying.get(axis, extent) for axis, extent in enumerate(tensor.shape))
        return cls(name=tensor.name, dtype=tensor.dtype, extents=extents, is_read=is_read)

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.extents))}]"


def parse_shapes(
    words: Sequence[str], inputs: Sequence[InputShape] = (), ranges: Mapping[str, Range] = MappingProxyType({})
) -> dict[str, tuple[int, ...]]:
    """Shapes of inputs from words such as `x:1x3x225x199`; a name may hold colons, and a scalar has no extents.

    Raises RequestError for a word of another form, with what is allowed if the inputs are known; whether the extents
    are, `dims_of` says.
    """
    found: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, colon, text = word.rpartition(":")
        if not colon or not name or not _EXTENTS.fullmatch(text):
            form = "a shape is an input's name, a colon and extents of up to 18 digits with x between them"
            raise _no_shape(form, word, inputs, ranges)
        if name in found:
            raise _no_shape(f"input {printable(name, 80)!r} has two shapes", word, inputs, ranges)
        found[name] = tuple(map(int, text.split("x"))) if text else ()
    return found


def dims_of(
    inputs: Sequence[InputShape],
    ranges: Mapping[str, Range],
    shapes: Mapping[str, Sequence[int]],
    *,
    partial: bool,
    tied: Mapping[str, Expression] = MappingProxyType({}),
) -> dict[str, int]:
    """The values of all dynamic dimensions for shapes of inputs, by name; errors say which are `tied` to others.

    With `partial` inputs may be left out whose dimensions others give, and those that no op needs always. Raises
    RequestError naming the input and what is allowed: for one that the model does not have or that is missing, a wrong
    rank or extent, two extents of one dimension, and a dimension outside its range.
    """
    dims = dims_shown(inputs, ranges, shapes, tied)
    if not partial:
        for one in inputs:
            if one.is_read and one.name not in shapes:
                given = ", ".join(shapes) or "none"
                raise _refused(f"input {printable(one.name, 80)!r} is missing", "missing_input", given, str(one))
    missing = [name for name in ranges if name not in dims]
    if missing:
        raise _refused(
            f"nothing says how long dimension {printable(missing[0], 80)!r} is",
            "missing_dimension",
            ", ".join(shapes),
            ", ".join(map(str, inputs)),
        )
    return dims


def dims_shown(
    inputs: Sequence[InputShape],
    ranges: Mapping[str, Range],
    shapes: Mapping[str, Sequence[int]],
    tied: Mapping[str, Expression] = MappingProxyType({}),
) -> dict[str, int]:
    """The values of the dynamic dimensions that shapes of inputs show; raises as `dims_of` for impossible shapes."""
    known = {one.name: one for one in inputs}
    for name in shapes:
        if name not in known:
            raise _refused(f"the model has no input {printable(name, 80)!r}", "unknown_input", name, ", ".join(known))
    given = [(one, tuple(shapes[one.name])) for one in inputs if one.name in shapes]
    dims: dict[str, int] = {}
    places: dict[str, str] = {}
    for one, shape in given:
        _learn(one, shape, ranges, dims, places, tied)
    for one, shape in given:
        _check_extents(one, shape, ranges, dims, tied)
    return dims


def check_dims(dims: Mapping[str, int], ranges: Mapping[str, Range]) -> None:
    """Raise RequestError unless every dimension is given, within its range, and no other one is."""
    for name, extent in dims.items():
        if name not in ranges:
            raise _refused(
                f"the model has no dynamic dimension {printable(name, 80)!r}",
                "unknown_dimension",
                name,
                ", ".join(ranges),
            )
        _check_range(name, extent, ranges[name])
    for name in ranges:
        if name not in dims:
            raise _refused(
                f"nothing says how long dimension {printable(name, 80)!r} is",
                "missing_dimension",
                ", ".join(dims),
                ", ".join(ranges),
            )


def _learn(
    one: InputShape,
    shape: tuple[int, ...],
    ranges: Mapping[str, Range],
    dims: dict[str, int],
    places: dict[str, str],
    tied: Mapping[str, Expression],
) -> None:
    """Enters the dimensions that a shape shows, and the axis that showed each."""
    label = printable(one.name, 80)
    if len(shape) != len(one.extents):
        raise _refused(f"input {label!r} has another number of axes", "wrong_rank", _text(shape), _allowed(one, ranges))
    for axis, (given, extent) in enumerate(zip(shape, one.extents, strict=True)):
        if given < 1 and given != extent:
            raise _refused(
                f"axis {axis} of input {label!r} has no positive extent",
                "extent_out_of_range",
                _text(shape),
                _allowed(one, ranges),
            )
        symbol = _symbol(extent)
        if symbol is None or symbol not in ranges:
            continue  # compound, or of an input that no op needs
        place = places.setdefault(symbol, f"axis {axis} of {label}")
        if dims.setdefault(symbol, given) != given:
            raise _refused(
                f"dimension {printable(symbol, 80)!r} has two extents",
                "contradicting_extents",
                f"{dims[symbol]} and {given} ({place} and axis {axis} of {label})",
                f"one extent for all inputs{_ties_with({symbol}, tied)}",
            )
        _check_range(symbol, given, ranges[symbol])


def _check_extents(
    one: InputShape,
    shape: tuple[int, ...],
    ranges: Mapping[str, Range],
    dims: Mapping[str, int],
    tied: Mapping[str, Expression],
) -> None:
    """Once all dimensions are known, whichever input gave them: raise RequestError for another extent."""
    for axis, (given, extent) in enumerate(zip(shape, one.extents, strict=True)):
        wanted = extent if isinstance(extent, int) else _value(extent, dims)
        if wanted is not None and wanted != given:
            raise _refused(
                f"axis {axis} of input {printable(one.name, 80)!r} has another extent",
                "extent_out_of_range",
                _text(shape),
                _allowed(one, ranges) + _ties_with(frozenset() if isinstance(extent, int) else extent.symbols, tied),
            )


def _ties_with(names: Collection[str], tied: Mapping[str, Expression]) -> str:
    """The dimensions that ops force to be equal to expressions of those named, as a continued sentence."""
    found = ties_in_words({name: one for name, one in tied.items() if not one.symbols.isdisjoint(names)})
    return f"; ops of the model need {', '.join(found[:4])}" if found else ""


def ties_in_words(tied: Mapping[str, Expression]) -> list[str]:
    """The dimensions that ops force to be equal to others, each as `total = past + sequence`."""
    return [printable(f"{name} = {one}", 160) for name, one in tied.items()]


def _check_range(name: str, extent: int, allowed: Range) -> None:
    if extent not in allowed:
        raise RequestError(
            f"dimension {printable(name, 80)!r} is outside its range",
            code="extent_out_of_range",
            stage="shapes",
            actual=extent,
            limit=str(allowed),
            hint="What was decided when the model was imported holds within this range alone: compile it for one that "
            "holds this extent (option dims)",
        )


def _symbol(extent: int | Expression) -> str | None:
    """The dimension that an extent is, if it is just one."""
    if isinstance(extent, int) or extent.constant or len(extent.terms) != 1:
        return None
    (atom, factor), *_ = extent.terms
    return atom if factor == 1 and isinstance(atom, str) else None


def _value(extent: Expression, dims: Mapping[str, int]) -> int | None:
    return extent.value(dims) if extent.symbols <= set(dims) else None


def _allowed(one: InputShape, ranges: Mapping[str, Range]) -> str:
    """An input's shape with the ranges of its dimensions."""
    extents = []
    for extent in one.extents:
        symbol = _symbol(extent)
        known = None if symbol is None else ranges.get(symbol)
        extents.append(str(extent) if known is None else f"{symbol} = {known}")
    return printable(f"{one.name}[{', '.join(extents)}]", 300)


def _text(shape: Sequence[int]) -> str:
    return printable("x".join(map(str, shape)), 80)


def _no_shape(message: str, word: str, inputs: Sequence[InputShape], ranges: Mapping[str, Range]) -> RequestError:
    allowed = ", ".join(f"{name} = {extents}" for name, extents in sorted(ranges.items()))
    return RequestError(
        message,
        code="invalid_shape",
        stage="shapes",
        actual=printable(word, 120),
        limit=printable(f"{', '.join(map(str, inputs))}; {allowed}", 300) if inputs else None,
        hint="Write x:1x3x225x199, once per input; inputs whose dimensions others give may be left out",
    )


def _refused(message: str, code: str, actual: object, limit: object) -> RequestError:
    return RequestError(message, code=code, stage="shapes", actual=actual, limit=limit)
