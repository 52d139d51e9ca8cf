"""Requests for simulations."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from app.simulations.inputs import DEFAULT_SEED


class SimulationRequest(BaseModel):
    """The executable of a compilation that succeeded, to run on generated inputs."""

    model_config = ConfigDict(extra="forbid")

    job: str = Field(description="Id of a compilation that succeeded", max_length=200)
    seed: int = Field(default=DEFAULT_SEED, description="Of the inputs that are made up", ge=0, le=2**63 - 1)
    options: dict[str, Any] = Field(
        default_factory=dict, description="time_limit_s and memory_limit_bytes", examples=[{"time_limit_s": 60}]
    )
