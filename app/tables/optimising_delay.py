"""Delays optimised tables while requests come in: both need the same processors (SHAPE-7)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

# A pause begins after this long without a request; optimised tables wait for one, up to the second limit.
QUIET_S: Final = 0.1
HELD_S: Final = 1.0


@dataclass(slots=True)
class Pace:
    """Holds tables back while requests come one after another, for a second at most.

    One thread calls `due`; any thread may call `asked`.
    """

    clock: Callable[[], float] = time.monotonic
    _asked_at: float = field(default=float("-inf"))
    _held_since: float | None = None

    def asked(self) -> None:
        """Records a request for the tables of a shape."""
        self._asked_at = self.clock()

    def due(self) -> bool:
        """Whether to hand out waiting tables; after the longest delay they are handed out until the next pause."""
        now = self.clock()
        if now - self._asked_at >= QUIET_S:
            self._held_since = None
            return True
        if self._held_since is None:
            self._held_since = now
        return now - self._held_since >= HELD_S
