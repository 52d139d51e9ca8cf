"""Turns a request for a compilation into a job."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from app.context import Context
from app.jobs import accept_jobs
from app.jobs.options_text import kept_options
from app.jobs.records import Accepted, JobRequest
from app.models import service as models
from app.profiles import service as profiles
from app.trace_context import current_traceparent
from compiler.cache_key import cache_key
from compiler.errors import LimitError, RequestError, printable
from compiler.options import Options, parse_options
from compiler.profile import Profile
from compiler.version import COMPILER_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The request with every name resolved and every value checked."""

    model: str
    profile: Profile
    options: Options


def checked_options(context: Context, values: dict[str, Any]) -> Options:
    """Checks the options against the service's limits; raises RequestError or LimitError naming the option."""
    options = parse_options(values)
    settings = context.settings
    for name, most in (
        ("time_limit_s", settings.time_limit_s),
        ("memory_limit_bytes", settings.memory_limit_bytes),
    ):
        value = getattr(options, name)
        if value is not None and value > most:
            raise LimitError(
                f"option {name} is above what this service allows",
                code="invalid_option",
                stage="request",
                actual=value,
                limit=most,
            )
    return options


def submit(context: Context, wanted: Wanted, *, idempotency_key: str | None, request_id: str | None) -> Accepted:
    """Accept a job; raises RequestError for an unknown model or a key used for another request."""
    record = known_model(context, wanted.model)
    large = int(record["size_bytes"]) >= context.settings.long_model_bytes
    request = job_request(
        context,
        wanted,
        job=secrets.token_hex(16),
        model_name=record["name"],
        queue="long" if large else "short",
        request_id=request_id,
    )
    accepted = accept_jobs.accept(
        context,
        request,
        idempotency_key=idempotency_key,
        fingerprint=(wanted.model, request.profile, request.options),
    )
    if accepted.answer == "unknown_model":
        raise unknown_model(wanted.model)
    return accepted


def job_request(
    context: Context,
    wanted: Wanted,
    *,
    job: str,
    model_name: str,
    queue: Literal["short", "long"],
    request_id: str | None,
) -> JobRequest:
    """The request for the job of one compilation; its profile is stored where the worker reads it."""
    settings = context.settings
    return JobRequest(
        job=job,
        content=cache_key(wanted.model, wanted.profile, wanted.options, name=model_name),
        model=wanted.model,
        model_name=model_name,
        profile=profiles.keep(context, wanted.profile),
        profile_name=printable(wanted.profile.name, 200),
        options=kept_options(context.store, msgspec.json.encode(wanted.options, order="deterministic").decode()),
        queue=queue,
        time_limit_s=wanted.options.time_limit_s or settings.time_limit_s,
        memory_limit_bytes=wanted.options.memory_limit_bytes or settings.memory_limit_bytes,
        compiler_version=COMPILER_VERSION,
        request_id=request_id or "",
        owner=context.owner.name,
        trace=current_traceparent(),
    )


def known_model(context: Context, model: str) -> dict[str, str]:
    """The record of an uploaded model; raises RequestError if it does not exist."""
    record = models.find(context, model)
    if record is None:
        raise unknown_model(model)
    return record


def unknown_model(model: str) -> RequestError:
    """The error for a reference to an unknown model."""
    return RequestError(
        f"unknown model {printable(model, 80)!r}",
        code="unknown_model",
        stage="request",
        actual=printable(model, 80),
        hint="Upload it with POST /v1/models; its id is the SHA-256 of the file",
    )
