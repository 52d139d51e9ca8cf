"""Answers of the service, as the client returns them."""

from __future__ import annotations

from typing import Any

import msgspec


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """An uploaded model."""

    id: str
    name: str
    size_bytes: int


class ProfileSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A hardware profile without its fields."""

    name: str
    digest: str
    builtin: bool


class ProfilePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of profiles."""

    items: list[ProfileSummary]
    next_cursor: str | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The present state of a job; times are ISO 8601."""

    id: str
    state: str
    attempts: int
    cached: bool
    created_at: str
    phase: str | None = None
    step: int | None = None
    total: int | None = None
    queue_position: int | None = None
    started_at: str | None = None
    finished_at: str | None = None
    expires_at: str | None = None
    options: dict[str, Any] = {}
    problem: dict[str, Any] | None = None
    kind: str = "compilation"
    links: dict[str, str] = {}

    @property
    def final(self) -> bool:
        """Whether the job has reached its last state."""
        return self.state in ("succeeded", "failed", "cancelled")


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs, newest first."""

    items: list[Job]
    next_cursor: str | None = None


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a job. `planned`: its plan can be read, provisional while it runs, final in the last event."""

    state: str
    phase: str | None = None
    step: int = 0
    total: int = 0
    attempts: int = 0
    planned: bool = False
