"""/v1/sweeps."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request, Response
from fastapi.concurrency import run_in_threadpool

from app.context import Context, ContextDependency
from app.http import JSON, immutable, json_request
from app.jobs import accept_jobs
from app.jobs.records import FINAL_STATES, Accepted
from app.jobs.schemas import Job
from app.problems import Problem, request_id_of
from app.sweeps import service
from app.sweeps.report import sweep_json
from app.sweeps.schemas import SweepRequest

router = APIRouter(prefix="/v1/sweeps", tags=["sweeps"])

SweepId = Annotated[str, Path(max_length=200)]
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {JSON: {"schema": SweepRequest.model_json_schema()}},
    }
}


@router.post(
    "",
    operation_id="createSweep",
    status_code=202,
    response_model=Job,
    responses={
        200: {"model": Job, "description": "The outcome is known"},
        400: {"model": Problem},
        413: {"model": Problem},
        415: {"model": Problem},
        422: {"model": Problem},
    },
    openapi_extra=_BODY,
)
async def create_sweep(
    request: Request,
    context: ContextDependency,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> Response:
    """Compile a model for each profile of a list and each combination of values of their fields.

    The sweep is a job, and so is each of its points; invalid points fail by themselves.
    """
    body = await json_request(request, context.settings.max_document_bytes, SweepRequest, what="a sweep")
    accepted = await run_in_threadpool(_accepted, context, body, idempotency_key, request_id_of(request))
    return await accept_jobs.answer(request, context, accepted, resource="sweeps")


def _accepted(context: Context, body: SweepRequest, idempotency_key: str | None, request_id: str | None) -> Accepted:
    wanted = service.resolved(
        context, model=body.model, profile_names=body.profiles, grid=body.grid, options=body.options
    )
    return service.submit(context, wanted, idempotency_key=idempotency_key, request_id=request_id)


@router.get(
    "/{sweep_id}",
    operation_id="getSweep",
    response_model=dict[str, Any],
    responses={304: {"description": "Not modified"}, 404: {"model": Problem}},
)
def get_sweep(request: Request, context: ContextDependency, sweep_id: SweepId) -> Response:
    """The table and front of a sweep (docs/schemas/sweep.json); while it runs, of its final points."""
    report = service.report(context, sweep_id)
    body = sweep_json(report)
    answer = immutable(request, hashlib.sha256(body).hexdigest(), body)
    if report.state not in FINAL_STATES:
        answer.headers.update({"Cache-Control": "no-store", "Retry-After": "1"})
    return answer
