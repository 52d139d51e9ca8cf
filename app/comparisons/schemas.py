"""Requests for comparisons."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

JobId = Annotated[str, Field(max_length=200, description="A compilation that succeeded")]


class ComparisonRequest(BaseModel):
    """Two compilations by the ids of their jobs."""

    model_config = ConfigDict(extra="forbid")

    a: JobId
    b: JobId
