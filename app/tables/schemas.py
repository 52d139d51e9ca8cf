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


class CachedTable(BaseModel):
    """A parameter table in the cache; routines and models that have it in common share it."""

    op: str = Field(description="Kinds of the ops that run together", examples=["Conv+Relu"])
    signature: str
    shape: list[int] = Field(description="The shape of the routine's result, then the extents that its calls sum over")
    kind: Literal["simple", "optimised"]
    tiles: list[list[int]] = Field(description="Of the units that it calls")
    bytes: int
    age_s: float = Field(description="Seconds since it was stored")


class CachedShape(BaseModel):
    """The cached tables of a model for one shape."""

    model: str
    name: str
    profile: str = Field(description="Digest of the profile")
    dims: dict[str, int]
    requests: int = Field(description="Your requests for this shape")
    tables: list[CachedTable]


class CachedTablePage(BaseModel):
    """A part of the list, by model, the newest first."""

    items: list[CachedShape]
    next_cursor: str | None = None
