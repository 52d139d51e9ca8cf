"""Says who sends a request: the holder of its key, or the local user (docs/service.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from starlette.datastructures import Headers
from starlette.types import Scope

from app.errors import KeyRequiredError
from app.keys.keys import Keys, SentKey
from app.keys.owners import Owner
from app.keys.use import RequestRates
from app.settings import Settings
from app.shared_exchanges import SharedExchanges

# A request with one of these was passed on, so it may come from anywhere.
_OF_PROXIES: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
_SENDER: Final = "tessera.sender"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Knows the keys and counts their use."""

    keys: Keys
    broker: SharedExchanges
    rates: RequestRates
    settings: Settings

    async def sender(self, scope: Scope) -> Owner:
        """Who sends a request, asked and counted once; raises KeyRequiredError, QuotaError if he has sent too many."""
        known = scope.get(_SENDER)
        if isinstance(known, Owner):
            return known
        headers = Headers(scope=scope)
        given = headers.getlist("authorization")
        owner = await self.holder(given) if given else self.local(headers)
        if owner.key:
            structlog.contextvars.bind_contextvars(key=owner.key)
        scope[_SENDER] = owner
        return owner

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

    async def holder(self, authorization: Sequence[str]) -> Owner:
        """The sender of a request with a key; raises KeyRequiredError, or QuotaError if it has sent too many."""
        scheme, _, text = authorization[0].partition(" ")
        is_one = len(authorization) == 1 and scheme.lower() == "bearer"
        sent = SentKey.of(text.strip() if is_one else "")
        owner = self.keys.holder(sent, await self.broker.ask("HGETALL", sent.record))
        await self.rates.take(owner)
        return owner
