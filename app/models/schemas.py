"""Models as the API shows them."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class Model(BaseModel):
    """An uploaded model; its id is the SHA-256 of the file."""

    id: str = Field(pattern="^[0-9a-f]{64}$")
    name: str
    size_bytes: int
    created_at: datetime


class ModelPage(BaseModel):
    """A part of the list of models, newest first."""

    items: list[Model]
    next_cursor: str | None = None
