"""The model file as a buffer, with the files beside it: bytes, or memory maps that the caller has opened."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Buffer = bytes | memoryview | mmap.mmap


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model file's bytes, its content hash, a display name, and the files that hold its external data.

    `data` may be memory-mapped; it is read in place and never copied as a whole. `files` are further buffers by
    their path relative to the model; the hash covers them too.
    """

    name: str
    data: Buffer
    sha256: str
    files: Mapping[str, Buffer] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def from_buffer(
        cls, data: Buffer, *, name: str = "model", files: Mapping[str, Buffer] | None = None
    ) -> ModelSource:
        """A source over buffers, hashed in place; the hash covers the names and contents of files beside the model."""
        digest = hashlib.sha256(data)
        for path, contents in sorted((files or {}).items()):
            digest.update(f"\0{path}\0{len(contents)}\0".encode())
            digest.update(contents)
        return cls(name=name, data=data, sha256=digest.hexdigest(), files=MappingProxyType(dict(files or {})))

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str = "model") -> ModelSource:
        """A source over bytes in memory."""
        return cls.from_buffer(data, name=name)

    @property
    def size_bytes(self) -> int:
        """Bytes of the model file."""
        return len(self.data)

    def view(self, offset: int, size_bytes: int, file: str = "") -> memoryview:
        """A window into the model file, or into `file` beside it, without a copy."""
        return memoryview(self.files[file] if file else self.data)[offset : offset + size_bytes]


def opened(source: object | None, otherwise: ModelSource) -> ModelSource:
    """The source of a graph; `otherwise` for a graph made without a file."""
    return source if isinstance(source, ModelSource) else otherwise
