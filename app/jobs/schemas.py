"""Jobs as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from app.jobs.records import Kind, State
from app.problems import Problem


class Reference(BaseModel):
    """A named thing by its digest."""

    name: str
    digest: str


class JobLinks(BaseModel):
    """Links from a job to its resources."""

    self: str
    events: str
    cancel: str
    sweep: str | None = Field(default=None, description="The table, of a sweep or of one of its points")
    plan: str | None = None
    report: str | None = None
    report_page: str | None = Field(default=None, description="Plan and report as one HTML file, for a browser")
    listing: str | None = None
    trace: str | None = None
    executable: str | None = None
    outputs: str | None = None
    package: str | None = None


class JobSummary(BaseModel):
    """One request for a compilation, a simulation or a sweep, as a list shows it."""

    id: str
    kind: Kind
    state: State
    phase: str | None = Field(
        default=None, description="The compiler pass, or the phase of a simulation, that runs; points"
    )
    step: int | None = Field(
        default=None, description="Number of the phase, from 1; of a sweep how many points are final"
    )
    total: int | None = Field(default=None, description="How many phases, or points, there are")
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = Field(
        default=None, description="The end of a finished job and its results, at the latest"
    )
    attempts: int = Field(description="How many times a worker has begun; 0 of a sweep")
    cached: bool = Field(description="Whether the outcome was known when the job was accepted")
    model: Reference | None = Field(default=None, description="Absent where the executable came without its model")
    profile: Reference | None = Field(
        default=None, description="Absent of a simulation, whose executable has its own, and of a sweep: see options"
    )


class Job(JobSummary):
    """One request for a compilation, a simulation or a sweep, and its result."""

    queue_position: int | None = Field(default=None, description="1 is next; absent unless queued")
    options: dict[str, Any]
    versions: dict[str, str] = Field(
        description="`compiler`: the version that makes the result; `requested`: the version that accepted the job, "
        "if it has no worker left"
    )
    problem: Problem | None = Field(default=None, description="Why it failed")
    no_package: Problem | None = Field(default=None, description="Why a compilation that succeeded has no package")
    links: JobLinks


class JobPage(BaseModel):
    """A part of the list of jobs, newest first."""

    items: list[JobSummary]
    next_cursor: str | None = None


class JobEvent(BaseModel):
    """The data of one server-sent event; its SSE id resumes the stream."""

    state: State
    phase: str | None = None
    step: int = 0
    total: int = 0
    attempts: int = 0
    planned: bool = Field(
        default=False,
        description="Whether the plan can be read: the provisional one while the job runs, at its end the final one",
    )
