"""Arrays of numbers one after another in a buffer, equal ones once: how packages and stored libraries hold costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT: Final = 64


class ArrayWriter:
    """Collects arrays and says where each will lie."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, int]] = {}
        self._size = 0

    def add(self, array: NDArray[Any]) -> tuple[int, int]:
        """Where an array's bytes will lie: offset and size."""
        data = np.ascontiguousarray(array).tobytes()
        if data not in self._known:
            self._known[data] = (self._size, len(data))
            self._size += len(data) + -len(data) % _ALIGNMENT
        return self._known[data]

    def pieces(self) -> Iterator[bytes]:
        """The buffer's bytes."""
        for data in self._known:
            yield data
            yield bytes(-len(data) % _ALIGNMENT)


def array_bytes(numbers: memoryview, where: Sequence[int]) -> memoryview:
    """The bytes at an offset, of a size; raises ValueError where they lie outside the buffer."""
    offset, size = where
    if not (offset >= 0 and size >= 0 and offset + size <= len(numbers)):
        raise ValueError("numbers lie outside their section")
    return numbers[offset : offset + size]


def float_array(numbers: memoryview, where: Sequence[int]) -> NDArray[np.float64]:
    """The float64 numbers at an offset, of a size in bytes; raises ValueError where they lie outside the buffer."""
    return np.frombuffer(array_bytes(numbers, where), dtype="<f8")
