"""Requests for sweeps."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from app.sweeps.grid import MAX_POINTS

Name = Annotated[str, Field(max_length=200)]


class SweepRequest(BaseModel):
    """An uploaded model for every profile of the list with every combination of the values of the grid."""

    model_config = ConfigDict(extra="forbid")

    model: Name = Field(description="Id of an uploaded model")
    profiles: list[Name] = Field(
        description="Names or digests of profiles", min_length=1, max_length=MAX_POINTS, examples=[["edge4"]]
    )
    grid: dict[str, list[bool | int | float | str]] = Field(
        default_factory=dict,
        description="Values by field of the profile: a path, or a short name such as nram",
        examples=[{"nram": ["128KiB", "256KiB"], "dram_bandwidth": ["6.4GB/s", "12.8GB/s"]}],
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Of each point; values are not checked unless verify says so"
    )
