"""Profiles as jobs name them, by digest. No FastAPI: the worker uses this too."""

from __future__ import annotations

from app.store import BlobStore
from compiler.profile import Profile, builtin_names, builtin_profile, parse_profile, profile_digest, profile_json


def keep_profile(store: BlobStore, profile: Profile) -> str:
    """Stores the canonical form where the worker reads it; returns its digest."""
    digest = profile_digest(profile)
    if not store.exists(digest):
        store.put(profile_json(profile))
    return digest


def stored_profile(store: BlobStore, digest: str) -> Profile:
    """A profile from the store; one of ours that was lost is written again. Raises FileNotFoundError for others."""
    try:
        return parse_profile(store.read(digest))
    except FileNotFoundError:
        for profile in map(builtin_profile, builtin_names()):
            if profile_digest(profile) == digest:
                keep_profile(store, profile)
                return profile
        raise
