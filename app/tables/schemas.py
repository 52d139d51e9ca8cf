"""Statistics of tables as the API shows them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class AnswerCount(BaseModel):
    """The number of tables answered in this way."""

    cache: Literal["hit", "bucket-hit", "miss"]
    kind: Literal["simple", "optimised"]
    tables: int


class ShapeCount(BaseModel):
    """A shape by its dynamic dimensions, and its number of requests."""

    dims: dict[str, int]
    requests: int = Field(description="Exact while no more than 4096 shapes were asked for, else an upper bound")


class TableStatistics(BaseModel):
    """Requests for a package's tables since it was made, as far as they are remembered."""

    package: str
    requests: int
    answered: list[AnswerCount]
    simple_made: int = Field(description="Simple tables that were computed")
    optimised_made: int = Field(description="Optimised tables that were computed")
    shapes: list[ShapeCount] = Field(description="Those asked for most")
