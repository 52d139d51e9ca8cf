"""Owners: each sees what is theirs alone. Limits: how much of the service one key may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

# Who asks without a key: the operator of the machine. It owns what was made before there were owners.
LOCAL: Final = ""
# How people write it; no other owner may be called so.
LOCAL_WORD: Final = "local"
_UNLIMITED: Final = 2**53


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one key may use; jobs, points, models and profiles are counted for its owner, requests for the key."""

    stored_bytes: int = _UNLIMITED
    """Bytes of uploaded models, and of files that came with simulations whose jobs are kept."""
    stored_items: int = _UNLIMITED
    """Uploaded models and profiles."""
    waiting_jobs: int = _UNLIMITED
    """Jobs that wait or run; each point of a sweep counts."""
    sweep_points: int = _UNLIMITED
    """Points of one sweep."""
    uploads: int = _UNLIMITED
    """Uploads at once, of each API process."""
    requests_per_minute: int = _UNLIMITED


LIMITS: Final = Limits.__struct_fields__
NO_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who asks; `key` is the id of the key, "" without one."""

    name: str = LOCAL
    key: str = ""
    limits: Limits = NO_LIMITS
