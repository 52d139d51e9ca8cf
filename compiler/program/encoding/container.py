"""The container: sections one after another, and at the end where they lie and what their bytes add up to (PROG-3).

    header    64 bytes: magic, version of the format
    sections  each begins at a multiple of 64 bytes, with zeros before it
    table     64 bytes per section: name, segment, offset, length, SHA-256
    trailer   64 bytes: where the table begins, how many sections, the file's length, the table's SHA-256, magic

The table comes last so that a file is written in one pass: nobody needs to know a section's digest before its bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from compiler.errors import InternalError
from compiler.program.errors import ExecutableError

FORMAT_VERSION: Final = 1
ALIGNMENT: Final = 64
NO_SEGMENT: Final = 0xFFFF_FFFF
EXECUTABLE: Final = b"\x89TSRX\r\n\x1a"
PACKAGE: Final = b"\x89TSRP\r\n\x1a"
_NAMES: Final = MappingProxyType({EXECUTABLE: "executable", PACKAGE: "package"})
_END: Final = b"\x89TSREND\n"
_OTHER_END: Final = "the file is cut off, or something follows its end"
_HEADER: Final = struct.Struct("<8sI52s")
_ENTRY: Final = struct.Struct("<12sIQQ32s")
_TRAILER: Final = struct.Struct("<QIIQ32s8s")
_MAX_SECTIONS: Final = 1 << 20
_CHUNK: Final = 1 << 20

Buffer = bytes | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section to be written: its name (at most 12 ASCII letters), its segment, and its bytes piece by piece."""

    name: str
    segment: int
    pieces: Iterable[Buffer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Where a section lies in the file."""

    name: str
    segment: int
    offset: int
    length: int
    digest: bytes

    @property
    def label(self) -> str:
        """The section in words."""
        return self.name if self.segment == NO_SEGMENT else f"{self.name} of segment {self.segment}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Container:
    """A file's sections, by name and segment; none occurs twice."""

    data: memoryview
    entries: Mapping[tuple[str, int], Entry]

    def section(self, name: str, segment: int = NO_SEGMENT) -> memoryview:
        """A section's bytes; raises ExecutableError if there is none of that name."""
        entry = self.entry(name, segment)
        return self.data[entry.offset : entry.offset + entry.length]

    def entry(self, name: str, segment: int = NO_SEGMENT) -> Entry:
        """Where a section lies; raises ExecutableError if there is none of that name."""
        entry = self.entries.get((name, segment))
        if entry is None:
            wanted = Entry(name=name, segment=segment, offset=0, length=0, digest=b"")
            raise ExecutableError("the section is missing", section=wanted.label, offset=0)
        return entry


def write_container(sections: Iterable[Section], *, kind: bytes = EXECUTABLE) -> Iterator[Buffer]:
    """The file piece by piece; one piece of one section is in memory at a time. `kind`: how the file begins."""
    yield _HEADER.pack(kind, FORMAT_VERSION, b"")
    offset = _HEADER.size
    table = []
    for section in sections:
        digest, length = hashlib.sha256(), 0
        for piece in section.pieces:
            digest.update(piece)
            length += memoryview(piece).nbytes
            yield piece
        name = section.name.encode("ascii")
        if len(name) > 12:
            raise InternalError("a section's name is too long", stage="executable", actual=section.name, limit=12)
        table.append(_ENTRY.pack(name, section.segment, offset, length, digest.digest()))
        yield _padding(length)
        offset += length + len(_padding(length))
    whole = b"".join(table)
    yield whole
    size = offset + len(whole) + _TRAILER.size
    yield _TRAILER.pack(offset, len(table), 0, size, hashlib.sha256(whole).digest(), _END)


def read_container(data: memoryview, *, unchecked: frozenset[str] = frozenset(), kind: bytes = EXECUTABLE) -> Container:
    """The sections of a file, their digests checked but for sections of the names in `unchecked`.

    Raises ExecutableError if the file is none of that kind, of another version of the format, or damaged.
    """
    if len(data) < _HEADER.size + _TRAILER.size or bytes(data[:8]) != kind:
        raise ExecutableError(f"this is no {_NAMES[kind]} of Tessera", section="header", offset=0, actual=len(data))
    _, version, rest = _HEADER.unpack(data[: _HEADER.size])
    if version != FORMAT_VERSION:
        raise ExecutableError(
            "the format has a version that this reader does not know",
            section="header",
            offset=8,
            code="executable_version",
            actual=version,
            limit=FORMAT_VERSION,
            hint="Compile the model again, or read it with the version of Tessera that made it",
        )
    begin = len(data) - _TRAILER.size
    table_at, count, reserved, size, digest, end = _TRAILER.unpack(data[begin:])
    if end != _END:  # then the length is not where it is read, either
        raise ExecutableError(_OTHER_END, section="trailer", offset=0, actual=len(data))
    if size != len(data):
        raise ExecutableError(_OTHER_END, section="trailer", offset=0, actual=len(data), limit=size)
    if count > _MAX_SECTIONS or table_at + count * _ENTRY.size != begin or reserved or any(rest):
        raise ExecutableError("the table is not where it has to be", section="trailer", offset=0, actual=table_at)
    table = data[table_at:begin]
    if hashlib.sha256(table).digest() != digest:
        raise ExecutableError("the table is damaged", section="table", offset=0)
    entries = tuple(_entry(row) for row in _ENTRY.iter_unpack(table))
    _check_entries(data, entries, table_at)
    for entry in entries:
        if entry.name not in unchecked:
            check_section(data, entry)
    return Container(data=data, entries=MappingProxyType({(one.name, one.segment): one for one in entries}))


def check_section(data: memoryview, entry: Entry) -> None:
    """Raises ExecutableError if a section's bytes are not those that were written."""
    digest = hashlib.sha256()
    for start in range(entry.offset, entry.offset + entry.length, _CHUNK):
        digest.update(data[start : min(start + _CHUNK, entry.offset + entry.length)])
    if digest.digest() != entry.digest:
        raise ExecutableError("the section is damaged", section=entry.label, offset=0)


def _entry(row: tuple[bytes, int, int, int, bytes]) -> Entry:
    name, segment, offset, length, digest = row
    text = name.rstrip(b"\0").decode("ascii", errors="backslashreplace")
    return Entry(name=text, segment=segment, offset=offset, length=length, digest=digest)


def _check_entries(data: memoryview, entries: tuple[Entry, ...], end: int) -> None:
    """Sections lie one after another with zeros between, and none occurs twice."""
    offset = _HEADER.size
    for number, entry in enumerate(entries):
        at = number * _ENTRY.size
        if entry.offset != offset or entry.length > end - offset:
            raise ExecutableError(f"{entry.label} lies elsewhere", section="table", offset=at, actual=entry.offset)
        offset += entry.length
        padding = len(_padding(entry.length))
        if padding > end - offset or any(data[offset : offset + padding]):
            raise ExecutableError(f"{entry.label} is not followed by zeros", section="table", offset=at)
        offset += padding
    if offset != end:
        raise ExecutableError("there is something between sections and table", section="table", offset=0)
    if len({(entry.name, entry.segment) for entry in entries}) < len(entries):
        raise ExecutableError("a section occurs twice", section="table", offset=0)


def _padding(length: int) -> bytes:
    return b"\0" * (-length % ALIGNMENT)
