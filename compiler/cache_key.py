"""The cache key: every input that changes the output of a compilation or simulation, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import msgspec

from compiler.options import Options
from compiler.profile import Profile, profile_digest
from compiler.shapes.model import ShapeModel
from compiler.version import COMPILER_VERSION

# Bounds on a job: exceeding them fails it, they never change a result (SPEC section 13).
_NOT_PART = ("time_limit_s", "memory_limit_bytes")


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


def routine_key(model: ShapeModel, number: int) -> str:
    """SHA-256 over what the tables of a routine depend on beside the shape, so that models share tables.

    That is the signature, the units with what they accept, the modelled costs, profile and compiler version.
    """
    library = model.libraries[number]
    units, cost = library.units, library.cost
    numbers = [
        units.extents,
        units.lows,
        *cost.compute,
        *(factor for operand in cost.operands for factor in operand.factors if factor is not None),
    ]
    parts: dict[str, object] = {
        "compiler": COMPILER_VERSION,
        "cycles": [
            [cost.call_cycles, cost.variable_cycles, cost.compute_cycles],
            *([one.start_cycles, one.move_cycles, *one.axes] for one in cost.operands),
        ],
        "dtype": units.dtype,
        "kind": "table",
        "numbers": [[len(array), hashlib.sha256(array.tobytes()).hexdigest()] for array in numbers],
        "profile": model.profile_digest,
        "signature": units.signature,
        "tiled": library.routine.tiled,
        "units": units.ids,
    }
    return _digest(parts)


def table_key(routine: str, shape: Sequence[int]) -> str:
    """SHA-256 over a routine, as `routine_key` names it, and the shape of its result."""
    return hashlib.sha256(f"{routine}:{'x'.join(map(str, shape))}".encode()).hexdigest()


def bucket_key(routine: str, shape: Sequence[int], unit: int, order: int) -> str:
    """SHA-256 over a routine, as `routine_key` names it, the largest shape of a bucket, and the grid that serves it."""
    return hashlib.sha256(f"{routine}:{'x'.join(map(str, shape))}:{unit}:{order}".encode()).hexdigest()


def _digest(parts: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
