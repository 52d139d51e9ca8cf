"""Profiles as jobs name them, by digest. No FastAPI: the worker uses this too."""

from __future__ import annotations

from app.store import BlobStore
from compiler.profile import Profile, builtin_names, builtin_profile, parse_profile, profile_digest, profile_json


def stored_profile(store: BlobStore, digest: str) -> Profile:
    """A profile from the store; one of ours that was lost is written again. Raises FileNotFoundError for others."""
    try:
        return parse_profile(store.read(digest))
    except FileNotFoundError:
        for profile in map(builtin_profile, builtin_names()):
            if profile_digest(profile) == digest:
                store.keep(profile_json(profile))
                return profile
        raise
