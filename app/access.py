"""Who may use the service: the names it answers to and the web pages it answers (docs/service.md).

A browser lets any page send requests to an address of the user's machine. A page of another site is told by `Origin`
and `Sec-Fetch-Site`, which no script can change; a page that makes its own name lead to this machine (DNS rebinding)
by `Host`. Programs that are no browsers send neither of the first two.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import MisdirectedError, OtherSiteError
from app.http import MULTIPART, given_media_type
from app.problems import problem_response, status_of
from app.settings import Settings
from compiler.errors import TesseraError, printable

log = structlog.get_logger(__name__)

# Of every answer that does not bring its own: it is no page, and no other page may show or embed it.
SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
_LOOPBACK_NAMES: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
# Links of other sites may lead here: these pages show no data.
_LINKED_PAGES: Final = frozenset(("/", "/docs"))
_SHOWN_CHARACTERS: Final = 100
_HOSTS_REMEMBERED: Final = 256


class AccessMiddleware:
    """Refuses requests by name and by site; counts its refusals by code."""

    def __init__(self, app: ASGIApp, *, settings: Settings, refusals: Counter[str]) -> None:
        self._app = app
        self._refusals = refusals
        self._names = {*settings.allowed_names, _canonical(settings.host)}
        if settings.listens_on_loopback:
            self._names |= _LOOPBACK_NAMES
        self._is_ours = lru_cache(maxsize=_HOSTS_REMEMBERED)(self._may_be)  # most requests give the same one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._wrong_host(scope, headers) or _other_site(scope, headers)
        if refusal is None:
            await self._app(scope, receive, send)
            return
        self._refusals[refusal.code] += 1
        log.warning("request_refused", code=refusal.code, actual=refusal.actual)
        answer = problem_response(refusal.to_dict(), status_of(refusal), scope.get("tessera.request_id"))
        await answer(scope, receive, send)

    def _wrong_host(self, scope: Scope, headers: Headers) -> TesseraError | None:
        given = headers.getlist("host")
        address = scope.get("server")  # of ours, where this connection arrived
        if len(given) == 1 and self._is_ours(given[0], None if address is None else address[0]):
            return None
        return MisdirectedError(
            "the service is not known by the host name of the request",
            code="host_not_allowed",
            stage="request",
            actual=printable(", ".join(given), _SHOWN_CHARACTERS) or "no Host",
            limit=", ".join(sorted(self._names)),
            hint="Name further host names of the service in TESSERA_ALLOWED_HOSTS",
        )

    def _may_be(self, host: str, address: str | None) -> bool:
        """Whether a Host names this service, for a connection that arrived at this address of ours."""
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = _canonical(match[1] or match[2])
        return name in self._names or (address is not None and name == _canonical(address))


def _other_site(scope: Scope, headers: Headers) -> TesseraError | None:
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is None and site is None and "referer" not in headers:
        return None  # of no browser
    host = headers["host"].lower()
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        return _refused_site(origin, host)
    if site not in (None, "same-origin", "none"):
        link = (scope["method"], headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
        if link != ("GET", "navigate", "document") or scope["path"] not in _LINKED_PAGES:
            return _refused_site(site, host)
    # the one kind of upload that a page of another site can send without asking first
    if given_media_type(headers) == MULTIPART and origin is None:
        return _refused_site("no Origin", host)
    return None


def _refused_site(actual: str, host: str) -> TesseraError:
    return OtherSiteError(
        "a web page of another site must not use the service",
        code="other_site",
        stage="request",
        actual=printable(actual, _SHOWN_CHARACTERS),
        limit=f"http://{host}",
        hint=f"Open http://{host}/docs, or use a program that is no browser",
    )


def _canonical(host: str) -> str:
    """One way to write a host: an address as Python does, a name in lower case."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower()
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
