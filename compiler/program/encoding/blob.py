"""Large values: bytes that are there, or that somebody makes piece by piece while they are written (PROG-3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler.errors import InternalError
from compiler.program.encoding.container import Buffer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blob:
    """The bytes of a tensor.

    `source` holds them, or makes them piece by piece each time it is called: `stored_bytes` in all, which repeat until
    they are `size_bytes` (a weight that is one value everywhere stores that value alone).
    """

    size_bytes: int
    stored_bytes: int
    source: Buffer | Callable[[], Iterable[Buffer]]

    @staticmethod
    def of(data: Buffer) -> Blob:
        """Bytes that are there."""
        size = memoryview(data).nbytes
        return Blob(size_bytes=size, stored_bytes=size, source=data)

    @staticmethod
    def streamed(size_bytes: int, source: Callable[[], Iterable[Buffer]]) -> Blob:
        """Bytes that `source` makes when they are written."""
        return Blob(size_bytes=size_bytes, stored_bytes=size_bytes, source=source)

    @staticmethod
    def repeated(pattern: bytes, size_bytes: int) -> Blob:
        """A pattern, over and over; raises InternalError unless it goes into the size a whole number of times."""
        if size_bytes == 0:
            return Blob.of(b"")
        if not pattern or size_bytes % len(pattern):
            raise InternalError(
                "a pattern does not go into its size", stage="executable", actual=size_bytes, limit=len(pattern)
            )
        return Blob(size_bytes=size_bytes, stored_bytes=len(pattern), source=pattern)

    def pieces(self) -> Iterator[Buffer]:
        """What is stored, piece by piece; raises InternalError if it is more or less than was said."""
        made = 0
        for piece in self.source() if callable(self.source) else (self.source,):
            made += memoryview(piece).nbytes
            yield piece
        if made != self.stored_bytes:
            raise InternalError(
                "a tensor's bytes are not as many as were announced",
                stage="executable",
                actual=made,
                limit=self.stored_bytes,
            )

    def view(self) -> memoryview:
        """What is stored, as one piece; without a copy if it is there."""
        return memoryview(b"".join(self.pieces()) if callable(self.source) else self.source).cast("B")

    def write_to(self, target: NDArray[Any]) -> None:
        """Put all `size_bytes` into an array of as many bytes (uint8)."""
        at = 0
        for piece in self.pieces():
            part = np.frombuffer(piece, dtype=np.uint8)
            target[at : at + len(part)] = part
            at += len(part)
        while 0 < at < self.size_bytes:
            step = min(at, self.size_bytes - at)
            target[at : at + step] = target[:step]
            at += step
