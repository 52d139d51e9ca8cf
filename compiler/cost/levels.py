"""Bytes through one memory level, by direction."""

from __future__ import annotations

from typing import Final, NamedTuple


class LevelBytes(NamedTuple):
    """Bytes read from and written to one memory level."""

    read: int = 0
    written: int = 0

    def __add__(self, other: LevelBytes) -> LevelBytes:  # type: ignore[override]
        return LevelBytes(self.read + other.read, self.written + other.written)


NO_BYTES: Final = LevelBytes()
