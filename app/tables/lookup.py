"""Finds tables in the cache, and makes missing simple ones once each (SHAPE-7)."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from app.settings import Settings
from app.tables import simple_tables
from app.tables.answer_counts import AnswerCounts
from app.tables.buckets import BucketChoice, choice, served
from app.tables.buckets import made as made_bucket
from app.tables.cache import Entry, TableCache
from app.tables.check_cached import fitting
from app.tables.counts import REQUESTS, answered, made
from app.tables.open_packages import Asked, OpenPackage
from app.tables.optimising_delay import Pace
from app.tables.request_queue import Wanted, WantedTables
from app.tables.table_encoding import StoredTable

Hit = Literal["hit", "bucket-hit", "miss"]

# The polling interval for a table that another caller makes.
_POLL_S: Final = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A routine's table, and whether it was in the cache at the request, or came from a bucket."""

    asked: Asked
    cache: Hit
    table: StoredTable


class _Made(NamedTuple):
    """Tables that were missing; which of them were made here, and of these, whose optimised ones nobody had wanted."""

    tables: dict[str, StoredTable]
    here: list[str]
    unwanted: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLookup:
    """The cache, the makers of missing tables, and the counts."""

    cache: TableCache
    wanted: WantedTables
    counts: AnswerCounts
    buckets: BucketChoice
    pace: Pace
    settings: Settings

    def find(self, opened: OpenPackage, dims: Mapping[str, int], *, owner: str = "") -> tuple[Found, ...]:
        """The tables of a model at given dimensions, one per routine; requests optimised tables for those not final."""
        self.pace.asked()
        asked = opened.asked(dims)
        prepared = {one.key: opened.prepared[one.key] for one in asked if one.key in opened.prepared}
        by_key = {one.key: one for one in asked if one.key not in prepared}
        entries = fitting(opened, by_key, self.cache.read(list(by_key)))
        hits = prepared | _present(entries)
        missing = [one for key, one in by_key.items() if key not in hits]
        from_buckets, simple, fresh = self._from_buckets(opened, dims, missing) if missing else ({}, {}, set())
        misses = [one for one in missing if one.key not in from_buckets]
        new = self._made(opened, misses, simple) if misses else _Made({}, [], [])
        tables = hits | from_buckets | new.tables
        known = {key: one for key, one in entries.items() if key not in new.here}
        unasked = [key for key, one in known.items() if not (one.asked or tables[key].settled)]
        self._want(opened, [by_key[key] for key in (*new.unwanted, *(self.cache.ask(unasked) if unasked else ()))])
        caches: dict[str, Hit] = {
            **dict.fromkeys(hits, "hit"),
            **dict.fromkeys(from_buckets.keys() - fresh, "bucket-hit"),
        }
        found = tuple(Found(asked=one, cache=caches.get(one.key, "miss"), table=tables[one.key]) for one in asked)
        counted = Counter(answered(one.cache, one.table.kind) for one in found)
        counted |= {REQUESTS: 1} | ({made("simple"): len(new.here)} if new.here else {})
        self.counts.add(opened.digest, counted, tuple(dims[name] for name in sorted(dims)), owner=owner)
        return found

    def _from_buckets(
        self, opened: OpenPackage, dims: Mapping[str, int], missing: Sequence[Asked]
    ) -> tuple[dict[str, StoredTable], dict[str, StoredTable], set[str]]:
        """The tables from buckets by key, the simple ones made to judge them, and the keys of tables made now."""
        chosen = self.buckets.serving(opened.digest, [dims[name] for name in sorted(dims)])
        if chosen is None:
            return {}, {}, set()
        choices = {one.key: choice(opened, one, chosen.grids[one.routine]) for one in missing if one.units is None}
        by_key = {found.bucket.key: found for found in choices.values() if found is not None}
        asked = {key: found.bucket for key, found in by_key.items()}
        entries = fitting(opened, asked, self.cache.read(list(by_key)))
        new = {key: made_bucket(opened, by_key[key]) for key, entry in entries.items() if entry.table is None}
        if new:
            self.cache.put(new, entries, secrets.token_hex(8))
        known = new | _present(entries)
        tables: dict[str, StoredTable] = {}
        simple: dict[str, StoredTable] = {}
        fresh: set[str] = set()
        for one in missing:
            found = choices.get(one.key)
            if found is None:
                continue
            simple[one.key] = found.simple
            table = served(opened, one, known[found.bucket.key], found.simple)
            if table is not None:
                tables[one.key] = table
                if found.bucket.key in new:
                    fresh.add(one.key)
        return tables, simple, fresh

    def _made(self, opened: OpenPackage, misses: Sequence[Asked], simple: Mapping[str, StoredTable]) -> _Made:
        """Makes missing tables, each under a lock or by waiting for the holder; without a lock if that takes too long.

        `simple` holds those that this request has made already.
        """
        token = secrets.token_hex(8)
        by_key = {one.key: one for one in misses}
        tables, here, unwanted = dict[str, StoredTable](), list[str](), list[str]()
        give_up_at = time.monotonic() + 2 * self.settings.table_lock_s
        while left := [key for key in by_key if key not in tables]:
            patient = time.monotonic() < give_up_at
            entries = fitting(opened, by_key, self.cache.claim(left, token) if patient else self.cache.read(left))
            if not entries:
                time.sleep(_POLL_S)
                tables |= _present(fitting(opened, by_key, self.cache.read(left)))
                continue
            present = _present(entries)  # another caller made them between our look and our lock
            self.cache.release(list(present), token)
            lacking = [by_key[key] for key in entries if key not in present]
            fresh = self._fresh(opened, lacking, simple, token)
            tables |= present | fresh
            if fresh:
                unwanted += self.cache.put(fresh, entries, token)
                here += fresh
        return _Made(tables, here, unwanted)

    def _fresh(
        self, opened: OpenPackage, lacking: Sequence[Asked], simple: Mapping[str, StoredTable], token: str
    ) -> dict[str, StoredTable]:
        """Makes tables; if that fails, releases their locks."""
        try:
            return {one.key: simple.get(one.key) or simple_tables.simple(opened, one) for one in lacking}
        except BaseException:
            self.cache.release([one.key for one in lacking], token)
            raise

    def _want(self, opened: OpenPackage, better: Sequence[Asked]) -> None:
        """Queues optimised tables that nobody has requested before."""
        if better:
            self.wanted.add(
                Wanted(key=one.key, package=opened.digest, routine=one.routine, problem=one.problem) for one in better
            )


def _present(entries: Mapping[str, Entry]) -> dict[str, StoredTable]:
    return {key: entry.table for key, entry in entries.items() if entry.table is not None}
