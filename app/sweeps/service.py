"""Turns a request for a sweep into jobs, and their records into its table."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import msgspec

from app.compilations import service as compilations
from app.context import Context
from app.errors import NotFoundError
from app.jobs import accept_jobs
from app.jobs import service as jobs
from app.jobs.options_text import kept_options, options_text
from app.jobs.records import Accepted, JobRequest, State, SweepRequest, point_id
from app.profiles import service as profiles
from app.sweeps.figures import Figures
from app.sweeps.grid import Grid, Point, parse_grid, places_of, points_of
from app.sweeps.options import SweepOptions
from app.sweeps.report import PointReport, SweepHead, SweepReport, sweep_report
from app.trace_context import current_traceparent
from compiler.errors import TesseraError
from compiler.options import Options
from compiler.profile import Profile
from compiler.profile.fields import Value
from compiler.report.plan import ModelRef, ProfileRef
from compiler.version import COMPILER_VERSION

_PROFILES_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The request with every name resolved and every value checked."""

    model: str
    profiles: Sequence[Profile]
    grid: Grid
    options: Options


def resolved(
    context: Context,
    *,
    model: str,
    profile_names: Sequence[str],
    grid: Mapping[str, object],
    options: Mapping[str, Any],
) -> Wanted:
    """Resolves the references of a request; raises RequestError or LimitError if it is invalid."""
    compilations.known_model(context, model)
    return Wanted(
        model=model,
        profiles=[profiles.resolve(context, name) for name in profile_names],
        grid=parse_grid(grid),
        options=compilations.checked_options(context, {"verify": "none", **options}),
    )


def submit(context: Context, wanted: Wanted, *, idempotency_key: str | None, request_id: str | None) -> Accepted:
    """Accepts a sweep with all its points, or nothing; raises RequestError as a compilation does, LimitError."""
    record = compilations.known_model(context, wanted.model)
    points = points_of(wanted.profiles, wanted.grid, context.owner.limits.sweep_points)
    options = SweepOptions(
        profiles=tuple(
            ProfileRef(name=profile.name, digest=profiles.keep(context, profile)) for profile in wanted.profiles
        ),
        grid=wanted.grid,
        options=msgspec.to_builtins(wanted.options),
    )
    text = msgspec.json.encode(options, order="deterministic").decode()
    request = SweepRequest(
        job=secrets.token_hex(16),
        model=wanted.model,
        model_name=record["name"],
        options=kept_options(context.store, text),
        compiler_version=COMPILER_VERSION,
        request_id=request_id or "",
        owner=context.owner.name,
        trace=current_traceparent(),
    )
    with ThreadPoolExecutor(_PROFILES_AT_ONCE) as pool:  # each point stores a profile, and waits for its store
        jobs_of_points = list(pool.map(partial(_accepted_point, context, wanted, request), range(len(points)), points))
    accepted = accept_jobs.accept_sweep(
        context,
        request,
        jobs_of_points,
        idempotency_key=idempotency_key,
        fingerprint=("sweep", wanted.model, text),
    )
    if accepted.answer == "unknown_model":
        raise compilations.unknown_model(wanted.model)
    return accepted


def _accepted_point(
    context: Context, wanted: Wanted, sweep: SweepRequest, number: int, point: Point
) -> tuple[JobRequest, Mapping[str, str] | None]:
    """The job of a point, with its outcome if its profile is invalid; then the record names its base."""
    fault = point.profile if isinstance(point.profile, TesseraError) else None
    profile = point.profile if isinstance(point.profile, Profile) else point.base
    request = compilations.job_request(
        context,
        compilations.Wanted(model=wanted.model, profile=profile, options=wanted.options),
        job=point_id(sweep.job, number),
        model_name=sweep.model_name,
        queue="long",  # single requests go before a sweep
        request_id=sweep.request_id,
    )
    return request, None if fault is None else {"state": "failed", "problem": json.dumps(fault.to_dict())}


def report(context: Context, sweep: str) -> SweepReport:
    """The present table of a sweep; raises NotFoundError for any other job."""
    kind = jobs.kind_of(jobs.fields_of(context, sweep))
    if kind != "sweep":
        raise NotFoundError(
            f"job {sweep} is no sweep", code="unknown_sweep", actual=kind, hint=f"See GET /v1/jobs/{sweep}"
        )
    found = context.records.sweep(sweep)
    if found is None:
        raise jobs.unknown_job(sweep)
    fields, points = found
    options = msgspec.json.decode(options_text(context.store, fields["options"]), type=SweepOptions)
    head = SweepHead(
        model=ModelRef(name=fields["model_name"], sha256=fields["model"]),
        profiles=options.profiles,
        grid=options.grid,
        options=options.options,
        compiler_version=fields["compiler_version"],
    )
    places = places_of(options.profiles, options.grid)
    rows = [
        _row(point_id(sweep, number), profile.name, values, point)
        for number, ((profile, values), point) in enumerate(zip(places, points, strict=True))
    ]
    return sweep_report(head, cast(State, fields["state"]), rows)


def _row(job: str, profile: str, values: dict[str, Value], fields: dict[str, str]) -> PointReport:
    problem = jobs.problem_of(fields)
    return PointReport(
        profile=profile,
        values=values,
        job=job,
        state=cast(State, fields["state"]),
        figures=msgspec.json.decode(fields["figures"], type=Figures) if "figures" in fields else None,
        problem=None if problem is None else problem.model_dump(exclude_none=True),
    )
