"""The cache key: every input that changes the output of a compilation or simulation, and nothing else."""

from __future__ import annotations

import hashlib
import json

import msgspec

from compiler.options import Options
from compiler.profile import Profile, profile_digest
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


def simulation_key(executable_sha256: str, *, inputs_sha256: str | None, seed: int, judge: tuple[str, ...] = ()) -> str:
    """SHA-256 over executable, its inputs (a file's digest, or the seed), what judges the outputs, compiler version."""
    parts: dict[str, object] = {
        "compiler": COMPILER_VERSION,
        "executable": executable_sha256,
        "inputs": seed if inputs_sha256 is None else inputs_sha256,
        "judge": judge,
        "kind": "simulation",
    }
    return _digest(parts)


def _digest(parts: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
