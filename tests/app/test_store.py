"""API-1: the content-addressed store in a directory; what every store does is in test_stores.py."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from app.store import DirectoryStore
from compiler.errors import InternalError


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path)


def test_a_blob_lies_under_two_folders_of_its_digest(store: DirectoryStore, tmp_path: Path) -> None:
    digest = store.put(b"data")
    assert digest == hashlib.sha256(b"data").hexdigest()
    assert (tmp_path / digest[:2] / digest[2:4] / digest).read_bytes() == b"data"
    assert store.exists(digest)
    assert store.read(digest) == b"data"


def test_a_blob_is_unseen_until_committed_and_gone_if_not(store: DirectoryStore, tmp_path: Path) -> None:
    with store.writer() as writer:
        writer.write(b"half")
        assert not store.exists(writer.sha256)
        assert len(list((tmp_path / "tmp").iterdir())) == 1
    assert list((tmp_path / "tmp").iterdir()) == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("name", ["", "..", "../../etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_only_a_digest_becomes_a_path(store: DirectoryStore, name: str) -> None:
    with pytest.raises(InternalError):
        store.path(name)


def test_the_store_says_so_if_it_cannot_be_written(store: DirectoryStore, tmp_path: Path) -> None:
    store.check()
    (tmp_path / "tmp").rmdir()
    with pytest.raises(OSError, match="No such file"):
        store.check()


def test_what_interrupted_uploads_left_is_removed(store: DirectoryStore, tmp_path: Path) -> None:
    writer = store.writer()
    writer.write(b"left")
    store.remove_temporary()
    assert list((tmp_path / "tmp").iterdir()) == []
    writer.__exit__(None, None, None)
    assert os.listdir(tmp_path) == ["tmp"]  # noqa: PTH208
