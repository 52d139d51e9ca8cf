"""HTTP helpers that several resources share: ETags, preferences, cursors, bounded bodies."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope, Send

from app.errors import MalformedError, TooLargeError, UnsupportedMediaError
from compiler.errors import RequestError, printable

M = TypeVar("M", bound=BaseModel)

JSON = "application/json"
YAML = "application/yaml"
MULTIPART = "multipart/form-data"
IMMUTABLE = "private, max-age=31536000, immutable"


def etag(digest: str) -> str:
    """A strong ETag of an immutable resource."""
    return f'"{digest}"'


def not_modified(request: Request, digest: str) -> bool:
    """Whether the caller already has the content of this digest (If-None-Match)."""
    header = request.headers.get("if-none-match")
    return header is not None and has_tag(header, etag(digest))


def has_tag(if_none_match: str, tag: str) -> bool:
    """Whether an If-None-Match names an ETag."""
    tags = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return "*" in tags or tag in tags


def tagged(digest: str, body: bytes, cache_control: str = IMMUTABLE, *, media_type: str = JSON) -> Response:
    """A whole document under its digest, JSON unless its type is given."""
    return Response(body, media_type=media_type, headers={"ETag": etag(digest), "Cache-Control": cache_control})


def unchanged(answer: Response) -> Response:
    """The answer to a caller who has a tagged document."""
    return Response(status_code=304, headers={name: answer.headers[name] for name in ("ETag", "Cache-Control")})


def unless_known(request: Request, answer: Response) -> Response:
    """A tagged document, or 304 if the caller has it."""
    header = request.headers.get("if-none-match")
    return answer if header is None or not has_tag(header, answer.headers["ETag"]) else unchanged(answer)


def immutable(request: Request, digest: str, body: bytes) -> Response:
    """An immutable JSON document: 304 if the caller has it, else the whole document."""
    return unless_known(request, tagged(digest, body))


def immutable_file(
    request: Request, digest: str, pieces: Iterator[bytes], size_bytes: int, media_type: str, filename: str
) -> Response:
    """An immutable file, sent piece by piece: 304 if the caller has it."""
    headers = {"ETag": etag(digest), "Cache-Control": IMMUTABLE}
    if not_modified(request, digest):
        return Response(status_code=304, headers=headers)
    headers |= {"Content-Length": str(size_bytes), "Content-Disposition": f'attachment; filename="{filename}"'}
    return StreamingResponse(pieces, media_type=media_type, headers=headers)


class ClosedStream(StreamingResponse):
    """A streamed body whose source is closed at the end, also if the caller wants no body or has disconnected."""

    def __init__(self, pieces: Generator[bytes, None, None], media_type: str, headers: dict[str, str]) -> None:
        super().__init__(pieces, media_type=media_type, headers=headers)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pieces.close()


def closing(pieces: Iterator[bytes], stack: ExitStack) -> Generator[bytes, None, None]:
    """The pieces; the stack is closed behind the last one, or when they are closed before it, even before the first."""

    def all_pieces() -> Generator[bytes, None, None]:
        with stack:
            yield b""
            yield from pieces

    found = all_pieces()
    next(found)  # a generator that has not begun closes nothing
    return found


def preferred_wait_s(request: Request, limit_s: float) -> float | None:
    """The `wait` preference in seconds, at most the limit; None if absent or unreadable (RFC 7240)."""
    for header in request.headers.getlist("prefer"):
        match = re.search(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})\"?", header)
        if match:
            return min(float(match.group(1)), limit_s)
    return None


def encode_cursor(position: tuple[float, str]) -> str:
    """An opaque cursor for a position in a list."""
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[float, str]:
    """The position in a cursor of `encode_cursor`; raises RequestError for any other text."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=tuple[float, str])
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise RequestError(
            "the cursor is not one that this service gave out",
            code="invalid_cursor",
            stage="request",
            actual=printable(cursor, 60),
            hint="Begin again without a cursor",
        ) from None


def given_media_type(headers: Mapping[str, str]) -> str:
    """The media type of a body without parameters, in lower case; empty if the caller does not say."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def media_type(request: Request, allowed: Sequence[str], message: str) -> str:
    """The media type of the body; raises UnsupportedMediaError unless it is said and one of those allowed.

    None is assumed: without `Content-Type` a page of another site may send any body without asking first.
    """
    given = given_media_type(request.headers)
    if given not in allowed:
        raise UnsupportedMediaError(
            message,
            stage="request",
            actual=printable(given, 80) or "no Content-Type",
            limit=", ".join(allowed),
            hint="Say in the header Content-Type what the body is",
        )
    return given


async def read_bounded(request: Request, limit_bytes: int) -> bytes:
    """Reads a small body; raises TooLargeError as soon as it exceeds the limit."""
    check_length(request.headers, limit_bytes)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit_bytes:
            raise too_large(limit_bytes, None)
    return bytes(body)


def json_object(data: bytes, what: str) -> dict[str, Any]:
    """Parses a JSON object; raises MalformedError for invalid JSON, RequestError for another kind of value."""
    try:
        values = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedError(f"{what} is not JSON: {error}", stage="request") from None
    if not isinstance(values, dict):
        raise RequestError(
            f"{what} is not an object", code="invalid_request", stage="request", actual=type(values).__name__
        )
    return values


async def json_request(request: Request, limit_bytes: int, kind: type[M], *, what: str) -> M:
    """Reads a small JSON body as the given type; `what` names the request in errors.

    Raises UnsupportedMediaError for another media type, MalformedError for invalid JSON, TooLargeError, and
    RequestError as `request_from`.
    """
    media_type(request, (JSON,), f"{what} is asked for in JSON")
    return request_from(json_object(await read_bounded(request, limit_bytes), "the body"), kind)


def request_from(values: dict[str, Any], kind: type[M]) -> M:
    """Converts the values of a body to the given type; raises RequestError naming the invalid part."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise RequestError(
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
            code="invalid_request",
            stage="request",
            hint=f"The body is {{{', '.join(kind.model_fields)}}}",
        ) from None


def check_length(headers: Mapping[str, str], limit_bytes: int) -> None:
    """Refuses a body at once if its announced length is too large."""
    length = headers.get("content-length")
    if length is not None:
        if not length.isdecimal():
            raise MalformedError("the Content-Length is not a number", stage="request", actual=length)
        if int(length) > limit_bytes:
            raise too_large(limit_bytes, int(length))


def too_large(limit_bytes: int, actual_bytes: int | None) -> TooLargeError:
    """The error for a body above the limit."""
    return TooLargeError(
        f"the upload is larger than the {limit_bytes} bytes that are accepted",
        stage="request",
        actual=actual_bytes if actual_bytes is not None else f"more than {limit_bytes}",
        limit=limit_bytes,
    )
