"""The options of jobs: short ones stand in the record, long ones in the store, and the record has their digest."""

from __future__ import annotations

from app.store import BlobStore

_IN_RECORD_BYTES = 2048
_STORED = "sha256:"


def kept_options(store: BlobStore, text: str) -> str:
    """What a record says of options in JSON, which are stored first if they are long."""
    data = text.encode()
    if len(data) <= _IN_RECORD_BYTES:
        return text
    return _STORED + store.keep(data)


def options_text(store: BlobStore, kept: str) -> str:
    """The options in JSON of a record; raises FileNotFoundError if they are gone from the store."""
    return store.read(kept.removeprefix(_STORED)).decode() if kept.startswith(_STORED) else kept
