"""Stored units in memory, which count what they are asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


class UnitsInMemory:
    """Values by key; `counts` has how many requests there were, and values found, stored and dropped."""

    def __init__(self, values: Mapping[str, bytes] | None = None) -> None:
        self.values = dict(values or {})
        self.counts: Counter[str] = Counter()

    def get_many(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """The values that are there."""
        found = {key: self.values[key] for key in keys if key in self.values}
        self.counts["requests"] += 1
        self.counts["found"] += len(found)
        return found

    def put_many(self, library: str, values: Mapping[str, bytes], labels: Mapping[str, str]) -> None:
        """Store values."""
        assert library in values
        assert labels["op"]
        self.values |= values
        self.counts["libraries stored"] += 1
        self.counts["units stored"] += len(values) - 1

    def drop_damaged(self, keys: Sequence[str]) -> None:
        """Forget values."""
        for key in keys:
            self.counts["dropped"] += self.values.pop(key, None) is not None

    def used(self, libraries: Mapping[str, int]) -> None:
        """Note libraries."""
        self.counts["libraries used"] += len(libraries)
        self.counts["units used"] += sum(libraries.values())

    @contextmanager
    def building(self, library: str) -> Iterator[bool]:
        """At once."""
        assert library not in self.values or self.counts["dropped"]
        yield True
