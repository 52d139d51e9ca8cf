"""The cache key: every input that changes the output of a compilation, and nothing else."""

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
    parts = {
        "compiler": COMPILER_VERSION,
        "model": model_sha256,
        "name": name,
        "options": chosen,
        "profile": profile_digest(profile),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
