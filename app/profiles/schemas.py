"""Profiles as the API shows them."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel


class ProfileSummary(BaseModel):
    """A profile without its fields."""

    name: str
    digest: str
    builtin: bool
    created_at: datetime | None = None


class ProfilePage(BaseModel):
    """A part of the list of profiles: the built-in ones first, then those of users, newest first."""

    items: list[ProfileSummary]
    next_cursor: str | None = None
