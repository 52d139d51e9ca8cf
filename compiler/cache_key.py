"""The cache key: every input that changes the output of a compilation or simulation, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from compiler.address.build import WindowRead
from compiler.address.encode import FORM
from compiler.options import Options
from compiler.profile import Profile, profile_digest
from compiler.unit_key import digest_of
from compiler.version import COMPILER_VERSION

# Bounds on a job: exceeding them fails it, they never change a result (SPEC section 13).
_NOT_PART = ("time_limit_s", "memory_limit_bytes")


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
    return digest_of(parts)


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
    return digest_of(parts)


def routine_key(model: TableModel, number: int) -> str:
    """SHA-256 over what the tables of a routine depend on beside the shape, so that models share tables.

    That is the signature, the units with what they accept, the modelled costs, profile and compiler version.
    """
    return digest_of({**model.table_identity(number), "compiler": COMPILER_VERSION, "kind": "table"})


def table_key(routine: str, shape: Sequence[int], units: Sequence[int] | None = None) -> str:
    """SHA-256 over a routine, as `routine_key` names it, the shape of its result, and the units where not all serve."""
    of_units = "" if units is None else f":{','.join(map(str, units))}"
    return hashlib.sha256(f"{routine}:{'x'.join(map(str, shape))}{of_units}".encode()).hexdigest()


def address_table_key(read: WindowRead) -> str:
    """SHA-256 over all that decides the address table of a read, and the form of its bytes (ADDR-5)."""
    return digest_of({**read.inputs, "form": FORM, "kind": "addresses"})


def bucket_key(routine: str, shape: Sequence[int], unit: int, order: int) -> str:
    """SHA-256 over a routine, as `routine_key` names it, the largest shape of a bucket, and the grid that serves it."""
    return hashlib.sha256(f"{routine}:{'x'.join(map(str, shape))}:{unit}:{order}".encode()).hexdigest()
