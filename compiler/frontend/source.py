"""The model file as a buffer: bytes, or a memory map that the caller has opened."""

from __future__ import annotations

import hashlib
import mmap
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model file's bytes, its content hash, and a name for people.

    `data` may be memory-mapped; it is read in place and never copied as a whole.
    """

    name: str
    data: bytes | memoryview | mmap.mmap
    sha256: str

    @classmethod
    def from_buffer(cls, data: bytes | memoryview | mmap.mmap, *, name: str = "model") -> ModelSource:
        """A source over a buffer, hashed in place."""
        return cls(name=name, data=data, sha256=hashlib.sha256(data).hexdigest())

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str = "model") -> ModelSource:
        """A source over bytes in memory."""
        return cls.from_buffer(data, name=name)

    @property
    def size_bytes(self) -> int:
        """Bytes of the file."""
        return len(self.data)

    def view(self, offset: int, size_bytes: int) -> memoryview:
        """A window into the file, without a copy."""
        return memoryview(self.data)[offset : offset + size_bytes]
