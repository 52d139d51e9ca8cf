"""Turns a request for a simulation into a job."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from app.compilations.service import checked_options
from app.context import Context
from app.errors import ConflictError
from app.jobs import accept_jobs
from app.jobs import service as jobs
from app.jobs.records import Accepted, JobRequest
from app.keys.use import too_many_bytes
from app.models import service as models
from app.simulations.options import SimulationOptions
from app.trace_context import current_traceparent
from compiler.errors import RequestError, printable
from compiler.version import COMPILER_VERSION

_BOUNDS = ("time_limit_s", "memory_limit_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The executable of a request; `model` judges its outputs, "" if it is unknown."""

    executable: str
    name: str
    model: str = ""
    job: str | None = None
    report: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The request with every reference resolved."""

    target: Target
    seed: int
    inputs: str | None
    time_limit_s: float | None
    memory_limit_bytes: int | None


def of_job(context: Context, job_id: str) -> Target:
    """The executable of a compilation that succeeded; raises NotFoundError, or ConflictError if it has none."""
    digest = jobs.document_digest(context, job_id, "executable")
    fields = jobs.fields_of(context, job_id)
    if not context.store.retain(digest):
        raise ConflictError(f"the executable of job {job_id} is gone from the store", code="no_result", actual=digest)
    context.store.retain(fields["report"])
    is_there = models.find(context, fields["model"]) is not None
    return Target(
        executable=digest,
        name=fields["model_name"],
        model=fields["model"] if is_there else "",
        job=job_id,
        report=fields["report"],
    )


def bounds(context: Context, values: dict[str, Any]) -> tuple[float | None, int | None]:
    """The limits of the job; raises RequestError for any other option, LimitError above what the service allows."""
    unknown = next((name for name in values if name not in _BOUNDS), None)
    if unknown is not None:
        raise RequestError(
            f"unknown option {printable(unknown, 60)!r} of a simulation",
            code="unknown_option",
            stage="request",
            actual=printable(unknown, 60),
            limit=", ".join(_BOUNDS),
        )
    options = checked_options(context, values)
    return options.time_limit_s, options.memory_limit_bytes


def check_room(context: Context, size_bytes: int) -> None:
    """Raises QuotaError if the owner has no room for files; those that come at once are counted with their jobs."""
    bytes_then = context.records.stored_bytes(context.owner.name) + size_bytes
    if size_bytes and bytes_then > context.owner.limits.stored_bytes:
        raise too_many_bytes(context.owner, bytes_then)


def submit(context: Context, wanted: Wanted, *, idempotency_key: str | None, request_id: str | None) -> Accepted:
    """Accept a job; raises RequestError for a key used for another request."""
    accepted = _submit(context, wanted, wanted.target.model, idempotency_key, request_id)
    if accepted.answer == "unknown_model":  # deleted in the meantime: the executable runs without a judge
        return _submit(context, wanted, "", idempotency_key, request_id)
    return accepted


def _submit(
    context: Context, wanted: Wanted, model: str, idempotency_key: str | None, request_id: str | None
) -> Accepted:
    settings, target = context.settings, wanted.target
    report = target.report if model else None
    options = SimulationOptions(
        executable=target.executable,
        seed=wanted.seed,
        inputs=wanted.inputs,
        job=target.job,
        report=report,
        time_limit_s=wanted.time_limit_s,
        memory_limit_bytes=wanted.memory_limit_bytes,
    )
    files = [target.executable] if target.job is None else []
    files += [] if wanted.inputs is None else [wanted.inputs]
    text = msgspec.json.encode(options, order="deterministic").decode()
    queue: Literal["short", "long"] = (
        "long" if context.store.size_bytes(target.executable) >= settings.long_model_bytes else "short"
    )
    request = JobRequest(
        job=secrets.token_hex(16),
        kind="simulation",
        content=options.content_key(model, target.name),
        model=model,
        model_name=target.name,
        profile="",
        profile_name="",
        options=text,
        queue=queue,
        time_limit_s=wanted.time_limit_s or settings.time_limit_s,
        memory_limit_bytes=wanted.memory_limit_bytes or settings.memory_limit_bytes,
        compiler_version=COMPILER_VERSION,
        request_id=request_id or "",
        owner=context.owner.name,
        attached_bytes=sum(map(context.store.size_bytes, files)),
        trace=current_traceparent(),
    )
    return accept_jobs.accept(context, request, idempotency_key=idempotency_key, fingerprint=("simulation", text))
