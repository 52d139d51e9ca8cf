"""/v1/comparisons."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from app.comparisons import service
from app.comparisons.compare import comparison_json
from app.comparisons.schemas import ComparisonRequest
from app.context import ContextDependency
from app.http import JSON, json_request
from app.problems import Problem

router = APIRouter(prefix="/v1/comparisons", tags=["comparisons"])

_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {JSON: {"schema": ComparisonRequest.model_json_schema()}},
    }
}


@router.post(
    "",
    operation_id="compareJobs",
    response_model=dict[str, Any],
    responses={
        400: {"model": Problem},
        404: {"model": Problem},
        409: {"model": Problem},
        413: {"model": Problem},
        415: {"model": Problem},
        422: {"model": Problem},
    },
    openapi_extra=_BODY,
)
async def compare_jobs(request: Request, context: ContextDependency) -> Response:
    """Two compilations that succeeded side by side, by group and in total (docs/schemas/comparison.json)."""
    body = await json_request(request, context.settings.max_document_bytes, ComparisonRequest, what="a comparison")
    document = await run_in_threadpool(service.compared, context, body.a, body.b)
    return Response(comparison_json(document), media_type="application/json")
