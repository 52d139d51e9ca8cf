"""Removes stored blobs that no record names any more, and the oldest results where they take too many bytes."""

from __future__ import annotations

import math
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, cast

import redis
import structlog

from app.errors import StoreUnavailableError
from app.jobs.records import FINAL_STATES, Records
from app.settings import Settings
from app.store import Blob, BlobStore
from app.stores import Stores
from compiler.profile import builtin_names, builtin_profile, profile_digest

log = structlog.get_logger(__name__)

_DIGEST: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_JOB: Final = "tessera:job:"
_RESULT: Final = "tessera:result:"
# What a service with one Redis for both has beside its records.
_OF_CACHE: Final = (_RESULT, "tessera:table:", "tessera:library:", "tessera:unit:", "tessera:addresses:")
_SCANNED: Final = 500
_CLAIMED: Final = 100
# A claim is used for the first part of its time only: a process that stands still must not remove what others write.
_CLAIM_S: Final = 120.0
_USED_CLAIM_S: Final = 20.0
_LOOK_S: Final = 30.0


@dataclass(slots=True, kw_only=True)
class Result:
    """A finished job or a cached outcome: when it was asked for last, and the digests in it."""

    asked_s: float = 0.0
    digests: set[str] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class Mentions:
    """The digests in all records; those of results by the key of the record that ends them."""

    needed: set[str] = field(default_factory=set)
    results: dict[str, Result] = field(default_factory=dict)

    def all(self) -> set[str]:
        """Every digest that a record names."""
        return self.needed.union(*(result.digests for result in self.results.values()))


@dataclass(slots=True, kw_only=True)
class Collected:
    """What the stores hold, and what was removed, or would be."""

    blobs: int = 0
    stored_bytes: int = 0
    removed: int = 0
    removed_bytes: int = 0
    results: int = 0
    leftovers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """Finds and removes what nothing needs.

    Blobs are listed first; then every record is read, and whatever reads as a digest in one counts as needed. A blob
    that is left over and older than `keep_unused_s` is claimed, which fails if it is pinned, and removed. Whoever
    writes or keeps a blob pins it before, and waits while it is claimed; so what comes to be needed meanwhile stays.
    Records that have known this store for less than that time may replace records that were lost, so nothing counts as
    left over yet.
    """

    records: Records
    cache: redis.Redis
    stores: Stores
    settings: Settings

    def collect(self, *, dry_run: bool = False) -> Collected:
        """Removes what nothing needs; raises redis.RedisError, OSError, StoreUnavailableError, and has lost nothing."""
        found = Collected()
        stores = {"models": self.stores.models, "documents": self.stores.documents}
        listed = {name: list(store.blobs()) for name, store in stores.items()}
        mentions = self._mentions()
        named, known_s = mentions.all(), self.records.known_since()
        young_s = time.time() - self.settings.keep_unused_s
        is_known = known_s < young_s
        for name, store in stores.items():
            unused = [
                blob for blob in listed[name] if is_known and blob.digest not in named and blob.written_s < young_s
            ]
            self._remove(store, unused, young_s, found, dry_run=dry_run)
            if not dry_run:
                found.leftovers += store.remove_temporary(self.settings.keep_unused_s)
        left = [blob for blob in listed["documents"] if blob.digest in named or blob.written_s >= young_s]
        self._shrink(left, mentions, found, is_known=is_known, dry_run=dry_run)
        found.blobs = sum(map(len, listed.values()))
        found.stored_bytes = sum(blob.size_bytes for blobs in listed.values() for blob in blobs)
        if not dry_run:
            found.blobs -= found.removed
            found.stored_bytes -= found.removed_bytes
            self.records.note_collection(
                {
                    "blobs": str(found.blobs),
                    "bytes": str(found.stored_bytes),
                    "counted_timestamp_seconds": str(int(time.time())),
                },
                {
                    "blobs_removed": found.removed,
                    "blob_bytes_removed": found.removed_bytes,
                    "results_removed": found.results,
                },
            )
        return found

    def _remove(
        self, store: BlobStore, blobs: Sequence[Blob], young_s: float, found: Collected, *, dry_run: bool
    ) -> None:
        """Removes blobs that were not written since `young_s` and that nobody has pinned."""
        if dry_run:
            found.removed += len(blobs)
            found.removed_bytes += sum(blob.size_bytes for blob in blobs)
            return
        for batch in _batches(blobs, _CLAIMED):
            begun = time.monotonic()
            claimed = set(self.records.claim_blobs([blob.digest for blob in batch], _CLAIM_S))
            try:
                for blob in batch:
                    if blob.digest not in claimed:
                        continue
                    now = store.blob(blob.digest)
                    if now is None or now.written_s >= young_s or time.monotonic() - begun > _USED_CLAIM_S:
                        continue
                    store.delete(blob.digest)
                    found.removed += 1
                    found.removed_bytes += blob.size_bytes
            finally:
                self.records.removed_blobs(list(claimed))

    def _shrink(
        self, documents: Sequence[Blob], mentions: Mentions, found: Collected, *, is_known: bool, dry_run: bool
    ) -> None:
        """Ends the results asked for longest ago until the documents that are left take no more than they may."""
        limit_bytes = self.settings.keep_results_bytes
        sizes = {blob.digest: blob.size_bytes for blob in documents}
        left_bytes = sum(sizes.values())
        if limit_bytes is None or left_bytes <= limit_bytes:
            return
        unnamed = sizes.keys() - mentions.all()  # of any age: who writes one has pinned it
        left_bytes -= sum(sizes[digest] for digest in unnamed)
        freed = unnamed if is_known else set()
        may_end = sizes.keys() - mentions.needed
        users = Counter(digest for result in mentions.results.values() for digest in result.digests)
        for key, result in sorted(mentions.results.items(), key=lambda item: (item[1].asked_s, item[0])):
            if left_bytes <= limit_bytes:
                break
            own = result.digests & may_end
            if not own:
                continue
            users.subtract(own)
            ended = {digest for digest in own if users[digest] == 0}
            left_bytes -= sum(sizes[digest] for digest in ended)
            freed |= ended
            found.results += 1
            if not dry_run:
                self._end(key)
        if not dry_run:
            freed -= self._mentions().all()  # asked for again meanwhile
        unused = [blob for blob in documents if blob.digest in freed]
        self._remove(self.stores.documents, unused, math.inf, found, dry_run=dry_run)

    def _end(self, key: str) -> None:
        if key.startswith(_RESULT):
            self.cache.delete(key)
        else:
            self.records.delete_job(key.removeprefix(_JOB))

    def _mentions(self) -> Mentions:
        """The digests in all records, which are read once each; a record that comes meanwhile has pinned its blobs."""
        mentions, unfinished = Mentions(needed={profile_digest(builtin_profile(name)) for name in builtin_names()}), []
        for keys in _scanned(self.records.client, "tessera:*"):
            plain = [key for key in keys if not key.endswith(":events") and not key.startswith(_OF_CACHE)]
            for key, values in zip(plain, _contents(self.records.client, plain), strict=True):
                digests = _digests(key, values)
                if _is_finished_job(key, values):
                    fields = cast(dict[str, str], values)
                    result = mentions.results.setdefault(_JOB + fields.get("sweep", key.removeprefix(_JOB)), Result())
                    result.asked_s = max(result.asked_s, int(fields.get("finished_ms", 0)) / 1000)
                    result.digests |= digests
                else:
                    mentions.needed |= digests
                    if key.startswith(_JOB):
                        unfinished.append(key)
        for key in unfinished:  # a sweep keeps those of its points that have finished
            if key in mentions.results:
                mentions.needed |= mentions.results.pop(key).digests
        for keys in _scanned(self.cache, f"{_RESULT}*"):
            pipeline = self.cache.pipeline(transaction=False)
            for key in keys:
                pipeline.get(key)
                pipeline.pttl(key)
            answers = pipeline.execute(raise_on_error=False)
            for key, value, left_ms in zip(keys, answers[::2], answers[1::2], strict=True):
                if isinstance(value, str):
                    asked_s = time.time() + int(left_ms) / 1000 - self.settings.keep_result_s
                    mentions.results[key] = Result(asked_s=asked_s, digests=_digests(key, value))
        return mentions


class CollectorThread:
    """A thread beside the API that collects when it is its process' turn; one of all processes has it at a time."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after what it does at the moment."""
        self._stop.set()

    def wait(self, timeout_s: float) -> None:
        """Waits for its end, or leaves it alone: what it did not remove is removed the next time."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        interval_s = self._collector.settings.collect_interval_s
        while not self._stop.wait(min(interval_s, _LOOK_S)):
            try:
                if self._collector.records.take_turn("collect", interval_s):
                    found = self._collector.collect()
                    log.info("collected", removed=found.removed, removed_bytes=found.removed_bytes, left=found.blobs)
            except (redis.RedisError, OSError, StoreUnavailableError) as error:
                log.warning("not_collected", error=type(error).__name__)
            except Exception:
                log.exception("collection_failed")


def _scanned(client: redis.Redis, pattern: str) -> Iterator[list[str]]:
    """The keys of a pattern, some at a time; those that exist all the while are among them."""
    keys = map(str, client.scan_iter(match=pattern, count=_SCANNED))
    while batch := list(islice(keys, _SCANNED)):
        yield batch


def _contents(client: redis.Redis, keys: Sequence[str]) -> list[Any]:
    """The values of keys of any kind; None for one that is gone."""
    kinds = client.pipeline(transaction=False)
    for key in keys:
        kinds.type(key)
    values = client.pipeline(transaction=False)
    for key, kind in zip(keys, kinds.execute(), strict=True):
        match kind:
            case "hash":
                values.hgetall(key)
            case "set":
                values.smembers(key)
            case "zset":
                values.zrange(key, 0, -1)
            case "list":
                values.lrange(key, 0, -1)
            case _:
                values.get(key)
    return values.execute()


def _digests(key: str, values: object) -> set[str]:
    """Whatever reads as a digest in a key and its values."""
    return set(_DIGEST.findall(f"{key} {values}"))


def _is_finished_job(key: str, values: object) -> bool:
    return key.startswith(_JOB) and isinstance(values, dict) and values.get("state") in FINAL_STATES


def _batches(blobs: Iterable[Blob], count: int) -> Iterator[list[Blob]]:
    left = iter(blobs)
    while batch := list(islice(left, count)):
        yield batch
