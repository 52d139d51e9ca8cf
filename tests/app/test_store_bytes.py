"""Stored bytes are believed once they were hashed, in each state of their file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app.store import DamagedBlobError, DirectoryStore, StoreHooks

DATA = bytes(range(256)) * 5000


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff")


def truncate(path: Path) -> None:
    os.truncate(path, 1000)


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(DATA[::-1])
    other.replace(path)


@pytest.mark.parametrize("damage", [flip, truncate, replaced])
@pytest.mark.parametrize("fresh", [False, True], ids=["known", "new process"])
def test_a_damaged_blob_is_missing_counted_and_can_be_written_again(
    tmp_path: Path, damage: Callable[[Path], None], fresh: bool
) -> None:
    told: list[None] = []
    store = DirectoryStore(tmp_path, StoreHooks(damaged=lambda: told.append(None)))
    digest = store.put(DATA)
    assert store.read(digest) == DATA
    damage(store.path(digest))
    if fresh:
        store = DirectoryStore(tmp_path, StoreHooks(damaged=lambda: told.append(None)))
    assert store.holds(digest)
    with pytest.raises(DamagedBlobError), store.mapped(digest):
        pass
    assert told == [None]
    assert not store.holds(digest)
    assert not store.exists(digest)
    assert store.put(DATA) == digest
    assert b"".join(store.pieces(digest)) == DATA
    assert told == [None]


def test_a_blob_is_hashed_once_for_each_state_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hashlib

    digest = DirectoryStore(tmp_path).put(DATA)
    store = DirectoryStore(tmp_path)
    hashed: list[str] = []
    actual = hashlib.file_digest

    def counting(file: object, name: str) -> object:
        hashed.append(name)
        return actual(file, name)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "file_digest", counting)
    for _ in range(3):
        assert store.exists(digest)
        assert store.read(digest) == DATA
    assert len(hashed) == 1
    os.utime(store.path(digest), (1, 1))
    assert store.exists(digest)
    assert len(hashed) == 2
