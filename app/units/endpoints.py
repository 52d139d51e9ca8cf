"""/v1/units."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.context import ContextDependency
from app.listing import PAGE, Cursor, Limit
from app.problems import Problem
from app.units import service
from app.units.schemas import UnitPage, UnitStatistics

router = APIRouter(prefix="/v1/units", tags=["units"])

Op = Annotated[
    str | None, Query(max_length=500, description="Kinds of the ops that run together", examples=["Conv+Relu"])
]
ProfileOf = Annotated[str | None, Query(max_length=200, description="Name or digest of a profile")]


@router.get("", operation_id="listUnits", response_model_exclude_none=True, responses={404: {"model": Problem}})
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


@router.get("/statistics", operation_id="getUnitStatistics")
def get_unit_statistics(response: Response, context: ContextDependency) -> UnitStatistics:
    """Sums over the libraries that your compilations used latest, up to 5,000 of them, by their ops."""
    response.headers["Cache-Control"] = "no-store"
    return service.statistics(context)
