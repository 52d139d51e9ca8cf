"""Documents that a compilation or a run wrote, here or on a service, as typed values."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from compiler.errors import RequestError, printable

T = TypeVar("T")


def document(data: bytes, kind: type[T], where: str) -> T:
    """A document of this version of Tessera; raises RequestError naming its source."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        name = kind.__name__.lower()
        raise RequestError(
            f"{printable(where)} is not a {name} of this version of Tessera",
            code="version_mismatch",
            actual=printable(str(error), 200),
            hint="Compile again, or use the version of Tessera that wrote it",
        ) from None
