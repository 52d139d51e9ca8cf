"""/v1/models/{id}/tables."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from app.context import ContextDependency
from app.http import tagged, unless_known
from app.listing import Cursor
from app.models.endpoints import ModelId
from app.problems import Problem
from app.tables import service
from app.tables.cached import MAX_MODELS, cached_tables
from app.tables.document import tables_json
from app.tables.schemas import CachedTablePage, TableStatistics

router = APIRouter(prefix="/v1", tags=["tables"])

ProfileName = Annotated[str, Query(max_length=200, description="Name or digest of a profile")]
Shape = Annotated[str, Query(max_length=1000)]
Shapes = Annotated[
    list[Shape],
    Query(
        max_length=64,
        description="An input's name, a colon and its extents; for all inputs but those whose dimensions others give,"
        " for none of a static model",
        examples=[["x:1x3x225x199"]],
    ),
]
_REFUSED: dict[int | str, dict[str, Any]] = {404: {"model": Problem}, 422: {"model": Problem}}


@router.get(
    "/models/{model_id}/tables",
    operation_id="getTables",
    response_model=dict[str, Any],
    responses={304: {"description": "Not modified"}, **_REFUSED},
)
def get_tables(
    request: Request,
    context: ContextDependency,
    model_id: ModelId,
    profile: ProfileName,
    shape: Shapes = [],  # noqa: B006  # FastAPI copies it
) -> Response:
    """The parameter tables of a model for a shape, without compiling (docs/schemas/tables.json).

    A static model has one shape: `shape` may be left out.

    After a miss they are simple tables; optimised ones replace them as workers make them. They belong to the package of
    the latest requested compilation of this model and profile, whose digest is in `package`.
    """
    document, basis = service.tables(context, model_id, profile, shape)
    body = tables_json(document)
    answer = tagged(hashlib.sha256(body).hexdigest(), body, "private, no-cache")
    if basis is not None:
        again = context.answer_counts.counting(
            document.package, document.counts, document.extents, owner=context.owner.name
        )
        context.known.remember(request, context.owner.name, basis, answer, again)
    return unless_known(request, answer)


@router.get("/models/{model_id}/tables/statistics", operation_id="getTableStatistics", responses=_REFUSED)
def get_table_statistics(
    response: Response, context: ContextDependency, model_id: ModelId, profile: ProfileName
) -> TableStatistics:
    """Statistics of a model's tables: cache results, and the shapes requested most."""
    response.headers["Cache-Control"] = "no-store"
    return service.statistics(context, model_id, profile)


@router.get("/tables", operation_id="listTables", response_model_exclude_none=True, responses=_REFUSED)
def list_tables(
    response: Response,
    context: ContextDependency,
    shape: Annotated[list[Shape], Query(max_length=64, description="Shapes of inputs, as for one model")] = [],  # noqa: B006
    profile: Annotated[str | None, Query(max_length=200, description="Name or digest of a profile")] = None,
    model: Annotated[str | None, Query(max_length=200, description="A model's id")] = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=MAX_MODELS, description="Models in a page")] = MAX_MODELS,
) -> CachedTablePage:
    """The parameter tables in the cache for shapes that you asked for, or for one shape; nothing is made.

    Of each package the 20 shapes asked for most are looked for. Models whose tables you never asked for are left out
    unless `model` names one. A page may be empty and still have a `next_cursor`; it ends early after half a second.
    """
    response.headers["Cache-Control"] = "no-store"
    return cached_tables(context, shape, profile, model, cursor, limit)
