"""What a process keeps in memory to answer with it again: bounded, and only for as long as it is true."""

from __future__ import annotations

import os
from pathlib import Path

from app.known import Known, KnownBlobs
from app.store import document_store


def test_what_was_asked_for_least_recently_goes_first_and_the_sizes_stay_within_the_limit() -> None:
    known = Known[str](100)
    for number in range(10):
        known.put(number, str(number), 10)
    assert known.get(0) == "0"
    known.put(10, "10", 10)
    assert [number for number in range(11) if known.get(number) is None] == [1]


def test_what_would_displace_many_others_is_not_kept() -> None:
    known = Known[str](100)
    known.put("small", "s", 12)
    known.put("large", "l", 13)
    assert (known.get("small"), known.get("large")) == ("s", None)


def test_a_blob_is_known_until_its_file_is_another(tmp_path: Path) -> None:
    store = document_store(tmp_path)
    digest = store.put(b"plan")
    known = KnownBlobs(store, 1000)
    assert known.get(digest) is None
    known.put(digest, store.state(digest), store.read(digest))
    assert known.get(digest) == b"plan"
    os.utime(store.path(digest), ns=(1, 1))
    assert known.get(digest) is None
    store.delete(digest)
    assert store.state(digest) is None
    assert known.get(digest) is None
