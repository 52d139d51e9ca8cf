"""The key that a service asks for, from where its holder keeps it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from compiler.errors import RequestError, printable


def service_key(key: str | None) -> str:
    """The key, "" for none: as given, else of TESSERA_KEY, else in the file that TESSERA_KEY_FILE names.

    Raises RequestError, which does not show the key, for a file that cannot be read and for what cannot be a key.
    """
    found = key if key is not None else os.environ.get("TESSERA_KEY") or _of_file(os.environ.get("TESSERA_KEY_FILE"))
    text = found.strip()
    if not re.fullmatch(r"[!-~]*", text):
        raise RequestError(
            "what should be the key of the service is none",
            code="invalid_key",
            actual=f"{len(text)} characters, with spaces or lines between them or others than ASCII",
            limit="tessera_ID_SECRET as `tessera keys create` prints it",
            hint="Set TESSERA_KEY to the key alone, or TESSERA_KEY_FILE to a file with nothing else in it",
        )
    return text


def key_headers(key: str) -> Mapping[str, str]:
    """The headers that carry a key."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def _of_file(name: str | None) -> str:
    if not name:
        return ""
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            f"the file {printable(name, 200)} of TESSERA_KEY_FILE cannot be read",
            code="no_key_file",
            actual=error.strerror if isinstance(error, OSError) else "no text",
            hint="Write the key that `tessera keys create` prints into it",
        ) from None
