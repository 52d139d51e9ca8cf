"""The inputs of an executable: given ones converted to its types, or generated ones from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Final

import numpy as np

from app.simulations.arrays import MAX_BYTES, Array
from compiler.errors import LimitError, RequestError, printable
from compiler.program.executable import ChipSegment, Executable, HostSegment, Value
from compiler.units import DTYPE_NAMES, numpy_dtype

# The default seed of generated inputs.
DEFAULT_SEED: Final = 5
_SMALL: Final = 8
_TRUE_SHARE: Final = 0.75


def fitted_inputs(executable: Executable, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Matches given tensors to the inputs by name, and restores the types that .npz does not know.

    Raises RequestError naming the key of an input that is unknown, missing, or of another element type or shape.
    """
    known = {value.name: value for value in executable.inputs}
    for key in arrays:
        if key not in known:
            raise RequestError(
                f"the model has no input {printable(key, 120)!r}",
                code="unknown_input",
                stage="inputs",
                actual=printable(key, 120),
                limit=", ".join(printable(name, 60) for name in known) or "no inputs",
            )
    missing = next((name for name in known if name not in arrays), None)
    if missing is not None:
        raise RequestError(
            f"input {printable(missing, 120)!r} is missing",
            code="missing_input",
            stage="inputs",
            actual=", ".join(printable(key, 60) for key in arrays) or "no tensors",
            limit=_type(known[missing]),
            hint="The keys of the .npz file are the names of the model's inputs",
        )
    return {name: _fitted(value, arrays[name]) for name, value in known.items()}


def _fitted(value: Value, array: Array) -> Array:
    if value.dtype == "string" and array.dtype.kind in "SU":
        array = array.astype(np.str_).astype(object)
    elif value.dtype == "bfloat16" and array.dtype == np.dtype("V2"):
        array = array.view(numpy_dtype("bfloat16"))
    dtype = "string" if array.dtype.kind in "OSU" else array.dtype.name
    if dtype != value.dtype or (value.shape is not None and array.shape != value.shape):
        raise RequestError(
            f"input {printable(value.name, 120)!r} is of another element type or shape",
            code="wrong_input",
            stage="inputs",
            actual=f"{dtype}{list(array.shape)}",
            limit=_type(value),
        )
    return array


def _type(value: Value) -> str:
    return f"{value.dtype}{'' if value.shape is None else list(value.shape)}"


def made_up_inputs(executable: Executable, seed: int) -> dict[str, Array]:
    """Generates values for every input from the seed, its name, its type and the tables that it may index.

    The model is not read, so the same file gives the same values on every machine. Raises RequestError for an input
    that is not a tensor of known shape, LimitError if the inputs are too large to generate.
    """
    for value in executable.inputs:
        if value.shape is None or value.dtype not in (*DTYPE_NAMES, "string"):
            raise RequestError(
                f"no values can be made up for input {printable(value.name, 120)!r}",
                code="missing_input",
                stage="inputs",
                actual=printable(_type(value), 60),
                limit="a tensor of known shape",
                hint="Give the inputs as an .npz file",
            )
    size = sum(prod(value.shape or ()) * _element_bytes(value.dtype) for value in executable.inputs)
    if size > MAX_BYTES:
        raise LimitError(
            "the inputs are too large to be made up",
            code="inputs_too_large",
            stage="inputs",
            actual=size,
            limit=MAX_BYTES,
        )
    most = _largest_integer(executable)
    return {value.name: _values(value, seed, most) for value in executable.inputs}


def _element_bytes(dtype: str) -> int:
    return 64 if dtype == "string" else numpy_dtype(dtype).itemsize


def _values(value: Value, seed: int, most: int) -> Array:
    shape = value.shape or ()
    random = np.random.default_rng([seed, *value.name.encode()])
    if value.dtype == "string":
        return np.array([f"text {n}" for n in random.integers(0, 100, prod(shape))], dtype=object).reshape(shape)
    dtype: np.dtype[Any] = numpy_dtype(value.dtype)
    if value.dtype == "bool":
        return np.asarray(random.random(shape) < _TRUE_SHARE)
    if value.dtype in ("int8", "uint8"):
        bounds = np.iinfo(dtype)
        return np.asarray(random.integers(int(bounds.min), int(bounds.max) + 1, shape, dtype=dtype))
    if dtype.kind in "iu":
        return np.asarray(random.integers(0, most + 1, shape, dtype=dtype))
    return np.asarray(random.standard_normal(shape)).astype(dtype)


def _largest_integer(executable: Executable) -> int:
    """The largest value of an integer that may be an index, a count or a flag: within every table read by indices."""
    if any(isinstance(segment, HostSegment) for segment in executable.segments):
        return 1
    most = _SMALL - 1
    for segment in executable.segments:
        if isinstance(segment, ChipSegment):
            for table in segment.program.tables:
                unit = segment.program.units[table.unit]
                if unit.kind == "Gather" or unit.gathers >= 0:
                    # the indexed axis does not matter: the smallest extent is within every one
                    most = min(most, min(table.operand_shapes[max(0, unit.gathers)], default=1) - 1)
    return max(0, most)
