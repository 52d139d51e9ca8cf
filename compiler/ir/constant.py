"""Constants as descriptions: weights stay where the model file keeps them until somebody needs their values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Splat:
    """One value everywhere; `value` is its element's bytes. Nothing is expanded (IMPORT-2)."""

    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Bytes [offset, offset + size_bytes) of the model file, little-endian, row-major."""

    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """Values held here, row-major: small constants and results of folding."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """Values to be computed from other constants when needed.

    `function` is one of the keys of compiler.frontend.values; `inputs` are the constants it reads.
    """

    function: str
    inputs: tuple[Constant, ...]
    attributes: tuple[tuple[str, tuple[int, ...] | float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant tensor: its shape, element type and where its values come from."""

    shape: tuple[int, ...]
    dtype: str
    data: Splat | Stored | Literal | Derived
