"""Earlier compilations: a folder of `tessera compile --out`, a plan.json, or a job on a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.client.document import document
from app.comparisons.compare import Compiled
from app.input_files import PLAN, existing_file, refuse_other
from compiler.amounts import bytes_text
from compiler.errors import RequestError, printable
from compiler.report.plan import Plan, Report

if TYPE_CHECKING:
    from app.client.client import Client

HINT: Final = "Give the folder of `tessera compile --out`, a plan.json, or with --server the id of a job"


# Larger than any plan or report of a network within the limits of a model.
BYTES_MAX: Final = 1 << 28


def is_saved(target: Path) -> bool:
    """True if a path names an earlier compilation, not a model."""
    return target.is_dir() or target.suffix.lower() == ".json"


def saved(target: Path) -> Compiled:
    """The plan and report in a folder, or a plan with the report beside it; raises RequestError for other paths."""
    path = target / "plan.json" if target.is_dir() else target
    report = path.with_name("report.json")
    refuse_other(existing_file(path, HINT), PLAN, HINT)
    plan = document(_bytes(path), Plan, str(path))
    described = document(_bytes(report), Report, str(report)) if report.is_file() else None
    if plan.totals.images < 1 or "objective" not in plan.options or not all(e.groups for e in plan.gap.entries):
        raise RequestError(
            f"{printable(str(path))} was changed by hand and is no plan any more",
            code="invalid_plan",
            actual="no image, objective or groups of a gap entry",
            hint="Compile again",
        )
    # a report beside the plan may belong to another compilation
    belongs = described is not None and _names(described) == _names(plan)
    return Compiled(plan=plan, report=described if belongs else None)


def _bytes(path: Path) -> bytes:
    size = path.stat().st_size
    if size > BYTES_MAX:
        raise RequestError(
            f"{printable(str(path))} is too large for a plan or report",
            code="too_large",
            actual=bytes_text(size),
            limit=bytes_text(BYTES_MAX),
            hint=HINT,
        )
    return path.read_bytes()


def of_job(client: Client, job: str) -> Compiled:
    """The documents of a job; of a running job only the plan."""
    plan = document(client.document(job, "plan"), Plan, f"job {job}")
    report = None if plan.provisional else document(client.document(job, "report"), Report, f"job {job}")
    return Compiled(plan=plan, report=report)


def _names(found: Plan | Report) -> tuple[object, ...]:
    """The properties that a plan shares with the report of the same compilation."""
    return found.model, found.profile, found.totals
