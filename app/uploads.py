"""Receives files: streamed to the store and hashed, never whole in memory, bounded (API-4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.errors import MalformedError
from app.http import check_length, too_large
from app.store import BlobStore, BlobWriter
from compiler.errors import RequestError, printable

_FLUSH_BYTES = 1024 * 1024
_MAX_PARTS = 16
_HEADER_BYTES = 16 * 1024


@dataclass(slots=True)
class ReceivedFile:
    """A file part: its name and the blob that is being written."""

    filename: str
    writer: BlobWriter
    pending: bytearray = field(default_factory=bytearray)

    async def flush(self, limit_bytes: int, *, all_of_it: bool = False) -> None:
        """Writes the buffered bytes, off the event loop; raises TooLargeError above the limit."""
        if self.writer.size_bytes + len(self.pending) > limit_bytes:
            raise too_large(limit_bytes, None)
        if self.pending and (all_of_it or len(self.pending) >= _FLUSH_BYTES):
            chunk, self.pending = bytes(self.pending), bytearray()
            await run_in_threadpool(self.writer.write, chunk)


@dataclass(slots=True)
class Form:
    """A received form: small fields in memory, files in the store; use as a context manager."""

    fields: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, ReceivedFile] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def open(self, store: BlobStore, name: str, filename: str) -> ReceivedFile:
        """Begin a file."""
        received = ReceivedFile(filename, self._stack.enter_context(store.writer()))
        self.files[name] = received
        return received

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def file_name(text: str) -> str:
    """The display name of a file: no folders, one bounded printable line."""
    return printable(re.split(r"[/\\]", text)[-1].strip(), 200)


async def receive_raw(request: Request, store: BlobStore, limit_bytes: int, filename: str) -> Form:
    """Receives a body that is the file itself, as the form's file `model`."""
    check_length(request.headers, limit_bytes)
    form = Form()
    try:
        received = form.open(store, "model", filename)
        async for chunk in request.stream():
            received.pending += chunk
            await received.flush(limit_bytes)
        await received.flush(limit_bytes, all_of_it=True)
    except BaseException:
        form.__exit__(None, None, None)
        raise
    return form


async def receive_form(
    request: Request, store: BlobStore, limit_bytes: int, field_bytes: int, file_fields: frozenset[str]
) -> Form:
    """Receives a multipart form; parts in `file_fields` with a file name are streamed to the store."""
    _, parameters = parse_options_header(request.headers.get("content-type", ""))
    boundary = parameters.get(b"boundary")
    if not boundary:
        raise MalformedError("the multipart body names no boundary", stage="request")
    check_length(request.headers, limit_bytes + field_bytes + _MAX_PARTS * _HEADER_BYTES)
    reader = _Reader(store, limit_bytes, field_bytes, file_fields)
    try:
        parser = MultipartParser(boundary, reader.callbacks())  # type: ignore[arg-type]
        async for chunk in request.stream():
            parser.write(chunk)
            for received in reader.form.files.values():
                await received.flush(limit_bytes)
        parser.finalize()
        if not reader.ended:
            raise MalformedError("the multipart body ends before its last boundary", stage="request")
        for received in reader.form.files.values():
            await received.flush(limit_bytes, all_of_it=True)
    except FormParserError as error:
        reader.form.__exit__(None, None, None)
        raise MalformedError(f"the multipart body cannot be read: {error}", stage="request") from None
    except BaseException:
        reader.form.__exit__(None, None, None)
        raise
    return reader.form


class _Reader:
    """The parser's callbacks."""

    def __init__(self, store: BlobStore, limit_bytes: int, field_bytes: int, file_fields: frozenset[str]) -> None:
        self.form = Form()
        self.ended = False
        self._store = store
        self._limit_bytes = limit_bytes
        self._field_bytes = field_bytes
        self._file_fields = file_fields
        self._name = bytearray()
        self._value = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._file: ReceivedFile | None = None
        self._field = ""
        self._parts = 0

    def callbacks(self) -> Mapping[str, object]:
        """For python_multipart's MultipartParser."""
        return {
            "on_part_begin": self._part_begin,
            "on_header_field": lambda data, start, end: self._header(self._name, data[start:end]),
            "on_header_value": lambda data, start, end: self._header(self._value, data[start:end]),
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": lambda data, start, end: self._part_data(data[start:end]),
            "on_end": self._end,
        }

    def _part_begin(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise RequestError("the form has too many parts", stage="request", actual=self._parts, limit=_MAX_PARTS)
        self._headers, self._file, self._field = {}, None, ""

    def _header(self, target: bytearray, data: bytes) -> None:
        target += data
        if len(target) > _HEADER_BYTES:
            raise MalformedError("a part of the form has a too long header", stage="request")

    def _header_end(self) -> None:
        self._headers[bytes(self._name).lower()] = bytes(self._value)
        self._name.clear()
        self._value.clear()

    def _headers_finished(self) -> None:
        _, parameters = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._field = parameters.get(b"name", b"").decode("utf-8", "replace")
        if not self._field:
            raise MalformedError("a part of the form has no name", stage="request")
        if self._field in self.form.fields or self._field in self.form.files:
            raise RequestError(
                f"the form has the part {printable(self._field, 60)!r} twice",
                code="invalid_request",
                stage="request",
            )
        filename = parameters.get(b"filename")
        if filename is not None and self._field in self._file_fields:
            name = file_name(filename.decode("utf-8", "replace"))
            self._file = self.form.open(self._store, self._field, name)
        else:
            self.form.fields[self._field] = b""

    def _part_data(self, data: bytes) -> None:
        if self._file is not None:
            self._file.pending += data
            return
        value = self.form.fields[self._field] + data
        if len(value) > self._field_bytes:
            raise too_large(self._field_bytes, None)
        self.form.fields[self._field] = value

    def _end(self) -> None:
        self.ended = True
