"""Descriptions of constants: weights stay in the model file until their values are needed."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from compiler.lazy import lazy

# Functions that keep one element per stored element: by arithmetic, and by moving elements only.
_DEQUANTISES: Final = ("DequantizeLinear",)
_MOVES: Final = ("Reshape", "Transpose", "Slice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Splat:
    """One value for all elements; `value` is the bytes of one element. It is never expanded (IMPORT-2)."""

    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Bytes [offset, offset + size_bytes) of the model file, or of `file` beside it, little-endian, row-major."""

    offset: int
    size_bytes: int
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """Values in memory, row-major: small constants and results of folding."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """Values computed from other constants on demand.

    `function` is an op kind or a function of compiler.frontend.constant_values; `inputs` are its operands.
    """

    function: str
    inputs: tuple[Constant, ...]
    attributes: tuple[tuple[str, int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """A tensor of a type that only the host supports (text, 4-bit and 8-bit floats...): its protobuf message."""

    tensor: bytes


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A constant tensor: its shape, its element type and the source of its values."""

    shape: tuple[int, ...]
    dtype: str
    data: Splat | Stored | Literal | Derived | Opaque

    @property
    def stored_dtype(self) -> str:
        """The element type in memory: a dequantised weight keeps its quantised type."""
        if isinstance(self.data, Derived) and self.data.function in (*_DEQUANTISES, *_MOVES):
            return self.data.inputs[0].stored_dtype
        return self.dtype

    @lazy
    def digest(self) -> bytes:
        """Names what the constant says: within a model, constants of one digest have the same elements, bit by bit.

        Worked out once per object, those of what it consists of first: descriptions may have hundreds of levels, and
        share inputs.
        """
        pending = [*self.inputs]
        while pending:
            missing = [part for part in pending[-1].inputs if "digest" not in vars(part)]
            pending += missing
            if not missing:
                vars(pending[-1]).setdefault("digest", pending[-1]._new_digest())
                pending.pop()
        return self._new_digest()

    @property
    def inputs(self) -> tuple[Constant, ...]:
        """What it is derived from."""
        return self.data.inputs if isinstance(self.data, Derived) else ()

    def _new_digest(self) -> bytes:
        data, content = self.data, b""
        said: tuple[object, ...]
        match data:
            case Splat():
                said, content = (), data.value
            case Stored():
                said = (data.offset, data.size_bytes, data.file)
            case Literal():
                said, content = (), data.data
            case Derived():
                said = (data.function, len(data.inputs), data.attributes)
                content = b"".join(part.digest for part in data.inputs)
            case Opaque():
                said, content = (), data.tensor
        # texts of numbers tell apart 0.0 and -0.0, which are equal
        found = sha256(repr((self.shape, self.dtype, type(data).__name__, said)).encode())
        found.update(content)
        return found.digest()
