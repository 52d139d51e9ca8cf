"""Requests for compilations."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class CompilationRequest(BaseModel):
    """A model and a profile by reference, and the options."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(description="Id of an uploaded model", max_length=200)
    profile: str = Field(description="Name or digest of a profile", max_length=200, examples=["cluster4x4"])
    options: dict[str, Any] = Field(default_factory=dict, examples=[{"objective": "dram_bytes"}])
