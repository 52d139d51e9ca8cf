"""Archives: a zip or tar of a model and its external data, read in place and never written to disk.

Uncompressed members are read from the upload itself. Compressed members are expanded into memory under a limit, and
only if the model names them.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from compiler.errors import LimitError, ModelError, printable
from compiler.frontend.source import Buffer, ModelSource

MAX_MEMBERS: Final = 10_000
# Compressed data may expand to this many bytes in total ...
MAX_EXPANDED_BYTES: Final = 2**31
# ... and, above a floor that harmless files reach, to this multiple of its size: weights never compress that well.
MAX_RATIO: Final = 200
_RATIO_FLOOR_BYTES: Final = 64 * 2**20
_SYMLINK: Final = 0o120000
_REGULAR: Final = (0, 0o100000)
_TYPE_MASK: Final = 0o170000
_BLOCK: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """The regular files of an archive: name -> position and compression."""

    source: ModelSource
    members: Mapping[str, _Member]
    expanded: dict[str, bytes] = field(default_factory=dict)

    def model_name(self) -> str:
        """The name of the only .onnx file; raises ModelError if there is none or more than one.

        Metadata files that desktops add (`._model.onnx`) do not count.
        """
        files = (name for name in self.members if not name.rpartition("/")[2].startswith("._"))
        names = [name for name in files if name.lower().endswith(".onnx")]
        if len(names) != 1:
            raise _invalid(
                "an archive must hold exactly one .onnx file",
                actual=f"{len(names)}: {', '.join(sorted(names)[:5])}" if names else "none",
                limit="1",
            )
        return names[0]

    def read(self, name: str) -> memoryview:
        """A member's bytes: a window into the upload, or the expanded bytes (expanded once)."""
        member = self.members[name]
        if member.packed is None:
            return self.source.view(member.offset, member.size_bytes)
        if name not in self.expanded:
            self.expanded[name] = _inflated(self.source.view(member.offset, member.packed), member, name)
        return memoryview(self.expanded[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    offset: int
    size_bytes: int
    packed: int | None
    crc: int | None = None


def open_archive(source: ModelSource) -> Archive | None:
    """Opens an upload as an archive, None if it is not one; raises ModelError or LimitError for a bad archive."""
    head = bytes(source.view(0, min(source.size_bytes, _BLOCK)))
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"):
        return Archive(source=source, members=MappingProxyType(_zip_members(source)))
    if head[:2] == b"\x1f\x8b":
        inner = ModelSource(name=source.name, data=_gunzipped(source), sha256=source.sha256)
        if bytes(inner.view(257, 5)) != b"ustar":
            raise _invalid("a gzip file must hold a tar archive", actual="other contents", limit="tar")
        return Archive(source=inner, members=MappingProxyType(_tar_members(inner)))
    if head[257:262] == b"ustar":
        return Archive(source=source, members=MappingProxyType(_tar_members(source)))
    return None


def _zip_members(source: ModelSource) -> dict[str, _Member]:
    members: dict[str, _Member] = {}
    expanded = packed = 0
    try:
        with zipfile.ZipFile(_Window(source)) as archive:
            entries = archive.infolist()
            _bounded_count(len(entries))
            for entry in entries:
                if entry.is_dir():
                    continue
                kind = entry.external_attr >> 16 & _TYPE_MASK
                if kind not in _REGULAR:
                    raise _leaves(entry.filename, "a symbolic link" if kind == _SYMLINK else "no regular file")
                if entry.flag_bits & 1:
                    raise _invalid(f"member {entry.filename!r} is encrypted", actual="encrypted", limit="plain")
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise _invalid(
                        f"member {entry.filename!r} is packed in a way that is not supported",
                        actual=f"method {entry.compress_type}",
                        limit="stored or deflate",
                    )
                _add(members, entry.filename, _zip_member(source, archive, entry))
                if entry.compress_type == zipfile.ZIP_DEFLATED:
                    expanded, packed = expanded + entry.file_size, packed + entry.compress_size
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, RuntimeError, OverflowError) as e:
        raise _invalid("the zip archive cannot be read", actual=f"{type(e).__name__}: {e}") from None
    _bounded_expansion(expanded, packed)
    return members


def _zip_member(source: ModelSource, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> _Member:
    """A member's position: its data begin behind its local header, which repeats its name."""
    with archive.open(entry):
        pass  # checks that the local header matches the entry and that no other entry overlaps it
    header = bytes(source.view(entry.header_offset, 30))
    offset = (
        entry.header_offset + 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    )
    stored = entry.compress_type == zipfile.ZIP_STORED
    if offset + entry.compress_size > source.size_bytes or (stored and entry.compress_size != entry.file_size):
        raise zipfile.BadZipFile(f"member {entry.filename!r} lies outside the file")
    return _Member(
        offset=offset,
        size_bytes=entry.file_size,
        packed=None if stored else entry.compress_size,
        crc=entry.CRC,
    )


def _tar_members(source: ModelSource) -> dict[str, _Member]:
    members: dict[str, _Member] = {}
    try:
        with tarfile.open(fileobj=_Window(source), mode="r:") as archive:
            for count, entry in enumerate(archive):
                _bounded_count(count + 1)
                if entry.isdir():
                    continue
                if not entry.isreg() or entry.issparse():
                    what = "a link" if entry.issym() or entry.islnk() else "sparse" if entry.isreg() else "a device"
                    raise _leaves(entry.name, what)
                if entry.size < 0 or entry.offset_data + entry.size > source.size_bytes:
                    raise _invalid(
                        f"member {entry.name!r} lies outside the file", actual=entry.size, limit=source.size_bytes
                    )
                _add(members, entry.name, _Member(offset=entry.offset_data, size_bytes=entry.size, packed=None))
    except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError, UnicodeError) as error:
        raise _invalid("the tar archive cannot be read", actual=f"{type(error).__name__}: {error}") from None
    return members


def _add(members: dict[str, _Member], name: str, member: _Member) -> None:
    path = safe_path(name, what="archive member")
    if path in members:
        raise _invalid(f"the archive holds {path!r} twice", actual=path, limit="each name once")
    members[path] = member


def safe_path(location: str | bytes, *, what: str) -> str:
    """A relative path with `.` parts removed; raises ModelError if it could lead outside the upload.

    A model's text that is not UTF-8 arrives as bytes.
    """
    if isinstance(location, bytes):
        raise _leaves(repr(location), f"{what} is no text")
    parts = [part for part in location.split("/") if part not in ("", ".")]
    bad = (
        not parts
        or location.startswith("/")
        or ".." in parts
        or "\\" in location
        or ":" in parts[0]
        or any(not character.isprintable() for character in location)
    )
    if bad:
        raise _leaves(location, f"{what} names no file inside the upload")
    return "/".join(parts)


def _leaves(name: str, why: str) -> ModelError:
    return ModelError(
        f"path {printable(name, 120)!r} is not allowed: {why}",
        code="external_data_path",
        stage="import",
        actual=printable(name, 120),
        limit="a regular file of the upload, by a relative path without '..'",
    )


def _invalid(message: str, *, actual: object = None, limit: object = None) -> ModelError:
    return ModelError(message, code="invalid_archive", stage="import", actual=actual, limit=limit)


def _bounded_count(count: int) -> None:
    if count > MAX_MEMBERS:
        raise LimitError(
            "the archive has too many members",
            code="archive_too_large",
            stage="import",
            actual=f"{count} or more",
            limit=MAX_MEMBERS,
        )


def _bounded_expansion(expanded: int, packed: int) -> None:
    if expanded > MAX_EXPANDED_BYTES or (expanded > _RATIO_FLOOR_BYTES and expanded > MAX_RATIO * max(1, packed)):
        raise LimitError(
            "the archive expands to too many bytes",
            code="archive_too_large",
            stage="import",
            actual=f"{expanded} bytes from {packed}",
            limit=f"{MAX_EXPANDED_BYTES} bytes, and {MAX_RATIO} times its size beyond {_RATIO_FLOOR_BYTES}",
            hint="Store the members without compression",
        )


def _inflated(packed: memoryview, member: _Member, name: str) -> bytes:
    """A deflated member's bytes; raises ModelError if their number or checksum differs from the archive's entry."""
    inflater = zlib.decompressobj(-15)
    try:
        data = inflater.decompress(packed, member.size_bytes + 1)
    except zlib.error as error:
        raise _invalid(f"member {name!r} does not decompress", actual=str(error)) from None
    if len(data) != member.size_bytes or zlib.crc32(data) != member.crc:
        raise _invalid(f"member {name!r} is not what the archive says", actual=len(data), limit=member.size_bytes)
    return data


def _gunzipped(source: ModelSource) -> bytes:
    inflater = zlib.decompressobj(31)
    size = source.size_bytes
    limit = min(MAX_EXPANDED_BYTES, max(_RATIO_FLOOR_BYTES, MAX_RATIO * size))
    try:
        data = inflater.decompress(source.view(0, size), limit + 1)
    except zlib.error as error:
        raise _invalid("the gzip file does not decompress", actual=str(error)) from None
    if len(data) > limit:
        _bounded_expansion(len(data), size)
        raise LimitError(
            "the gzip file expands to too many bytes",
            code="archive_too_large",
            stage="import",
            actual=f"more than {limit}",
            limit=limit,
        )
    if not inflater.eof:
        raise _invalid("the gzip file is cut short", actual=f"{len(data)} bytes")
    return data


class SiblingFiles(Mapping[str, Buffer]):
    """The members of an archive by their path relative to the model's folder; read on demand."""

    def __init__(self, archive: Archive, folder: str) -> None:
        self._archive = archive
        self._folder = folder

    def __getitem__(self, path: str) -> Buffer:
        return self._archive.read(self._folder + path)

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self._folder + path in self._archive.members

    def __iter__(self) -> Iterator[str]:
        folder = self._folder
        return (name.removeprefix(folder) for name in self._archive.members if name.startswith(folder))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Window(io.RawIOBase):
    """A buffer as a readable file, without a copy."""

    def __init__(self, source: ModelSource) -> None:
        self._data = source.view(0, source.size_bytes)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._data)}[whence]
        if base + offset < 0:
            raise ValueError("seek before the beginning of the archive")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        part = self._data[self._position : self._position + len(buffer)]
        buffer[: len(part)] = part
        self._position += len(part)
        return len(part)
