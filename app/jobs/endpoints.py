"""/v1/jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any, Final

import redis
from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, PlainTextResponse
from sse_starlette import EventSourceResponse, ServerSentEvent

from app.context import Context, ContextDependency
from app.errors import NotFoundError
from app.http import (
    IMMUTABLE,
    JSON,
    ClosedStream,
    etag,
    immutable_file,
    not_modified,
    preferred_wait_s,
    tagged,
    unless_known,
)
from app.jobs import events, service
from app.jobs.records import FINAL_STATES
from app.jobs.schemas import Job, JobPage
from app.listing import PAGE, Cursor, Limit
from app.problems import Problem, note_location
from app.report_page import page
from app.simulations import listings, traces

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

JobId = Annotated[str, Path(max_length=200)]
ListedStatements = Annotated[
    int | None,
    Query(
        ge=0,
        le=listings.MAX_STATEMENTS,
        description="The first (head) and last (tail) statements of a segment; 1000 and 100 where neither is given",
    ),
]
Number = Annotated[int, Path(ge=0, le=1_000_000)]
_BINARY = "application/octet-stream"
_FILE = {"type": "string", "format": "binary"}
# One server-sent event (OpenAPI 3.2).
_EVENT: Final = {
    "type": "object",
    "required": ["event", "id", "data"],
    "properties": {
        "event": {"const": "job"},
        "id": {"type": "string", "pattern": events.ID_PATTERN},
        "retry": {"type": "integer"},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"$ref": "#/components/schemas/JobEvent"},
        },
    },
}
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": Problem}}
_DOCUMENT: dict[int | str, dict[str, Any]] = {
    304: {"description": "Not modified"},
    404: {"model": Problem},
    409: {"model": Problem},
}


@router.get("", operation_id="listJobs", response_model_exclude_none=True)
def list_jobs(context: ContextDependency, cursor: Cursor = None, limit: Limit = PAGE) -> JobPage:
    """The requested jobs, newest first, in pages; the points of a sweep are in its table."""
    return service.listed(context, cursor, limit)


@router.get("/{job_id}", operation_id="getJob", response_model=Job, responses=_UNKNOWN)
async def get_job(request: Request, context: ContextDependency, job_id: JobId) -> Response:
    """The state of a job, with `Prefer: wait=N` after it has finished; a failed job is 200 with its problem."""
    note_location(request, f"/v1/jobs/{job_id}")
    fields = await run_in_threadpool(service.fields_of, context, job_id)
    wait_s = preferred_wait_s(request, context.settings.max_wait_s)
    waits = wait_s is not None and fields["state"] not in FINAL_STATES
    if wait_s is not None and waits:
        await events.wait_until_final(context.events, job_id, wait_s)
        fields = await run_in_threadpool(service.fields_of, context, job_id)
    job = await run_in_threadpool(service.shown, context, job_id, fields)
    answer = Response(job.model_dump_json(exclude_none=True), media_type=JSON, headers={"Cache-Control": "no-store"})
    if job.state not in FINAL_STATES:
        answer.headers["Retry-After"] = "1"
    elif not waits:
        context.known.remember(request, context.owner.name, service.basis(job_id, fields), answer)
    if waits:
        answer.headers["Preference-Applied"] = f"wait={wait_s:.0f}"
    return answer


@router.post("/{job_id}/cancel", operation_id="cancelJob", response_model_exclude_none=True, responses=_UNKNOWN)
def cancel_job(context: ContextDependency, job_id: JobId) -> Job:
    """Cancel a job; one that has finished stays as it is."""
    return service.cancel(context, job_id)


@router.delete("/{job_id}", operation_id="deleteJob", status_code=204, responses={**_UNKNOWN, 409: {"model": Problem}})
def delete_job(context: ContextDependency, job_id: JobId) -> None:
    """Delete a job that is final, a sweep with its points; one that is not is refused: cancel it first.

    Its result stays cached: the same request is answered at once.
    """
    service.delete(context, job_id)


@router.get("/{job_id}/plan", operation_id="getPlan", response_model=dict[str, Any], responses=_DOCUMENT)
def get_plan(request: Request, context: ContextDependency, job_id: JobId) -> Response:
    """The plan of a job that succeeded, or of a running job as soon as it is known (docs/schemas/plan.json).

    The plan of a running job says `provisional`: its times are estimates, and it must not be cached.
    """
    fields = service.fields_of(context, job_id)
    digest = service.provisional_plan(fields)
    if digest is None:
        return _document(request, context, job_id, fields, "plan")
    return unless_known(request, tagged(digest, service.document(context, digest), "no-store"))


@router.get("/{job_id}/report", operation_id="getReport", response_model=dict[str, Any], responses=_DOCUMENT)
def get_report(request: Request, context: ContextDependency, job_id: JobId) -> Response:
    """The report of a job that succeeded (docs/schemas/report.json; of a simulation docs/schemas/simulation.json)."""
    return _document(request, context, job_id, service.fields_of(context, job_id), "report")


@router.get(
    f"/{{job_id}}/{page.FILE_NAME}",
    operation_id="getReportPage",
    response_class=HTMLResponse,
    responses=_DOCUMENT,
)
def get_report_page(request: Request, context: ContextDependency, job_id: JobId) -> Response:
    """The plan and report of a compilation that succeeded as one HTML file, for a browser (docs/report.md)."""
    found = service.report_page_of(context, job_id)
    headers = {
        "ETag": etag(found.tag),
        # a later version of the service renders the same documents in another way
        "Cache-Control": "private, no-cache",
        # a separate origin: the page shows data from a model, which must not call the API
        "Content-Security-Policy": f"{page.policy()}; frame-ancestors 'none'; sandbox allow-scripts",
        # the HTML standard shows nothing that is sandboxed and has another policy for its openers
        "Cross-Origin-Opener-Policy": "unsafe-none",
        "Content-Disposition": f'inline; filename="{page.FILE_NAME}"',
    }
    if not_modified(request, found.tag):
        return Response(status_code=304, headers=headers)  # headers of a 304 replace those that the browser keeps
    return HTMLResponse(found.text(context), headers=headers)


@router.get(
    "/{job_id}/executables/{number}",
    operation_id="getExecutable",
    response_class=Response,
    responses={200: {"content": {_BINARY: {"schema": _FILE}}}, **_DOCUMENT},
)
def get_executable(request: Request, context: ContextDependency, job_id: JobId, number: Number) -> Response:
    """The executable of a compilation that succeeded: file 0 holds all segments (docs/executable.md)."""
    digest = service.document_digest(context, job_id, "executable")
    if number != 0:
        raise NotFoundError(
            f"job {job_id} has no executable {number}",
            code="no_such_result",
            actual=number,
            limit=0,
            hint="Executable 0 is one file with the programs of all segments",
        )
    return _file(request, context, digest, _BINARY, "executable.tsx")


@router.get(
    "/{job_id}/package",
    operation_id="getPackage",
    response_class=Response,
    responses={200: {"content": {_BINARY: {"schema": _FILE}}}, **_DOCUMENT},
)
def get_package(request: Request, context: ContextDependency, job_id: JobId) -> Response:
    """The package of a compilation with dynamic dimensions: the model for every shape in their ranges (SHAPE-10)."""
    return _file(request, context, service.package_digest(context, job_id), _BINARY, "package.tsp")


@router.get(
    "/{job_id}/outputs",
    operation_id="getOutputs",
    response_class=Response,
    responses={200: {"content": {_BINARY: {"schema": _FILE}}}, **_DOCUMENT},
)
def get_outputs(request: Request, context: ContextDependency, job_id: JobId) -> Response:
    """The outputs of a simulation that succeeded, as .npz: keys are the names of the model's outputs."""
    digest = service.document_digest(context, job_id, "outputs")
    return _file(request, context, digest, _BINARY, "outputs.npz")


@router.get(
    "/{job_id}/listing",
    operation_id="getListing",
    response_class=PlainTextResponse,
    responses={**_DOCUMENT, 422: {"model": Problem}, 503: {"model": Problem}},
)
def get_listing(
    request: Request,
    context: ContextDependency,
    job_id: JobId,
    group: Annotated[str | None, Query(max_length=200, description="Commands of this group of the plan alone")] = None,
    head: ListedStatements = None,
    tail: ListedStatements = None,
    summary: Annotated[bool, Query(description="Counts and bytes in place of commands")] = False,
) -> Response:
    """The disassembly of a compilation that succeeded: the first and the last statements of each segment."""
    digest = service.document_digest(context, job_id, "executable")
    if head is None and tail is None:
        head, tail = listings.SHORT.head, listings.SHORT.tail
    wanted = listings.Wanted(group=group, head=head, tail=tail, summary=summary)
    tag = listings.tag(digest, wanted)
    headers = {"ETag": etag(tag), "Cache-Control": IMMUTABLE}
    if not_modified(request, tag):
        return Response(status_code=304, headers=headers)
    text = listings.pieces(context.store, digest, wanted, context.listing_makers)
    return ClosedStream(text, "text/plain; charset=utf-8", headers)


@router.get(
    "/{job_id}/trace",
    operation_id="getTrace",
    response_class=Response,
    responses={
        200: {"content": {traces.MEDIA_TYPE: {"schema": _FILE}}},
        **_DOCUMENT,
        422: {"model": Problem},
        503: {"model": Problem},
    },
)
def get_trace(
    request: Request,
    context: ContextDependency,
    job_id: JobId,
    commands: Annotated[
        int, Query(ge=0, le=traces.MAX_COMMANDS, description="The first so many commands of each segment")
    ] = traces.COMMANDS,
) -> Response:
    """A trace for Perfetto: the simulated commands of a compilation that succeeded (docs/time.md)."""
    digest = service.document_digest(context, job_id, "executable")
    tag = traces.tag(digest, commands)
    headers = {"ETag": etag(tag), "Cache-Control": IMMUTABLE}
    if not_modified(request, tag):
        return Response(status_code=304, headers=headers)
    headers["Content-Disposition"] = f'attachment; filename="{traces.FILE_NAME}"'
    found = traces.pieces(context.store, digest, commands, context.settings.max_wait_s, context.trace_makers)
    return ClosedStream(found, traces.MEDIA_TYPE, headers)


@router.get(
    "/{job_id}/events",
    operation_id="followJob",
    response_class=EventSourceResponse,
    responses={
        200: {
            "content": {"text/event-stream": {"itemSchema": _EVENT}},
            "description": "Events whose data is a JobEvent",
        },
        204: {"description": "The job is final and every event was seen"},
        404: {"model": Problem},
    },
)
async def follow_job(
    request: Request,
    context: ContextDependency,
    job_id: JobId,
    last_event_id: Annotated[
        str | None, Header(description="Resume after this event", json_schema_extra={"pattern": events.ID_PATTERN})
    ] = None,
) -> Response:
    """The events of a job as they happen, from the start or after `Last-Event-ID`, until the job is final.

    The last event has the final state; its `planned` says whether the job has a plan to read.
    """
    after = "0-0" if last_event_id is None else events.checked_event_id(last_event_id)
    note_location(request, f"/v1/jobs/{job_id}")
    fields = await run_in_threadpool(service.fields_of, context, job_id)
    if fields["state"] in FINAL_STATES and not await events.anything_after(context.events, job_id, after):
        return Response(status_code=204)  # stops an EventSource from reconnecting
    return EventSourceResponse(_sent(context, job_id, after), ping=15)


async def _sent(context: Context, job_id: str, after: str) -> AsyncIterator[ServerSentEvent]:
    try:
        async for event in events.follow(context.events, job_id, after):
            yield ServerSentEvent(data=event.data, id=event.id, event="job", retry=1000)
    except redis.RedisError:
        return  # it began with 200; the reader comes back after its last event, and is answered 503


def _file(request: Request, context: Context, digest: str, media_type: str, name: str) -> Response:
    try:
        size_bytes = context.store.size_bytes(digest)
    except FileNotFoundError:
        raise service.missing(digest) from None
    return immutable_file(request, digest, context.store.pieces(digest), size_bytes, media_type, name)


def _document(request: Request, context: Context, job_id: str, fields: dict[str, str], name: str) -> Response:
    digest = service.digest_by_record(context, job_id, fields, name)
    state = context.store.state(digest)  # before it is read: whatever is read is verified
    answer = tagged(digest, service.document(context, digest))
    basis = replace(service.basis(job_id, fields), digest=digest, state=state)
    context.known.remember(request, context.owner.name, basis, answer)
    return unless_known(request, answer)
