"""The form of a service's URL."""

from __future__ import annotations

import re

from compiler.errors import RequestError, printable


def service_url(url: str) -> str:
    """The URL; raises RequestError if it cannot be that of a service."""
    if not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", url):
        raise RequestError(
            f"{printable(url, 120)} is not the URL of a service",
            code="invalid_url",
            actual=printable(url, 120),
            limit="http://HOST:PORT or https://HOST:PORT",
            hint="Write it as `tessera serve` shows it, such as http://127.0.0.1:8080",
        )
    return url
