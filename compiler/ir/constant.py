"""Constants as descriptions: weights stay where the model file keeps them until somebody needs their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Functions of descriptions that compute element for element from what is stored, and those that only move elements.
_DEQUANTISES: Final = ("DequantizeLinear",)
_MOVES: Final = ("Reshape", "Transpose", "Slice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Splat:
    """One value everywhere; `value` is its element's bytes. Nothing is expanded (IMPORT-2)."""

    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Bytes [offset, offset + size_bytes) of the model file, or of `file` beside it, little-endian, row-major."""

    offset: int
    size_bytes: int
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """Values held here, row-major: small constants and results of folding."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """Values to be computed from other constants when needed.

    `function` is an op kind, or one of the functions of compiler.frontend.values; `inputs` are what it reads.
    """

    function: str
    inputs: tuple[Constant, ...]
    attributes: tuple[tuple[str, int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """A tensor that only the host understands (text, 4-bit and 8-bit floats...): its protobuf message."""

    tensor: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant tensor: its shape, element type and where its values come from."""

    shape: tuple[int, ...]
    dtype: str
    data: Splat | Stored | Literal | Derived | Opaque

    @property
    def stored_dtype(self) -> str:
        """The element type that its elements have in memory: a dequantised weight keeps its quantised one."""
        if isinstance(self.data, Derived) and self.data.function in (*_DEQUANTISES, *_MOVES):
            return self.data.inputs[0].stored_dtype
        return self.dtype
