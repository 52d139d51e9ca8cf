"""Says who sends a request: the holder of its key, or the local user (docs/service.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers

from app.errors import KeyRequiredError
from app.keys.keys import Keys
from app.keys.owners import Owner
from app.keys.use import RequestRates
from app.settings import Settings

# A request with one of these was passed on, so it may come from anywhere.
_OF_PROXIES: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Knows the keys and counts their use."""

    keys: Keys
    rates: RequestRates
    settings: Settings

    def local(self, headers: Headers) -> Owner:
        """The sender of a request without a key; raises KeyRequiredError where it needs one."""
        proxy = next((name for name in _OF_PROXIES if name in headers), None)
        if proxy is None and not self.settings.keys_required:
            return Owner()
        raise KeyRequiredError(
            "the service answers to holders of a key alone"
            if proxy is None
            else "a request that a proxy passed on needs a key",
            stage="request",
            actual=proxy,
            hint="Send `Authorization: Bearer KEY`, or set TESSERA_KEY for tessera; an operator makes keys with "
            "`tessera keys create NAME`",
        )

    def holder(self, authorization: Sequence[str]) -> Owner:
        """The sender of a request with a key; raises KeyRequiredError, or QuotaError if it has sent too many."""
        scheme, _, text = authorization[0].partition(" ")
        is_one = len(authorization) == 1 and scheme.lower() == "bearer"
        owner = self.keys.holder(text.strip() if is_one else "")
        self.rates.take(owner)
        return owner
