"""Prepares the types that the API decodes, before there are threads (decision 0015)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


def prepare_decoded_types() -> None:
    """Lets msgspec look at all types that are loaded.

    It does so when a type is first decoded, and a second thread that decodes the type meanwhile ends the process: it
    reads what is not there yet.
    """
    for kind in _subclasses(msgspec.Struct):
        msgspec.json.Decoder(kind)


def _subclasses(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)
