"""/v1/units."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from app.context import ContextDependency
from app.http import media_type, read_bounded, tagged, unless_known
from app.listing import PAGE, Cursor, Limit
from app.problems import Problem
from app.units import service
from app.units.schemas import UnitPage, UnitStatistics
from compiler.shapes.unit_bundle import MAX_BYTES

router = APIRouter(prefix="/v1", tags=["units"])

Op = Annotated[
    str | None, Query(max_length=500, description="Kinds of the ops that run together", examples=["Conv+Relu"])
]
ProfileOf = Annotated[str | None, Query(max_length=200, description="Name or digest of a profile")]
LibraryId = Annotated[str, Path(description="The `id` of a library", max_length=200)]
_TYPE: Final = "application/octet-stream"
_BYTES: dict[str, Any] = {_TYPE: {"schema": {"type": "string", "format": "binary"}}}


@router.get("/units", operation_id="listUnits", response_model_exclude_none=True, responses={404: {"model": Problem}})
def list_units(
    response: Response,
    context: ContextDependency,
    op: Op = None,
    profile: ProfileOf = None,
    cursor: Cursor = None,
    limit: Limit = PAGE,
) -> UnitPage:
    """The shape units in the cache that your compilations used, by library, those used latest first.

    A page may have fewer items than `limit`, or none, and still a `next_cursor`: a request looks at 500 libraries.
    """
    response.headers["Cache-Control"] = "no-store"
    return service.listed(context, op, profile, cursor, limit)


@router.get("/unit-statistics", operation_id="getUnitStatistics")
def get_unit_statistics(response: Response, context: ContextDependency) -> UnitStatistics:
    """Sums over the libraries that your compilations used latest, up to 5,000 of them, by their ops."""
    response.headers["Cache-Control"] = "no-store"
    return service.statistics(context)


@router.get(
    "/units/{library_id}",
    operation_id="getUnits",
    response_class=Response,
    responses={200: {"content": _BYTES}, 304: {"description": "Not modified"}, 404: {"model": Problem}},
)
def get_units(request: Request, context: ContextDependency, library_id: LibraryId) -> Response:
    """A library of shape units as one file, for a folder of units or for another service."""
    body = service.bundle(context, library_id)
    answer = tagged(hashlib.sha256(body).hexdigest(), body, "private, no-cache", media_type=_TYPE)
    return unless_known(request, answer)


@router.put(
    "/units/{library_id}",
    operation_id="putUnits",
    status_code=204,
    response_class=Response,
    responses={413: {"model": Problem}, 415: {"model": Problem}, 422: {"model": Problem}, 503: {"model": Problem}},
    openapi_extra={"requestBody": {"required": True, "content": _BYTES}},
)
async def put_units(request: Request, context: ContextDependency, library_id: LibraryId) -> Response:
    """Bring a library of shape units that another host made; the service builds it again, and keeps it if it is equal.

    Nothing is taken on trust: units of all models and owners lie together. The profile must be known here.
    """
    media_type(request, (_TYPE,), "units are uploaded as their bytes")
    with context.uploads.place(context.owner):
        body = await read_bounded(request, MAX_BYTES)
        await run_in_threadpool(service.push, context, library_id, body)
    return Response(status_code=204)
