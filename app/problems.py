"""Errors as RFC 9457 problems (API-4): one table from classes of errors to HTTP statuses, one shape."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import redis
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope

from app import errors
from app.full_disk import FULL, STORAGE_FULL, is_full
from app.supervisor.redis_server import Role
from compiler.errors import (
    InternalError,
    LimitError,
    ModelError,
    ProfileError,
    RequestError,
    TesseraError,
    printable,
)
from compiler.program.errors import ExecutableError, ProgramError

log = structlog.get_logger(__name__)

_CHARACTERS = 300
MEDIA_TYPE = "application/problem+json"
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")

# The first matching class counts, so more specific ones come first.
_STATUSES: tuple[tuple[type[TesseraError], HTTPStatus], ...] = (
    (errors.MalformedError, HTTPStatus.BAD_REQUEST),
    (errors.NotFoundError, HTTPStatus.NOT_FOUND),
    (errors.ConflictError, HTTPStatus.CONFLICT),
    (errors.TooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (errors.UnsupportedMediaError, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
    (errors.MisdirectedError, HTTPStatus.MISDIRECTED_REQUEST),
    (errors.OtherSiteError, HTTPStatus.FORBIDDEN),
    (errors.KeyRequiredError, HTTPStatus.UNAUTHORIZED),
    (errors.ForbiddenError, HTTPStatus.FORBIDDEN),
    (errors.QuotaError, HTTPStatus.TOO_MANY_REQUESTS),
    (errors.UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
    (ModelError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (ProfileError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (LimitError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (RequestError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (ProgramError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (ExecutableError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (InternalError, HTTPStatus.INTERNAL_SERVER_ERROR),
)

_RETRY_AFTER_S = "2"
_HTTP_CODES = {
    400: "malformed_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
}
_NO_RECORDS: Final[Mapping[str, str]] = {
    "code": "service_unavailable",
    "stage": "service",
    "message": "the service cannot reach its job records at the moment",
    "hint": "Try again in a few seconds",
}
RECORDS_FULL_HINT: Final = (
    "Delete finished jobs, or let the operator shorten TESSERA_KEEP_FINISHED_S or give the broker more memory"
)
# Why a Redis that answers does not do what it is told, by a word of its answer; scripts quote it.
_REFUSALS: Final[Mapping[str, Mapping[str, str]]] = {
    "used memory > 'maxmemory'": {
        "code": "records_full",
        "stage": "service",
        "message": "the memory for job records is full",
        "hint": RECORDS_FULL_HINT,
    },
    "MISCONF": {
        "code": "records_not_saved",
        "stage": "service",
        "message": "the job records cannot be written to the broker's disk, so nothing new is accepted",
        "hint": "Try again later; an operator finds the cause in the log of the broker's Redis",
    },
    "read only replica": _NO_RECORDS,
}


class Problem(BaseModel):
    """A problem, for programs (`code`) and for people (the other fields)."""

    model_config = ConfigDict(extra="forbid")

    type: str = Field(examples=["urn:tessera:problem:unknown_option"])
    title: str
    status: int
    detail: str
    code: str
    stage: str | None = None
    node: str | None = None
    op_type: str | None = None
    actual: bool | int | float | str | None = None
    limit: bool | int | float | str | None = None
    hint: str | None = None
    command: int | None = Field(default=None, description="The command at fault, of a program that is not safe")
    violation: str | None = Field(default=None, description="What a program that is not safe violates")
    request_id: str | None = None


def status_of(error: TesseraError) -> HTTPStatus:
    """The HTTP status for an error."""
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR


def problem(parts: Mapping[str, Any], status: int, request_id: str | None) -> Problem:
    """Makes a problem from the parts of TesseraError.to_dict; texts become one printable line each."""
    clean: dict[str, Any] = {
        # a hint may hold options to copy, so it is never cut
        name: printable(value, len(value) if name == "hint" else _CHARACTERS) if isinstance(value, str) else value
        for name, value in parts.items()
    }
    code = str(clean.pop("code", "error"))
    return Problem(
        type=f"urn:tessera:problem:{code}",
        title=code.replace("_", " ").capitalize(),
        status=status,
        detail=str(clean.pop("message", "")),
        code=code,
        request_id=request_id,
        **clean,
    )


def problem_response(
    parts: Mapping[str, Any], status: int, request_id: str | None, headers: dict[str, str] | None = None
) -> Response:
    """A problem as a response."""
    body = problem(parts, status, request_id).model_dump_json(exclude_none=True)
    return Response(body, status_code=status, media_type=MEDIA_TYPE, headers=headers)


def install(app: FastAPI) -> None:
    """Makes the application answer every error with a problem."""

    async def on_tessera_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, TesseraError)
        status = status_of(error)
        headers = None
        if isinstance(error, errors.KeyRequiredError | errors.ForbiddenError | errors.QuotaError):
            request.app.state.refusals[error.code] += 1
            log.warning("request_refused", code=error.code, actual=error.actual)
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            headers = retry_headers(request.scope)
        elif status == HTTPStatus.UNAUTHORIZED:
            headers = {"WWW-Authenticate": 'Bearer realm="tessera"'}
        elif isinstance(error, errors.QuotaError):
            headers = {"Retry-After": str(error.retry_after_s)}
        return problem_response(error.to_dict(), status, request_id_of(request), headers)

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = _HTTP_CODES.get(error.status_code, HTTPStatus(error.status_code).name.lower())
        where = f"{request.method} {printable(request.url.path)}"
        message = {
            404: f"there is nothing at {where}",
            405: f"the method of {where} is not allowed here",
        }.get(error.status_code, f"{where}: {printable(str(error.detail))}")
        parts = {"code": code, "stage": "request", "message": message}
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            parts["actual"] = request.method
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = parts["limit"] = allowed_methods(request)
        return problem_response(parts, error.status_code, request_id_of(request), headers)

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        malformed = first["type"] == "json_invalid"
        parts = {
            "code": "malformed_request" if malformed else "invalid_request",
            "stage": "request",
            "message": f"{where}: {first['msg']}",
            "actual": None if malformed else _short(first.get("input")),
        }
        status = HTTPStatus.BAD_REQUEST if malformed else HTTPStatus.UNPROCESSABLE_ENTITY
        return problem_response(parts, status, request_id_of(request))

    async def on_redis_error(request: Request, error: Exception) -> Response:
        parts: Mapping[str, str] | None = _NO_RECORDS
        if isinstance(error, redis.ResponseError):
            parts = next((parts for words, parts in _REFUSALS.items() if words in str(error)), None)
        if parts is None:
            raise error  # our own defect: trying again would not help
        # a Redis that cannot write refuses to, or ends and cannot be started again
        if parts["code"] != "records_full" and is_full(_broker_dir(request)):
            parts = STORAGE_FULL
        status = 507 if parts is STORAGE_FULL else 503
        return problem_response(parts, status, request_id_of(request), retry_headers(request.scope))

    async def on_os_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, OSError)
        if error.errno not in (*FULL, errno.EFBIG):  # the last is of a limit on the size of files
            raise error
        return problem_response(STORAGE_FULL, 507, request_id_of(request), retry_headers(request.scope))

    app.add_exception_handler(TesseraError, on_tessera_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(redis.RedisError, on_redis_error)
    app.add_exception_handler(OSError, on_os_error)


def note_location(request: Request, location: str) -> None:
    """Notes where the answer will be found, for a request that ends before it has one."""
    request.state.location = location


def retry_headers(scope: Scope) -> dict[str, str]:
    """The headers of an answer to try again, with the place noted by `note_location`."""
    location = scope.get("state", {}).get("location")
    return {"Retry-After": _RETRY_AFTER_S} | ({"Location": location} if isinstance(location, str) else {})


def allowed_methods(request: Request) -> str:
    """The methods of all routes that the path belongs to (RFC 9110: Allow lists them all); with GET goes HEAD."""
    found = {
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL for route in request.app.router.routes
        )
    }
    return ", ".join(sorted(found | {"HEAD"} if "GET" in found else found))


def request_id_of(request: Request) -> str | None:
    """The id that the middleware gave to this request."""
    value = request.scope.get("tessera.request_id")
    return value if isinstance(value, str) else None


def _broker_dir(request: Request) -> Path:
    """Where the embedded broker keeps its file; a broker of the operator's has none there."""
    return Path(request.app.state.context.settings.data_dir) / Role.BROKER.value


def _short(value: object) -> bool | int | float | str | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    return printable(str(value), 100)
