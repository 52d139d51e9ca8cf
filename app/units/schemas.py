"""Shape units as the API shows them."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class Unit(BaseModel):
    """One shape unit in the cache."""

    id: str
    tile: list[int] = Field(description="Positions of the result that a call makes at most, by axis")
    bytes: int


class UnitLibrary(BaseModel):
    """The units of one routine at one size for one profile; a compilation uses all of them or none."""

    id: str = Field(pattern="^[0-9a-f]{64}$")
    op: str = Field(description="Kinds of the ops that run together", examples=["Conv+Relu"])
    signature: str = Field(description="SHA-256 of the routine without names and varying extents")
    size: str = Field(description="Maxima of the size class by dimension, or a model's own ranges")
    dtype: str
    profile: str = Field(description="Digest of the profile")
    hits: int = Field(description="Your compilations that found the library here")
    bytes: int = Field(description="Of all its units and of what they share")
    created_at: datetime
    used_at: datetime = Field(description="When you used it last, or brought it")
    units: list[Unit] = Field(description="Those that are in the cache now")


class UnitPage(BaseModel):
    """A part of the list of libraries, those used latest first."""

    items: list[UnitLibrary]
    next_cursor: str | None = None


class OpUnits(BaseModel):
    """What is cached for routines of the same ops."""

    op: str
    libraries: int
    units: int
    bytes: int
    hits: int = Field(description="Times that your compilations found one of these libraries")


class UnitStatistics(BaseModel):
    """What your compilations used of the cache: the libraries used latest, by their ops."""

    libraries: int
    units: int
    bytes: int
    hits: int
    ops: list[OpUnits]
