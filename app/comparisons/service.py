"""Compares the results of two jobs."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from app.comparisons.compare import ComparisonDocument, Compiled, compare
from app.context import Context
from app.errors import ConflictError
from app.jobs import service as jobs
from compiler.report.plan import Plan, Report
from compiler.version import COMPILER_VERSION

T = TypeVar("T", Plan, Report)


def compared(context: Context, a: str, b: str) -> ComparisonDocument:
    """Compares two jobs; raises NotFoundError for a job of another kind, ConflictError for one without a plan."""
    return compare(_compiled(context, a), _compiled(context, b))


def _compiled(context: Context, job: str) -> Compiled:
    plan = _document(context, job, "plan", Plan)
    return Compiled(plan=plan, report=_document(context, job, "report", Report))


def _document(context: Context, job: str, name: str, kind: type[T]) -> T:
    data = jobs.document(context, jobs.document_digest(context, job, name))
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        raise ConflictError(
            f"the {name} of job {job} is of another version of Tessera",
            code="version_mismatch",
            actual=jobs.fields_of(context, job)["compiler_version"],
            limit=COMPILER_VERSION,
            hint="Compile it again",
        ) from None
