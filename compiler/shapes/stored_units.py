"""The port through which a compilation finds stored libraries and units, and leaves those that it made (SHAPE-1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class StoredUnits(Protocol):
    """Values by key. Whatever it loses is made again: it saves time and never changes a result."""

    def get_many(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """The values of those keys that have one."""

    def put_many(self, library: str, values: Mapping[str, bytes], labels: Mapping[str, str]) -> None:
        """Store the values of one library, under whose key `library` it and its units are listed with these labels."""

    def drop_damaged(self, keys: Sequence[str]) -> None:
        """Forget values that are not as they were written, and count them."""

    def used(self, libraries: Mapping[str, int]) -> None:
        """Note libraries that were found, each with how many units of it."""

    def building(self, library: str) -> AbstractContextManager[bool]:
        """Wait for the right to build a library. False if that took too long: whoever builds then stores nothing."""


class NoStoredUnits:
    """Nothing is stored: every compilation makes its own units."""

    def get_many(self, keys: Sequence[str]) -> Mapping[str, bytes]:  # noqa: ARG002
        """Nothing."""
        return {}

    def put_many(self, library: str, values: Mapping[str, bytes], labels: Mapping[str, str]) -> None:
        """Nothing is kept."""

    def drop_damaged(self, keys: Sequence[str]) -> None:
        """There is nothing to forget."""

    def used(self, libraries: Mapping[str, int]) -> None:
        """Nothing is noted."""

    @contextmanager
    def building(self, library: str) -> Iterator[bool]:  # noqa: ARG002
        """At once: nobody else builds, and nothing is to be stored."""
        yield False
