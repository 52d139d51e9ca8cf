"""Whether what the broker has answered is on its disk, which an outside Redis is asked (API-2, API-5)."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

import redis

# Settings of a server may be changed while it runs.
_ASKED_EVERY_S: Final = 30.0
_SETTINGS: Final = ("appendonly", "appendfsync", "maxmemory-policy")
_SAFE_POLICY: Final = "noeviction"


@dataclass(frozen=True, slots=True)
class Durability:
    """What a broker does with what it has answered."""

    waits: bool
    """Whether each promise has to wait for the disk (WAITAOF), as the server answers before it syncs."""
    concerns: tuple[str, ...]
    """Why records may be lost, in words for operators; empty if they may not."""


class BrokerDurability:
    """Asks a broker for its durability, and remembers the answer for a while. Raises redis.RedisError."""

    def __init__(self, client: redis.Redis, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = client
        self._clock = clock
        self._known: Durability | None = None
        self._known_at = 0.0

    def present(self) -> Durability:
        """The durability as it was a moment ago."""
        known = self._known
        return self.ask() if known is None or self._clock() - self._known_at > _ASKED_EVERY_S else known

    def ask(self) -> Durability:
        """The durability now."""
        found = _settings(self._redis)
        waits, concerns = False, []
        if found.get("appendonly") == "no":
            concerns.append("appendonly is no")
        elif found.get("appendfsync") != "always":
            waits = _can_wait(self._redis)
            if not waits and "appendfsync" in found:
                concerns.append(f"appendfsync is {found['appendfsync']}")
            elif not waits:
                concerns.append("durability unknown")
        policy = found.get("maxmemory-policy", _SAFE_POLICY)
        if policy != _SAFE_POLICY:
            concerns.append(f"maxmemory-policy is {policy}")
        self._known, self._known_at = Durability(waits, tuple(concerns)), self._clock()
        return self._known


def _settings(client: redis.Redis) -> dict[str, str]:
    """The settings of a server as far as it tells them: managed ones often refuse CONFIG, and say some in INFO."""
    info: Any = client.info()
    found = {}
    if "aof_enabled" in info:
        found["appendonly"] = "yes" if int(info["aof_enabled"]) else "no"
    if "maxmemory_policy" in info:
        found["maxmemory-policy"] = str(info["maxmemory_policy"])
    for name in _SETTINGS:
        with suppress(redis.ResponseError):
            found.update(cast(dict[str, str], client.config_get(name)))
    return found


def _can_wait(client: redis.Redis) -> bool:
    """Whether the server has WAITAOF (Redis 7.2) and an append-only file to wait for."""
    try:
        client.execute_command("WAITAOF", 1, 0, 1)  # type: ignore[no-untyped-call]
    except redis.ResponseError:
        return False
    return True
