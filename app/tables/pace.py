"""When workers may turn to optimised tables: they take the processors that answers need (SHAPE-7)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

# Without a request for so long there is a pause; what is wanted waits for one, though not longer than this.
QUIET_S: Final = 0.1
HELD_S: Final = 1.0


@dataclass(slots=True)
class Pace:
    """Holds tables back while requests come one after another, for a second at most.

    One thread asks `due`, any may say `asked`.
    """

    clock: Callable[[], float] = time.monotonic
    _asked_at: float = field(default=float("-inf"))
    _held_since: float | None = None

    def asked(self) -> None:
        """Somebody asks for the tables of a shape."""
        self._asked_at = self.clock()

    def due(self) -> bool:
        """Whether to hand out what is wanted; once tables were held back for long enough, until the next pause."""
        now = self.clock()
        if now - self._asked_at >= QUIET_S:
            self._held_since = None
            return True
        if self._held_since is None:
            self._held_since = now
        return now - self._held_since >= HELD_S
