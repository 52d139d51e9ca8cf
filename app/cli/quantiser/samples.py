"""Samples of a model's inputs, from arrays that hold one sample or several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx

from app.simulations.arrays import Array
from compiler.errors import RequestError, did_you_mean, printable
from compiler.frontend.constant_values import declared_extent, element_type

STAGE: Final = "inputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Values of inputs in `count` samples: `several` have a leading axis of samples, `shared` serve all samples."""

    count: int
    several: Mapping[str, Array]
    shared: Mapping[str, Array]

    def __iter__(self) -> Iterator[dict[str, Array]]:
        """The samples in order, as values by input."""
        for number in range(self.count):
            yield {name: np.asarray(array[number]) for name, array in self.several.items()} | dict(self.shared)


def samples_of(graph: onnx.GraphProto, arrays: Mapping[str, Array]) -> Samples:
    """Matches arrays to a model's inputs by name.

    An array of the input's shape is the same in all samples. With one more axis in front, or with a multiple of a fixed
    first extent, it holds several samples. Raises RequestError naming an input that is unknown or missing, an array of
    another element type or shape or with values that are not finite, or inputs with different numbers of samples.
    """
    defaults = {tensor.name for tensor in graph.initializer}
    declared = {value.name: value for value in graph.input}
    for name in arrays:
        if name not in declared:
            raise RequestError(
                f"the model has no input {printable(name, 120)!r}",
                code="unknown_input",
                stage=STAGE,
                actual=printable(name, 120),
                limit=", ".join(printable(known, 60) for known in declared if known not in defaults) or "no inputs",
                hint=did_you_mean(name, declared) or "The keys of the .npz file are the names of the model's inputs",
            )
    missing = next((name for name in declared if name not in arrays and name not in defaults), None)
    if missing is not None:
        raise RequestError(
            f"input {printable(missing, 120)!r} is missing",
            code="missing_input",
            stage=STAGE,
            actual=", ".join(printable(key, 60) for key in arrays) or "no tensors",
            limit=_type_text(declared[missing]),
            hint="The keys of the .npz file are the names of the model's inputs",
        )
    several: dict[str, Array] = {}
    shared: dict[str, Array] = {}
    for name, array in arrays.items():
        typed = _typed(declared[name], array)
        cut = _cut(declared[name], typed)
        if cut is None:
            shared[name] = typed
        else:
            several[name] = cut
    return Samples(count=_count(several), several=several, shared=shared)


def _typed(declared: onnx.ValueInfoProto, array: Array) -> Array:
    """An array in the element type of an input; raises RequestError for another type and for infinite values or NaN."""
    dtype = _dtype(declared)
    if dtype == "string" and array.dtype.kind in "SU":
        return array.astype(np.str_).astype(object)
    if dtype != array.dtype.name:
        raise _wrong(declared, array, "element type")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise RequestError(
            f"input {printable(declared.name, 120)!r} has values without a range to quantise",
            code="invalid_inputs",
            stage=STAGE,
            actual="NaN" if np.isnan(array).any() else "infinity",
            limit="finite numbers",
            hint="Write finite numbers; in a mask, a large one in place of infinity",
        )
    return array


def _cut(declared: onnx.ValueInfoProto, array: Array) -> Array | None:
    """An array with a leading axis of samples; None if it is one sample. Raises RequestError if neither fits."""
    kind = declared.type.tensor_type
    if not kind.HasField("shape"):
        return None
    extents = [declared_extent(dim) for dim in kind.shape.dim]
    if _fits(array.shape, extents):
        return None
    if array.ndim == len(extents) + 1 and array.shape[0] and _fits(array.shape[1:], extents):
        return array
    first = extents[0] if extents else None
    if first and array.ndim == len(extents) and array.shape[0] and array.shape[0] % first == 0:
        cut = array.reshape(-1, first, *array.shape[1:])
        if _fits(cut.shape[1:], extents):
            return cut
    raise _wrong(declared, array, "shape")


def _fits(shape: Sequence[int], extents: Sequence[int | None]) -> bool:
    return len(shape) == len(extents) and all(e in (None, n) for n, e in zip(shape, extents, strict=True))


def _count(several: Mapping[str, Array]) -> int:
    """The number of samples; raises RequestError if two inputs differ in it."""
    counts = {name: len(array) for name, array in several.items()}
    most = max(counts, key=counts.__getitem__, default=None)
    other = next((name for name in counts if counts[name] != counts[most or ""]), None)
    if most is None or other is None:
        return 1 if most is None else counts[most]
    raise RequestError(
        "inputs have different numbers of samples",
        code="wrong_input",
        stage=STAGE,
        actual=f"{printable(most, 60)}: {counts[most]}, {printable(other, 60)}: {counts[other]}",
        limit="the same number, or one sample for all",
        hint="Write arrays with equally many samples along their first axis",
    )


def _wrong(declared: onnx.ValueInfoProto, array: Array, what: str) -> RequestError:
    wanted = _type_text(declared)
    return RequestError(
        f"input {printable(declared.name, 120)!r} has another {what} than the model says",
        code="wrong_input",
        stage=STAGE,
        actual=f"{array.dtype.name}{list(array.shape)}",
        limit=wanted,
        hint=f"Write the array as {wanted}, or with one more axis in front for several samples",
    )


def _dtype(declared: onnx.ValueInfoProto) -> str | None:
    """The element type's name; None for what is no tensor."""
    if not declared.type.HasField("tensor_type"):
        return None
    what = f"input {printable(declared.name, 120)!r}"
    return element_type(declared.type.tensor_type.elem_type, node=None, what=what)


def _type_text(declared: onnx.ValueInfoProto) -> str:
    dtype = _dtype(declared)
    if dtype is None:
        return "no tensor, which an .npz file cannot hold"
    kind = declared.type.tensor_type
    extents = (
        str(dim.dim_value) if declared_extent(dim) is not None else dim.dim_param or "?" for dim in kind.shape.dim
    )
    shape = f"[{', '.join(printable(extent, 40) for extent in extents)}]" if kind.HasField("shape") else ""
    return f"{dtype}{shape}"
