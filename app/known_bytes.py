"""Bytes that a process has made or verified already, to answer with them again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from app.store import BlobStore

# What takes a larger part than this is not worth the others that it would displace.
_LARGEST_PART: Final = 8


class KnownBytes:
    """Bytes by key, at most `limit_bytes` together; what was asked for least recently goes first.

    Everything under a key must be the same bytes for ever. For one thread: the event loop's.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._known: OrderedDict[Hashable, bytes] = OrderedDict()

    def get(self, key: Hashable) -> bytes | None:
        """The bytes under a key, if they are still known."""
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    def put(self, key: Hashable, data: bytes) -> None:
        """Remembers bytes, if they are not too many."""
        if key in self._known or len(data) > self._limit_bytes // _LARGEST_PART:
            return
        self._known[key] = data
        self._size_bytes += len(data)
        while self._size_bytes > self._limit_bytes:
            self._size_bytes -= len(self._known.popitem(last=False)[1])


class KnownBlobs:
    """Small blobs of a store, read and verified once per state of their file (decision 0015)."""

    def __init__(self, store: BlobStore, limit_bytes: int) -> None:
        self._store = store
        self._known = KnownBytes(limit_bytes)

    def get(self, digest: str) -> bytes | None:
        """The bytes, if they are known and their file is as it was when they were read; costs one look at the file."""
        state = self._store.state(digest)
        return None if state is None else self._known.get((digest, state))

    def put(self, digest: str, state: Hashable, data: bytes) -> None:
        """Remembers verified bytes of a blob that was in this state before it was read."""
        self._known.put((digest, state), data)
