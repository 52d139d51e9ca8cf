"""Bytes through one memory level, by direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelBytes:
    """Bytes read from and written to one memory level."""

    read: int = 0
    written: int = 0

    def __add__(self, other: LevelBytes) -> LevelBytes:
        return LevelBytes(read=self.read + other.read, written=self.written + other.written)


NO_BYTES: Final = LevelBytes()
