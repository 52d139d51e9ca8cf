"""Element types and their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

try:
    from ml_dtypes import bfloat16
except ImportError:  # a loader has numpy alone, and then no bfloat16
    bfloat16 = None

# Name -> (bytes per element, numpy type that carries its values) (IMPORT-5).
_DTYPES: Final[Mapping[str, tuple[int, np.dtype[Any]]]] = MappingProxyType(
    {
        "float32": (4, np.dtype(np.float32)),
        "float16": (2, np.dtype(np.float16)),
        **({} if bfloat16 is None else {"bfloat16": (2, np.dtype(bfloat16))}),
        "float64": (8, np.dtype(np.float64)),
        "int8": (1, np.dtype(np.int8)),
        "uint8": (1, np.dtype(np.uint8)),
        "int16": (2, np.dtype(np.int16)),
        "uint16": (2, np.dtype(np.uint16)),
        "int32": (4, np.dtype(np.int32)),
        "uint32": (4, np.dtype(np.uint32)),
        "int64": (8, np.dtype(np.int64)),
        "uint64": (8, np.dtype(np.uint64)),
        "bool": (1, np.dtype(np.bool_)),
    }
)

DTYPE_NAMES: Final = tuple(_DTYPES)

# What partial sums are of: an element type, or two floats that wait together (`compiler.ops.attention`).
_SUMS: Final[Mapping[str, tuple[int, np.dtype[Any]]]] = MappingProxyType(
    {**_DTYPES, "float32x2": (8, np.dtype(np.complex64))}
)

SUM_TYPE_NAMES: Final = tuple(_SUMS)


def element_bytes(dtype: str) -> int:
    """Bytes of one element of `dtype`, or of one partial sum of that type."""
    return _SUMS[dtype][0]


def numpy_dtype(dtype: str) -> np.dtype[np.generic]:
    """The numpy type that carries values of `dtype`."""
    result: np.dtype[np.generic] = _SUMS[dtype][1]
    return result


def dtype_name(array: np.ndarray) -> str:
    """The element type name of a numpy array."""
    name = array.dtype.name
    if name not in _DTYPES:
        raise KeyError(name)
    return name


def ceil_div(a: int, b: int) -> int:
    """The quotient rounded up; b > 0."""
    return -(-a // b)
