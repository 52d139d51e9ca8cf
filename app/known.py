"""What a process has made or verified already, kept in memory to answer with it again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from app.store import BlobStore

V = TypeVar("V")

# What takes a larger part than this is not worth the others that it would displace.
_LARGEST_PART: Final = 8


class Known(Generic[V]):
    """Values by key, at most `limit_bytes` together; what was asked for least recently goes first.

    A key must mean the same value for ever. For one thread: the event loop's.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._known: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        """The value of a key, if it is still known."""
        found = self._known.get(key)
        if found is None:
            return None
        self._known.move_to_end(key)
        return found[0]

    def put(self, key: Hashable, value: V, size_bytes: int) -> None:
        """Remembers a value, if it is not too large."""
        if key in self._known or size_bytes > self._limit_bytes // _LARGEST_PART:
            return
        self._known[key] = value, size_bytes
        self._size_bytes += size_bytes
        while self._size_bytes > self._limit_bytes:
            _, (_, gone_bytes) = self._known.popitem(last=False)
            self._size_bytes -= gone_bytes


class KnownBlobs:
    """Small blobs of a store, read and verified once per state of their file (decision 0015)."""

    def __init__(self, store: BlobStore, limit_bytes: int) -> None:
        self._store = store
        self._known = Known[bytes](limit_bytes)

    def get(self, digest: str) -> bytes | None:
        """The bytes, if they are known and their file is as it was when they were read; costs one look at the file."""
        state = self._store.state(digest)
        return None if state is None else self._known.get((digest, state))

    def put(self, digest: str, state: Hashable, data: bytes) -> None:
        """Remembers verified bytes of a blob that was in this state before it was read."""
        self._known.put((digest, state), data, len(data))
