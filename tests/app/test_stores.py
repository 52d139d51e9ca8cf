"""API-1: what every store does, in a directory and in a bucket of a real S3 server."""

from __future__ import annotations

import hashlib
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import obstore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import StoreUnavailableError
from app.settings import Settings
from app.store import BlobStore, DamagedBlobError, StoreHooks
from app.stores import Stores, open_stores, store_id
from compiler.errors import InternalError
from tests.s3 import S3Server
from tests.s3 import settings as s3_settings
from tests.service.harness import until

# Of more than one part of an upload, and of more than one piece of a download.
LARGE = bytes(range(256)) * (20 << 12)
Open = Callable[..., Stores]


@pytest.fixture(params=["directory", "s3"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Settings]:
    """Settings of one store, as machines of their own have them."""
    if request.param == "directory":
        return lambda _: Settings(data_dir=tmp_path)
    server, prefix = request.getfixturevalue("s3"), request.getfixturevalue("prefix")
    return lambda machine: s3_settings(server, prefix, tmp_path / machine)


@pytest.fixture
def store(make: Callable[[str], Settings]) -> BlobStore:
    return open_stores(make("here")).documents


def test_a_blob_is_mapped_and_not_read(store: BlobStore) -> None:
    digest = store.put(b"mapped")
    with store.mapped(digest) as data:
        assert isinstance(data, mmap.mmap)
        assert bytes(data) == b"mapped"


def test_a_mapping_survives_the_deletion_of_its_blob_and_a_view_that_outlives_it(store: BlobStore) -> None:
    digest = store.put(b"mapped")
    with store.mapped(digest) as data:
        store.delete(digest)
        view = memoryview(data)
    assert not store.exists(digest)
    assert bytes(view) == b"mapped"


def test_an_empty_blob_is_mapped_as_nothing(store: BlobStore) -> None:
    with store.mapped(store.put(b"")) as data:
        assert data == b""


def test_a_blob_may_be_written_in_pieces(store: BlobStore) -> None:
    with store.writer() as writer:
        for piece in (b"one", b"", b"two"):
            writer.write(piece)
        assert writer.size_bytes == 6
        digest = writer.commit()
    assert store.read(digest) == b"onetwo"


def test_another_machine_reads_what_this_one_wrote(make: Callable[[str], Settings]) -> None:
    here, there = open_stores(make("here")).documents, open_stores(make("there")).documents
    for data in (b"", b"small", LARGE):
        with here.writer() as writer:
            for begin in range(0, len(data), 1 << 20):
                writer.write(data[begin : begin + (1 << 20)])
            digest = writer.commit()
        assert there.exists(digest)
        assert there.holds(digest)
        assert there.size_bytes(digest) == len(data)
        assert there.ready(digest)
        assert b"".join(there.pieces(digest)) == data
        with there.opened(digest) as file:
            assert file.read() == data


def test_what_is_not_there_is_not_found(store: BlobStore) -> None:
    digest = "0" * 64
    assert not store.exists(digest)
    assert not store.ready(digest)
    assert not store.holds(digest)
    assert store.blob(digest) is None
    for call in (store.read, store.size_bytes, store.opened, lambda name: list(store.pieces(name))):
        with pytest.raises(FileNotFoundError):
            call(digest)
    store.delete(digest)


@pytest.mark.parametrize("name", ["", "..", "../../etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_nothing_but_a_digest_names_a_blob(store: BlobStore, name: str) -> None:
    for call in (store.read, store.exists, store.delete, store.opened, store.blob):
        with pytest.raises(InternalError):
            call(name)


def test_what_is_given_up_leaves_nothing(store: BlobStore) -> None:
    with store.writer() as writer:
        writer.write(LARGE)
    assert list(store.blobs()) == []
    assert store.remove_temporary() == 0


def test_models_and_documents_are_apart(make: Callable[[str], Settings]) -> None:
    stores = open_stores(make("here"))
    digest = stores.models.put(b"the same")
    assert not stores.documents.exists(digest)
    stores.documents.put(b"the same")
    stores.models.delete(digest)
    assert stores.documents.read(digest) == b"the same"


def test_all_blobs_are_listed_with_their_sizes_and_times(store: BlobStore) -> None:
    begun = time.time()
    wanted = {store.put(str(number).encode() * number): number for number in range(5)}
    found = {blob.digest: blob for blob in store.blobs()}
    assert {digest: blob.size_bytes for digest, blob in found.items()} == wanted
    assert all(begun - 2 <= blob.written_s <= time.time() + 2 for blob in found.values())
    assert all(store.blob(digest) == blob for digest, blob in found.items())


def test_a_blob_that_is_written_again_is_young_again(store: BlobStore) -> None:
    digest = store.put(b"again")
    (before,) = store.blobs()
    until(lambda: time.time() > before.written_s + 1.1, "another second, by which S3 counts")
    assert store.put(b"again") == digest
    (after,) = store.blobs()
    assert after.written_s > before.written_s


def test_a_blob_is_pinned_before_it_is_written_or_kept(make: Callable[[str], Settings]) -> None:
    pinned: list[tuple[str, bool]] = []
    plain = open_stores(make("there")).documents

    def pin(digest: str) -> bool:
        pinned.append((digest, plain.holds(digest)))
        return True

    store = open_stores(make("here"), documents=StoreHooks(pin=pin)).documents
    digest = store.keep(b"kept")
    assert all(found == (digest, False) for found in pinned)
    assert store.read(digest) == b"kept"
    pinned.clear()
    assert store.keep(b"kept") == digest
    assert pinned == [(digest, True)]
    plain.delete(digest)
    assert store.keep(b"kept") == digest
    assert plain.holds(digest)


def test_a_killed_upload_leaves_nothing(make: Callable[[str], Settings]) -> None:
    settings = make("here")
    store = open_stores(settings).documents
    code = (
        "import sys; from app.settings import Settings; from app.stores import open_stores\n"
        "writer = open_stores(Settings()).documents.writer()\n"
        "while True: writer.write(bytes(1 << 20)); print(flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment_of(settings), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        for _ in range(10):
            process.stdout.readline()
        process.kill()
    assert list(store.blobs()) == []
    assert store.remove_temporary(older_than_s=3600) == 0
    assert store.remove_temporary() == 1


def test_an_upload_that_is_killed_while_its_parts_are_sent_shows_nothing(
    s3: S3Server, prefix: str, tmp_path: Path
) -> None:
    settings = s3_settings(s3, prefix, tmp_path)
    code = (
        "from app.settings import Settings; from app.stores import open_stores\n"
        "with open_stores(Settings()).documents.writer() as writer:\n"
        "    for number in range(200): writer.write(bytes(1 << 20))\n"
        "    print('sending', flush=True); writer.commit()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment_of(settings), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(s3.child.pid, signal.SIGSTOP)
        process.kill()
        process.wait()
        os.kill(s3.child.pid, signal.SIGCONT)
    assert until(lambda: answers(open_stores(settings).documents, "0" * 64) is False, "the server")
    assert s3.keys(prefix) == []
    assert open_stores(settings).documents.remove_temporary() == 1


def environment_of(settings: Settings) -> dict[str, str]:
    values = settings.model_dump(mode="json", exclude_none=True)
    return {**os.environ, **{f"TESSERA_{name.upper()}": str(value) for name, value in values.items()}}


def test_all_who_share_a_store_read_the_same_id(make: Callable[[str], Settings]) -> None:
    found = store_id(make("here"))
    assert len(found) == 32
    assert store_id(make("there")) == found
    assert store_id(make("here")) == found


def test_a_blob_has_a_state_until_it_is_gone(store: BlobStore) -> None:
    digest = store.put(b"bytes")
    state = store.state(digest)
    assert state is not None
    assert store.read(digest) == b"bytes"
    assert store.state(digest) == state
    store.delete(digest)
    assert store.state(digest) is None


def test_the_store_can_be_written(store: BlobStore) -> None:
    store.check()
    assert list(store.blobs()) == []


@pytest.mark.slow
@given(st.lists(st.binary(max_size=50), max_size=8))
def test_any_blobs_come_back_as_they_were(request_store: BlobStore, pieces: list[bytes]) -> None:
    digests = [request_store.put(piece) for piece in pieces]
    assert [request_store.read(digest) for digest in digests] == pieces


@pytest.fixture(scope="module", params=["directory", "s3"])
def request_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BlobStore:
    folder = tmp_path_factory.mktemp("any")
    if request.param == "directory":
        return open_stores(Settings(data_dir=folder)).documents
    return open_stores(s3_settings(request.getfixturevalue("s3"), "any", folder)).documents


def damage(server: S3Server, prefix: str, digest: str, data: bytes) -> None:
    obstore.put(server.bucket(prefix), f"documents/{digest}", data)


def test_a_damaged_object_is_noticed_when_it_arrives(s3: S3Server, prefix: str, tmp_path: Path) -> None:
    told: list[None] = []
    hooks = StoreHooks(damaged=lambda: told.append(None))
    digest = open_stores(s3_settings(s3, prefix, tmp_path / "here")).documents.put(LARGE)
    there = open_stores(s3_settings(s3, prefix, tmp_path / "there"), documents=hooks).documents
    damage(s3, prefix, digest, LARGE[:-1] + b"?")
    with pytest.raises(DamagedBlobError):
        there.read(digest)
    assert told == [None]
    assert not there.exists(digest)
    assert s3.keys(prefix) == []
    assert there.put(LARGE) == digest
    assert there.read(digest) == LARGE


def test_a_damaged_copy_is_fetched_again(s3: S3Server, prefix: str, tmp_path: Path) -> None:
    settings = s3_settings(s3, prefix, tmp_path)
    digest = open_stores(settings).documents.put(b"copied")
    (copy,) = settings.copies_dir.rglob(f"{digest[:2]}/{digest[2:4]}/{digest}")
    copy.write_bytes(b"changed")
    assert open_stores(settings).documents.read(digest) == b"copied"


def test_copies_stay_within_their_bytes_and_those_in_use_last(s3: S3Server, prefix: str, tmp_path: Path) -> None:
    settings = s3_settings(s3, prefix, tmp_path, store_copies_bytes=3000)
    store = open_stores(settings).documents
    blobs = [bytes([number]) * 1000 for number in range(8)]
    with store.mapped(store.put(blobs[0])) as held:
        digests = [store.put(blob) for blob in blobs]
        assert bytes(held) == blobs[0]
    copies = [path for path in settings.copies_dir.rglob("*") if path.is_file() and path.stat().st_size == 1000]
    assert len(copies) <= 3
    assert digests[0] not in [copy.name for copy in copies]
    assert [store.read(digest) for digest in digests] == blobs


def test_the_copy_that_was_not_used_for_longest_goes_first(s3: S3Server, prefix: str, tmp_path: Path) -> None:
    settings = s3_settings(s3, prefix, tmp_path, store_copies_bytes=2500)
    store = open_stores(settings).documents
    first, second = store.put(b"1" * 1000), store.put(b"2" * 1000)
    folder = settings.copies_dir / "documents"
    for digest, age_s in ((first, 100), (second, 200)):
        store.read(digest)
        for path in (folder / digest[:2] / digest[2:4] / digest, folder / "used" / digest):
            os.utime(path, (time.time() - age_s, time.time() - age_s))
    third = store.put(b"3" * 1000)
    copies = {path.name for path in folder.rglob("*") if path.is_file() and path.stat().st_size == 1000}
    assert copies == {first, third}


def test_several_processes_share_the_copies(s3: S3Server, prefix: str, tmp_path: Path) -> None:
    settings = s3_settings(s3, prefix, tmp_path, store_copies_bytes=20_000)
    digests = [open_stores(settings).documents.put(bytes([number]) * 5000) for number in range(12)]
    code = (
        "import sys, random; from app.settings import Settings; from app.stores import open_stores\n"
        "store = open_stores(Settings()).documents; random.seed(int(sys.argv[1]))\n"
        "for _ in range(60):\n"
        "    number = random.randrange(12)\n"
        "    with store.mapped(sys.argv[2 + number]) as data: assert bytes(data) == bytes([number]) * 5000\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(number), *digests], env=environment_of(settings))
        for number in range(3)
    ]
    assert [process.wait(60) for process in processes] == [0, 0, 0]


@pytest.mark.slow
def test_an_upload_takes_a_few_parts_of_memory(s3: S3Server, prefix: str, tmp_path: Path) -> None:
    settings = s3_settings(s3, prefix, tmp_path)
    code = (
        "import resource; from app.settings import Settings; from app.stores import open_stores\n"
        "store = open_stores(Settings()).documents; store.put(b'first')\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "with store.writer() as writer:\n"
        "    for number in range(300): writer.write(number.to_bytes(2, 'big') * (1 << 19))\n"
        "    print(writer.commit())\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment_of(settings), stdout=subprocess.PIPE, check=True, text=True
    )
    digest, grown_kib = done.stdout.split()
    wanted = hashlib.sha256()
    for number in range(300):
        wanted.update(number.to_bytes(2, "big") * (1 << 19))
    assert digest == wanted.hexdigest()
    assert int(grown_kib) < 150 * 1024, grown_kib
    assert s3.bucket(prefix).head(f"documents/{digest}")["size"] == 300 << 20


def test_a_frozen_server_is_given_up_soon_and_not_asked_by_every_caller(
    s3: S3Server, prefix: str, tmp_path: Path
) -> None:
    store = open_stores(s3_settings(s3, prefix, tmp_path), patient=False).documents
    digest = store.put(b"known")
    os.kill(s3.child.pid, signal.SIGSTOP)
    try:
        until(lambda: all_stopped(s3.child.pid), "all threads of the server to stop")
        begun = time.monotonic()
        for call in (store.holds, lambda _: store.put(LARGE), lambda _: store.put(b"new"), store.size_bytes):
            with pytest.raises(StoreUnavailableError):
                call("0" * 64)
        assert time.monotonic() - begun < 1.8
        assert store.read(digest) == b"known"
    finally:
        os.kill(s3.child.pid, signal.SIGCONT)
    assert until(lambda: answers(store, digest), "the server to answer again")


def all_stopped(pid: int) -> bool:
    states = (path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat"))
    return all(state in "Tt" for state in states)


def answers(store: BlobStore, digest: str) -> bool | None:
    try:
        return store.holds(digest)
    except StoreUnavailableError:
        return None


def test_a_refusal_names_no_key(
    s3: S3Server, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    store = open_stores(s3_settings(s3, prefix, tmp_path)).documents
    with pytest.raises(StoreUnavailableError) as refused:
        store.put(b"refused")
    said = str(refused.value.to_dict()) + "".join(capfd.readouterr())
    assert "Permission" in said
    assert "not-the-secret" not in said


def test_keys_may_stand_in_a_file(s3: S3Server, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"
    key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    store = open_stores(s3_settings(s3, prefix, tmp_path)).documents
    assert store.read(store.put(b"by file")) == b"by file"
