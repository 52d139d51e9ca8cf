"""Operations on jobs."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, cast

import msgspec

from app.context import Context
from app.errors import ConflictError, NotFoundError, UnavailableError
from app.jobs.inputs import missing_input
from app.jobs.options_text import options_text
from app.jobs.records import FINAL_STATES, JobRequest, Kind, State, job_key, owned
from app.jobs.schemas import Job, JobLinks, JobPage, JobSummary, Reference
from app.keys.owners import LOCAL
from app.known_answers import Basis
from app.listing import page
from app.problems import Problem, problem
from app.report_page.page import FILE_NAME as PAGE_NAME
from app.report_page.page import page_tag, report_page
from compiler.errors import InternalError, TesseraError, printable
from compiler.report.plan import Plan, Report
from compiler.version import COMPILER_VERSION

# A lost result of a job is asked for again at most once in this time.
_AGAIN_S: Final = 30
# The results of jobs: documents and files.
RESULTS: Final = ("plan", "report", "executable", "outputs", "package")
_HINTS: Final = {
    "executable": "Its report says why under values.reason",
    "package": "A model of fixed shapes has one if it is compiled with option tables=[{}]",
}
_PROBLEM_STATUSES = {"internal_error": 500, "worker_lost": 500, "store_unavailable": 503, "storage_full": 507}


def get(context: Context, job_id: str) -> Job:
    """The present state of a job; raises NotFoundError."""
    return shown(context, job_id, fields_of(context, job_id))


def shown(context: Context, job_id: str, fields: dict[str, str]) -> Job:
    """The state of a job, by its record."""
    state, kind = cast(State, fields["state"]), kind_of(fields)
    position = context.records.queue_position(fields["content"]) if state == "queued" and kind != "sweep" else None
    base = f"/v1/jobs/{job_id}"
    made = {name for name in RESULTS if name in fields} if state == "succeeded" else set()
    return Job(
        **_summary(job_id, fields).model_dump(),
        queue_position=position,
        options=json.loads(options_text(context.store, fields["options"])),
        versions=_versions(fields),
        problem=problem_of(fields),
        no_package=no_package_of(fields),
        links=JobLinks(
            self=base,
            events=f"{base}/events",
            cancel=f"{base}/cancel",
            sweep=f"/v1/sweeps/{sweep}" if (sweep := job_id if kind == "sweep" else fields.get("sweep")) else None,
            plan=f"{base}/plan" if "plan" in made or provisional_plan(fields) is not None else None,
            report=f"{base}/report" if "report" in made else None,
            report_page=f"{base}/{PAGE_NAME}" if {"plan", "report"} <= made else None,
            listing=f"{base}/listing" if "executable" in made else None,
            trace=f"{base}/trace" if "executable" in made else None,
            executable=f"{base}/executables/0" if "executable" in made else None,
            outputs=f"{base}/outputs" if "outputs" in made else None,
            package=f"{base}/package" if "package" in made else None,
        ),
    )


def listed(context: Context, cursor: str | None, limit: int) -> JobPage:
    """A page of the requested jobs; the points of a sweep are in its table."""
    rows, following = page(context.broker, owned(context.owner.name, "jobs"), cursor, limit)
    pipeline = context.broker.pipeline(transaction=False)
    for job_id, _ in rows:
        pipeline.hgetall(f"tessera:job:{job_id}")
    records = pipeline.execute()
    items = [_summary(job_id, fields) for (job_id, _), fields in zip(rows, records, strict=True) if fields]
    return JobPage(items=items, next_cursor=following)


def delete(context: Context, job_id: str) -> None:
    """Deletes a job; raises NotFoundError, or ConflictError for a job that is not final or is a point of a sweep."""
    fields = fields_of(context, job_id)
    answer = context.records.delete_job(job_id)
    if answer == "not_final":
        raise ConflictError(
            f"job {job_id} is {fields['state']}: only jobs that are final can be deleted",
            code="not_finished",
            actual=fields["state"],
            limit=", ".join(sorted(FINAL_STATES)),
            hint=f"Cancel it with POST /v1/jobs/{job_id}/cancel, or wait for it",
        )
    if answer == "point":
        sweep = fields["sweep"]
        raise ConflictError(
            f"job {job_id} is a point of sweep {sweep} and is deleted with it",
            code="point_of_sweep",
            actual=sweep,
            hint=f"Delete the sweep with DELETE /v1/jobs/{sweep}",
        )


def _summary(job_id: str, fields: dict[str, str]) -> JobSummary:
    return JobSummary(
        id=job_id,
        kind=kind_of(fields),
        state=cast(State, fields["state"]),
        phase=fields.get("phase"),
        step=_integer(fields.get("step")),
        total=_integer(fields.get("total")),
        created_at=_time(fields["created_ms"]),
        started_at=_time(fields["started_ms"]) if "started_ms" in fields else None,
        finished_at=_time(fields["finished_ms"]) if "finished_ms" in fields else None,
        expires_at=_time(fields["expires_ms"]) if "expires_ms" in fields else None,
        attempts=int(fields["attempts"]),
        cached="cached" in fields,
        model=_reference(fields, "model"),
        profile=_reference(fields, "profile"),
    )


def fields_of(context: Context, job_id: str) -> dict[str, str]:
    """The record of a job; raises NotFoundError, also for a job of another owner."""
    return own_fields(context, job_id, context.records.job(job_id) if job_id.isalnum() else None)


def own_fields(context: Context, job_id: str, fields: dict[str, str] | None) -> dict[str, str]:
    """The record of a job as it was read; raises NotFoundError if there is none, or it is another owner's."""
    if not fields or fields.get("owner", LOCAL) != context.owner.name:
        raise unknown_job(job_id)
    return fields


def basis(job_id: str, fields: dict[str, str]) -> Basis:
    """What an answer about a job follows from if it follows from the record alone."""
    return Basis(command=("HGETALL", job_key(job_id)), found=fields)


def unknown_job(job_id: str) -> NotFoundError:
    """The error for a job that does not exist, or no longer."""
    return NotFoundError(
        f"there is no job {printable(job_id, 80)}",
        code="unknown_job",
        actual=printable(job_id, 80),
        hint="GET /v1/jobs lists your jobs; a job that ended long ago is removed",
    )


def kind_of(fields: dict[str, str]) -> Kind:
    """The kind of a job, by its record; jobs of the previous version have none."""
    return cast(Kind, fields.get("kind", "compilation"))


def document_digest(context: Context, job_id: str, name: str) -> str:
    """The digest of one of a job's RESULTS; raises as `digest_by_record`, or NotFoundError for an unknown job."""
    return digest_by_record(context, job_id, fields_of(context, job_id), name)


def digest_by_record(context: Context, job_id: str, fields: dict[str, str], name: str) -> str:
    """The digest of one of a job's RESULTS, whose blob is in the store.

    Raises ConflictError if the job has no such result or not yet, NotFoundError for a kind without this result,
    UnavailableError if the store has lost it.
    """
    if fields["state"] != "succeeded":
        final = fields["state"] in FINAL_STATES
        raise ConflictError(
            f"job {job_id} has no {name}: it is {fields['state']}",
            code="no_result" if final else "not_finished",
            actual=fields["state"],
            limit="succeeded",
            hint=f"See GET /v1/jobs/{job_id}" if final else f"Follow GET /v1/jobs/{job_id}/events",
        )
    if name not in fields:
        kind = kind_of(fields)
        raise NotFoundError(
            f"job {job_id} has no {name}",
            code="no_such_result",
            actual=kind,
            limit=", ".join(result for result in RESULTS if result in fields),
            hint=_HINTS.get(name) if kind == "compilation" else None,
        )
    if not context.store.ready(fields[name]):
        raise _made_again(context, job_id, fields, name)
    return fields[name]


def _made_again(context: Context, job_id: str, fields: dict[str, str], name: str) -> TesseraError:
    """What is answered for a result that the store has lost; the same work, which gives the same bytes, is asked for.

    UnavailableError, or NotFoundError if an input is gone too or another version of the compiler made it.
    """
    can_be_made = (
        fields["compiler_version"] == COMPILER_VERSION and missing_input(fields, context.models, context.store) is None
    )
    kind, job = kind_of(fields), f"{job_id}again{fields[name][:8]}{int(time.time()) // _AGAIN_S}"
    wanted = JobRequest(
        job=job,
        content=fields["content"],
        model=fields["model"],
        model_name=fields["model_name"],
        profile=fields["profile"],
        profile_name=fields["profile_name"],
        options=fields["options"],
        queue="short",
        time_limit_s=int(fields["time_limit_ms"]) / 1000,
        memory_limit_bytes=int(fields["memory_limit_bytes"]),
        compiler_version=fields["compiler_version"],
        request_id="",
        kind="simulation" if kind == "simulation" else "compilation",
        owner=context.owner.name,
    )
    answer = context.records.accept(wanted).answer if can_be_made else "unknown_model"
    if answer != "unknown_model":
        context.relay.wake()
        return UnavailableError(
            f"the {name} of job {job_id} was lost or damaged in the store and is made again",
            code="result_lost",
            stage="store",
            actual=fields[name],
            hint=f"Try again when job {job} has ended" if answer == "accepted" else "Try again when fewer jobs wait",
        )
    return NotFoundError(
        f"the {name} of job {job_id} was lost or damaged in the store",
        code="result_lost",
        stage="store",
        actual=fields[name],
        hint="Upload the model again if it is gone, and submit the request again",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """The documents of a compilation's page, by their digests; `pictures` is None for older jobs."""

    plan: str
    report: str
    pictures: str | None

    @property
    def tag(self) -> str:
        """A digest of everything that the page depends on."""
        return page_tag(self.plan, self.report, self.pictures or "")

    def text(self, context: Context) -> str:
        """The HTML; raises NotFoundError for documents of another version of Tessera."""
        pictures = b"{}" if self.pictures is None else document(context, self.pictures)
        try:
            return report_page(
                msgspec.json.decode(document(context, self.plan), type=Plan),
                msgspec.json.decode(document(context, self.report), type=Report),
                msgspec.json.decode(pictures, type=dict[str, str]),
            )
        except msgspec.ValidationError as error:
            raise NotFoundError(
                "the job's documents are of another version of Tessera, which this one cannot draw",
                code="no_such_result",
                actual=printable(str(error)),
                hint="Compile the model again",
            ) from None


def report_page_of(context: Context, job_id: str) -> ReportPage:
    """The parts of a compilation's HTML page; raises as `document_digest`."""
    plan, report = (document_digest(context, job_id, name) for name in ("plan", "report"))
    return ReportPage(plan=plan, report=report, pictures=fields_of(context, job_id).get("pictures"))


def provisional_plan(fields: dict[str, str]) -> str | None:
    """The digest of a running job's plan, by its record, before its programs are made."""
    return fields.get("provisional_plan") if fields["state"] == "running" else None


def package_digest(context: Context, job_id: str) -> str:
    """The digest of a compilation's package; raises as `document_digest`, with the reason if there is no package."""
    fields = fields_of(context, job_id)
    reason = no_package_of(fields)
    if reason is not None:
        raise NotFoundError(
            f"job {job_id} has no package: {reason.detail}",
            code=reason.code,
            stage=reason.stage,
            node=reason.node,
            op_type=reason.op_type,
            actual=reason.actual,
            limit=reason.limit,
            hint=reason.hint,
        )
    return document_digest(context, job_id, "package")


def no_package_of(fields: dict[str, str]) -> Problem | None:
    """The reason why a compilation has no package, by its record."""
    if "no_package" not in fields:
        return None
    return problem(json.loads(fields["no_package"]), 404, fields.get("request_id"))


def document(context: Context, digest: str) -> bytes:
    """The bytes of a plan or report."""
    try:
        return context.store.read(digest)
    except FileNotFoundError:
        raise missing(digest) from None


def missing(digest: str) -> InternalError:
    """The error for a result whose blob is missing."""
    return InternalError("a finished job's result is missing from the store", stage="store", actual=digest)


def cancel(context: Context, job_id: str) -> Job:
    """Cancels a job unless it has finished, and returns its state; raises NotFoundError."""
    fields_of(context, job_id)
    context.records.cancel(job_id)
    return get(context, job_id)


def problem_of(fields: dict[str, str]) -> Problem | None:
    """The problem of a failed job, by its record; None if it did not fail."""
    if fields["state"] != "failed":
        return None
    parts = json.loads(fields["problem"])
    status = _PROBLEM_STATUSES.get(str(parts.get("code")), 422)
    return problem(parts, status, fields.get("request_id"))


def _versions(fields: dict[str, str]) -> dict[str, str]:
    """The version that makes the result; and the version of the request, if no worker of that version was left."""
    versions = {"compiler": fields["compiler_version"]}
    return versions | {"requested": fields["requested_version"]} if "requested_version" in fields else versions


def _reference(fields: dict[str, str], name: str) -> Reference | None:
    digest = fields.get(name)
    return Reference(name=fields[f"{name}_name"], digest=digest) if digest else None


def _integer(text: str | None) -> int | None:
    return None if text is None else int(text)


def _time(ms: str) -> datetime:
    return datetime.fromtimestamp(int(ms) / 1000, UTC)
