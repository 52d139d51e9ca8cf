"""Finds leases whose work is silent, by a clock that nobody sets (API-5)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# A watcher that was itself held up (suspended machine, Redis that hung) counts at most this share of a lease for the
# gap, so that workers held up with it have time for their next sign of life.
_SHARE_OF_A_GAP = 0.25


@dataclass(slots=True)
class LeaseWatch:
    """Remembers the last sign of life of each lease, and for how long this process has seen no other one.

    Leases end by this and not by the time of day, which may be set back or forward at any moment.
    """

    lease_s: float
    clock: Callable[[], float] = time.monotonic
    _looked_at: float | None = None
    _beats: dict[str, float] = field(default_factory=dict)
    _silent_s: dict[str, float] = field(default_factory=dict)

    def look(self, beats: Mapping[str, float]) -> None:
        """Takes note of all leases there are, by the number of their last sign of life."""
        now = self.clock()
        passed_s = 0.0 if self._looked_at is None else min(now - self._looked_at, self.lease_s * _SHARE_OF_A_GAP)
        self._looked_at = now
        self._silent_s = {
            content: self._silent_s[content] + passed_s if self._beats.get(content) == beat else 0.0
            for content, beat in beats.items()
        }
        self._beats = dict(beats)

    def silent(self) -> list[tuple[str, float, float]]:
        """The leases that were silent for their whole time: their last signs of life, and seconds since then."""
        return [
            (content, self._beats[content], silent_s)
            for content, silent_s in self._silent_s.items()
            if silent_s >= self.lease_s
        ]
