"""Records and answers every request for a job (API-4, API-5)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import structlog
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from app.context import Context
from app.errors import QuotaError, UnavailableError
from app.http import preferred_wait_s
from app.jobs import events, service
from app.jobs.records import FINAL_STATES, Accepted, Idempotency, JobRequest, SweepRequest
from app.keys.use import too_many_bytes
from app.problems import RECORDS_FULL_HINT, note_location
from compiler.errors import RequestError, printable

_JOBS_RETRY_S: Final = 5
log = structlog.get_logger(__name__)


def accept(
    context: Context, request: JobRequest, *, idempotency_key: str | None, fingerprint: tuple[str, ...]
) -> Accepted:
    """Records a job, with its outcome if known; raises RequestError for a key used for another request."""
    key = _idempotency(idempotency_key, fingerprint)
    outcome = context.results.get(request.content)
    accepted = context.records.accept(
        request,
        outcome=outcome,
        key=key,
        limits=context.owner.limits,
    )
    _checked(context, accepted, idempotency_key)
    if accepted.answer == "finished" and outcome is not None and "package" in outcome:
        context.units.for_owners([context.owner.name]).recall(outcome["package"])
    if accepted.answer == "accepted":
        log.info("job_accepted", job=accepted.job, content=request.content)
    return accepted


def accept_sweep(
    context: Context,
    request: SweepRequest,
    points: Sequence[tuple[JobRequest, Mapping[str, str] | None]],
    *,
    idempotency_key: str | None,
    fingerprint: tuple[str, ...],
) -> Accepted:
    """Records a sweep and its points at once; an outcome given with a point means that it cannot be computed.

    Raises RequestError as `accept` does.
    """
    key = _idempotency(idempotency_key, fingerprint)
    known = [(point, context.results.get(point.content) if outcome is None else outcome) for point, outcome in points]
    accepted = context.records.accept_sweep(request, known, key=key, limits=context.owner.limits)
    return _checked(context, accepted, idempotency_key)


def _checked(context: Context, accepted: Accepted, idempotency_key: str | None) -> Accepted:
    if accepted.answer == "conflict":
        raise RequestError(
            "this Idempotency-Key was used for another request",
            code="idempotency_key_reused",
            stage="request",
            actual=printable(idempotency_key or "", 80),
            hint="Use a new key for a new request",
        )
    if accepted.answer == "too_many_jobs":
        raise QuotaError(
            "too many of your jobs wait or run",
            code="too_many_jobs",
            actual=int(accepted.job),
            limit=context.owner.limits.waiting_jobs,
            hint="Wait for some of them or cancel them; each point of a sweep counts",
            retry_after_s=_JOBS_RETRY_S,
        )
    if accepted.answer == "too_many_bytes":
        raise too_many_bytes(context.owner, int(accepted.job))
    if accepted.answer in ("queue_full", "records_full"):
        raise _no_room(context, accepted)
    context.relay.wake()
    return accepted


def _no_room(context: Context, accepted: Accepted) -> UnavailableError:
    """The error for a job that finds no room; what was accepted before is worked on."""
    if accepted.answer == "queue_full":
        return UnavailableError(
            "too many jobs wait",
            code="queue_full",
            stage="request",
            actual=int(accepted.job),
            limit=context.settings.max_waiting_jobs,
            hint="Try again when some have ended; an operator may raise TESSERA_MAX_WAITING_JOBS or add workers",
        )
    return UnavailableError(
        "the memory for job records is nearly full",
        code="records_full",
        stage="service",
        actual=int(accepted.job),
        hint=RECORDS_FULL_HINT,
    )


async def answer(request: Request, context: Context, accepted: Accepted, *, resource: str = "jobs") -> Response:
    """Answers 202 with a location, or 200 if the job is final already or becomes final while the caller waits."""
    structlog.contextvars.bind_contextvars(job=accepted.job)
    headers = {"Location": f"/v1/{resource}/{accepted.job}"}
    note_location(request, headers["Location"])
    job = await run_in_threadpool(service.get, context, accepted.job)
    wait_s = preferred_wait_s(request, context.settings.max_wait_s)
    if wait_s is not None:
        headers["Preference-Applied"] = f"wait={wait_s:.0f}"
        if job.state not in FINAL_STATES:
            await events.wait_until_final(context.events, accepted.job, wait_s)
            job = await run_in_threadpool(service.get, context, accepted.job)
    final = job.state in FINAL_STATES
    if not final:
        headers["Retry-After"] = "1"
    body = job.model_dump(mode="json", exclude_none=True)
    return JSONResponse(body, status_code=200 if final else 202, headers=headers)


def _idempotency(key: str | None, fingerprint: tuple[str, ...]) -> Idempotency | None:
    return None if key is None else Idempotency(key=_sha256(key), fingerprint=_sha256("\n".join(fingerprint)))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
