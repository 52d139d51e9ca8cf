"""The cache key: every input that changes the output of a compilation or simulation, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from compiler.address.build import WindowRead
from compiler.address.encode import FORM
from compiler.options import Options
from compiler.profile import Profile, profile_digest
from compiler.version import COMPILER_VERSION

# Bounds on a job: exceeding them fails it, they never change a result (SPEC section 13).
_NOT_PART = ("time_limit_s", "memory_limit_bytes")


# The version of the bytes that libraries of shape units and units are stored as.
UNIT_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFor:
    """What a stored library is for: a routine, its size, the profile's digest, stationary weights in every core."""

    signature: str
    size: str
    profile: str
    resident_bytes: int


class TableModel(Protocol):
    """A model for ranges of shapes, of whose routines tables are made."""

    def table_identity(self, number: int) -> Mapping[str, object]:
        """What the tables of a routine depend on beside the shape and the compiler version, as plain values."""


def cache_key(model_sha256: str, profile: Profile, options: Options, *, name: str = "") -> str:
    """SHA-256 over model content, its displayed name, profile, options that decide the plan, compiler version."""
    chosen = {key: value for key, value in msgspec.to_builtins(options).items() if key not in _NOT_PART}
    parts: dict[str, object] = {
        "compiler": COMPILER_VERSION,
        "model": model_sha256,
        "name": name,
        "options": chosen,
        "profile": profile_digest(profile),
    }
    return _digest(parts)


def simulation_key(
    executable_sha256: str, *, name: str = "", inputs_sha256: str | None, seed: int, judge: tuple[str, ...] = ()
) -> str:
    """SHA-256 over executable, its displayed name, its inputs (a file's digest, or the seed), what judges the outputs,
    compiler version."""
    parts: dict[str, object] = {
        "compiler": COMPILER_VERSION,
        "executable": executable_sha256,
        "inputs": seed if inputs_sha256 is None else inputs_sha256,
        "judge": judge,
        "kind": "simulation",
        "name": name,
    }
    return _digest(parts)


def library_key(about: LibraryFor) -> str:
    """The key of a library of shape units: kind, format version, and SHA-256 over what it is for and the compiler
    version."""
    return f"library:{UNIT_FORMAT}:{_digest(_library_parts(about, 'library'))}"


def unit_key(about: LibraryFor, tile: Sequence[int]) -> str:
    """The key of one shape unit: as `library_key`, with its tile (SHAPE-1)."""
    return f"unit:{UNIT_FORMAT}:{_digest(_library_parts(about, 'unit') | {'tile': list(tile)})}"


def _library_parts(about: LibraryFor, kind: str) -> dict[str, object]:
    return {
        "compiler": COMPILER_VERSION,
        "format": UNIT_FORMAT,
        "kind": kind,
        "profile": about.profile,
        "resident_bytes": about.resident_bytes,
        "signature": about.signature,
        "size": about.size,
    }


def routine_key(model: TableModel, number: int) -> str:
    """SHA-256 over what the tables of a routine depend on beside the shape, so that models share tables.

    That is the signature, the units with what they accept, the modelled costs, profile and compiler version.
    """
    return _digest({**model.table_identity(number), "compiler": COMPILER_VERSION, "kind": "table"})


def table_key(routine: str, shape: Sequence[int], units: Sequence[int] | None = None) -> str:
    """SHA-256 over a routine, as `routine_key` names it, the shape of its result, and the units where not all serve."""
    of_units = "" if units is None else f":{','.join(map(str, units))}"
    return hashlib.sha256(f"{routine}:{'x'.join(map(str, shape))}{of_units}".encode()).hexdigest()


def address_table_key(read: WindowRead) -> str:
    """SHA-256 over all that decides the address table of a read, and the form of its bytes (ADDR-5)."""
    return _digest({**read.inputs, "form": FORM, "kind": "addresses"})


def bucket_key(routine: str, shape: Sequence[int], unit: int, order: int) -> str:
    """SHA-256 over a routine, as `routine_key` names it, the largest shape of a bucket, and the grid that serves it."""
    return hashlib.sha256(f"{routine}:{'x'.join(map(str, shape))}:{unit}:{order}".encode()).hexdigest()


def _digest(parts: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
