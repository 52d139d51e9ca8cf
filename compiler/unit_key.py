"""The keys of stored shape units; needs only the standard library, so that a small loader can carry it (SHAPE-1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from compiler.version import COMPILER_VERSION

# The version of the bytes that libraries of shape units and units are stored as.
UNIT_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFor:
    """What a stored library is for: a routine, its size, the profile's digest, stationary weights in every core."""

    signature: str
    size: str
    profile: str
    resident_bytes: int


def library_key(about: LibraryFor) -> str:
    """The key of a library of shape units: kind, format version, and SHA-256 over what it is for and the compiler
    version."""
    return library_key_of(digest_of(_parts(about, "library")))


def library_key_of(library_id: str) -> str:
    """The key of the library of an id, which URLs and names of files have."""
    return f"library:{UNIT_FORMAT}:{library_id}"


def library_id_of(key: str) -> str:
    """The id of the library of a key: its last part."""
    return key.rpartition(":")[2]


def unit_key(about: LibraryFor, tile: Sequence[int]) -> str:
    """The key of one shape unit: as `library_key`, with its tile (SHAPE-1)."""
    return f"unit:{UNIT_FORMAT}:{digest_of(_parts(about, 'unit') | {'tile': list(tile)})}"


def digest_of(parts: Mapping[str, object]) -> str:
    """SHA-256 over the canonical JSON of the parts of a key."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _parts(about: LibraryFor, kind: str) -> dict[str, object]:
    return {
        "compiler": COMPILER_VERSION,
        "format": UNIT_FORMAT,
        "kind": kind,
        "profile": about.profile,
        "resident_bytes": about.resident_bytes,
        "signature": about.signature,
        "size": about.size,
    }
