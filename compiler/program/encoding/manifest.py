"""The manifest: what an executable is made of and for, as canonical JSON (PROG-3).

A record has the fields of the dataclass of compiler/program/executable.py that it stands for; bytes are pieces of a
section.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NoReturn, Protocol, TypeVar

import msgspec

SCHEMA: Final = 4

_Kind = TypeVar("_Kind", bound=msgspec.Struct)


class Refuse(Protocol):
    """Raises the error of whoever checks."""

    def __call__(self, message: str, *, actual: object, limit: object) -> NoReturn:
        """What is wrong, what was found and what was expected."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the manifest."""


class Piece(_Record, frozen=True, kw_only=True):
    """Bytes of a section that repeat until they are `size_bytes`."""

    offset: int
    stored_bytes: int
    size_bytes: int


class ValueRecord(_Record, frozen=True, kw_only=True):
    """An input or output of the model."""

    name: str
    tensor: str
    dtype: str
    shape: tuple[int, ...] | None


class ConstantRecord(_Record, frozen=True, kw_only=True):
    """A constant of the host; its bytes lie in section `constants`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    form: Literal["elements", "tensor"]
    data: Piece


class WeightRecord(_Record, frozen=True, kw_only=True):
    """A weight; its bytes lie in section `weights` of the segment."""

    region: int
    data: Piece


class ChipRecord(_Record, frozen=True, kw_only=True, tag="chip", tag_field="kind"):
    """A segment of the accelerator; its program lies in sections `program`, `tables` and `commands`."""

    id: str
    chip: int
    weights: tuple[WeightRecord, ...]


class NodeRecord(_Record, frozen=True, kw_only=True):
    """A node of the host; its protobuf bytes and functions lie in section `nodes` of the segment."""

    name: str
    op_type: str
    domain: str
    reason: str
    node: Piece
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opsets: tuple[tuple[str, int], ...]
    functions: tuple[Piece, ...]
    macs: int | None


class HostRecord(_Record, frozen=True, kw_only=True, tag="host", tag_field="kind"):
    """A segment of the host."""

    id: str
    nodes: tuple[NodeRecord, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Manifest(_Record, frozen=True, kw_only=True):
    """The whole manifest."""

    schema: int
    compiler_version: str
    profile_digest: str
    model_name: str
    model_digest: str
    options_digest: str
    inputs: tuple[ValueRecord, ...]
    outputs: tuple[ValueRecord, ...]
    segments: tuple[ChipRecord | HostRecord, ...]
    constants: tuple[ConstantRecord, ...]
    has_values: bool


def record_of(kind: type[_Kind], source: object, **instead: object) -> _Kind:
    """A record with the fields of an object, some given."""
    given = {name: getattr(source, name) for name in kind.__struct_fields__ if name not in instead}
    return kind(**given, **instead)


def values_of(record: msgspec.Struct) -> dict[str, Any]:
    """A record's fields by name."""
    return {name: getattr(record, name) for name in record.__struct_fields__}
