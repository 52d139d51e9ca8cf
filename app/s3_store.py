"""Blobs in a bucket of an S3-compatible service, read and mapped from verified copies on this machine (API-1)."""

from __future__ import annotations

import fcntl
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from io import BufferedReader
from mmap import mmap
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

import obstore
import structlog
from obstore.exceptions import BaseError
from obstore.store import S3Store as Bucket

from app.errors import StoreUnavailableError
from app.private_files import private_file, private_folder
from app.store import (
    Blob,
    DamagedBlobError,
    DirectoryStore,
    DirectoryWriter,
    StoreHooks,
    file_pieces,
    is_digest,
    mapped_file,
)

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config

log = structlog.get_logger(__name__)

T = TypeVar("T")

# The memory that a transfer takes: parts of an upload that are under way, a piece of a download.
_PART_BYTES: Final = 8 << 20
_PARTS_AT_ONCE: Final = 4
_PIECE_BYTES: Final = 1 << 20
# What was seen in the bucket is believed for so long: collections remove only what nothing refers to.
_SEEN_S: Final = 30.0
_SEEN_MAX: Final = 20_000
# The time of the last use of a local copy is noted this often.
_USED_S: Final = 60.0
_LEFTOVER_S: Final = 24 * 3600.0
_FETCHES: Final = 16


def open_bucket(url: str, config: S3Config, *, answer_s: float, allow_http: bool) -> Bucket:
    """A connection to `s3://bucket/prefix`, which fails when no byte comes for `answer_s`.

    Requests that fail otherwise are tried again for as long. Keys, region and endpoint that `config` does not give come
    from the usual variables of the environment (AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL and so on).
    """
    client: ClientConfig = {
        "allow_http": allow_http,
        "connect_timeout": timedelta(seconds=answer_s),
        "read_timeout": timedelta(seconds=answer_s),
        "timeout": "1h",  # of a whole transfer
    }
    retry: RetryConfig = {
        "max_retries": 10,
        "retry_timeout": timedelta(seconds=0.9 * answer_s),  # hence not after a silence
        "backoff": {"init_backoff": timedelta(seconds=0.05), "max_backoff": timedelta(seconds=1), "base": 2},
    }
    return Bucket.from_url(url, config=config, client_options=client, retry_config=retry)


class S3Store:
    """Blobs as objects named by their digests, below a folder of a bucket.

    A blob is collected and hashed in a local file, then sent under its digest: S3 shows an object once it is whole, so
    a reader sees it whole or not at all. What is read is a local copy whose bytes were hashed when they arrived; the
    copies take `limit_bytes` together, those not used for longest go first, and one in use lasts until it is closed.

    After a silence the bucket is not asked again for as long as an answer is waited for, so that many callers do not
    wait one after the other. Raises StoreUnavailableError from every method.
    """

    def __init__(
        self,
        bucket: Bucket,
        folder: str,
        local: Path,
        hooks: StoreHooks,
        *,
        limit_bytes: int,
        uploads: Bucket | None = None,
        pause_s: float = 0.0,
    ) -> None:
        """`uploads` is the connection for large blobs, whose parts take long; `pause_s` follows a silence."""
        self._bucket = bucket
        self._uploads = uploads or bucket
        self._folder = folder
        self._copies = LocalCopies(local, limit_bytes, hooks.damaged)
        self._hooks = hooks
        self._pause_s = pause_s
        self._silent_until = 0.0
        self._seen: OrderedDict[str, float] = OrderedDict()
        self._seen_lock = Lock()
        self._fetching = [Lock() for _ in range(_FETCHES)]

    def writer(self) -> S3Writer:
        """Begin a blob whose digest is not known yet."""
        return S3Writer(self, self._hooks, self._copies.files.writer())

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their SHA-256."""
        with self.writer() as writer:
            writer.write(data)
            return writer.commit()

    def keep(self, data: bytes) -> str:
        """Store bytes unless they are there, safe from a collection either way; return their SHA-256."""
        digest = hashlib.sha256(data).hexdigest()
        return digest if self.retain(digest) else self.put(data)

    def retain(self, digest: str) -> bool:
        """Whether there is a blob, which is safe from a collection then until a record refers to it."""
        # what was seen before the pin may be gone
        return self.holds(digest) if self._hooks.pin(digest) else self.exists(digest)

    def exists(self, digest: str) -> bool:
        """Whether there is a blob of that name; its bytes are verified when they are read."""
        with self._seen_lock:
            if self._seen.get(digest, 0.0) > time.monotonic():
                return True
        return self.holds(digest)

    def ready(self, digest: str) -> bool:
        """Whether a blob is on this machine with the bytes of its digest; one that is elsewhere is brought here."""
        try:
            self.opened(digest).close()
        except FileNotFoundError:
            return False
        return True

    def holds(self, digest: str) -> bool:
        """Whether there is a blob of that name, whatever its bytes."""
        return self.blob(digest) is not None

    def opened(self, digest: str) -> BufferedReader:
        """A local file with the verified bytes of a blob; raises FileNotFoundError, DamagedBlobError."""
        while True:  # another process may drop a copy before it is opened
            with suppress(FileNotFoundError):
                return self._copies.opened(digest)
            self._fetch(digest)

    def read(self, digest: str) -> bytes:
        """A small blob's bytes; raises FileNotFoundError."""
        with self.opened(digest) as file:
            return file.read()

    @contextmanager
    def mapped(self, digest: str) -> Iterator[mmap | bytes]:
        """A blob as memory-mapped bytes for the time of a `with`; raises FileNotFoundError."""
        with self.opened(digest) as file, mapped_file(file) as mapping:
            yield mapping

    def state(self, digest: str) -> Hashable | None:
        """The state of the local copy, as of a file; None if there is no copy."""
        return self._copies.files.state(digest)

    def size_bytes(self, digest: str) -> int:
        """The size of a blob; raises FileNotFoundError."""
        found = self._copies.files.blob(digest) or self.blob(digest)
        if found is None:
            raise FileNotFoundError(f"there is no blob {digest}")
        return found.size_bytes

    def pieces(self, digest: str) -> Iterator[bytes]:
        """A blob's bytes piece by piece, the file opened at the first; raises FileNotFoundError."""
        with self.opened(digest) as file:
            yield from file_pieces(file)

    def delete(self, digest: str) -> None:
        """Removes a blob if it exists."""
        with self._seen_lock:
            self._seen.pop(digest, None)
        with suppress(FileNotFoundError):
            self._ask(lambda: obstore.delete(self._bucket, self._key(digest)))
        self._copies.files.delete(digest)

    def blob(self, digest: str) -> Blob | None:
        """A blob by its name, whatever its bytes."""
        try:
            found = self._ask(lambda: obstore.head(self._bucket, self._key(digest)))
        except FileNotFoundError:
            return None
        self._saw(digest)
        return Blob(digest=digest, size_bytes=found["size"], written_s=found["last_modified"].timestamp())

    def blobs(self) -> Iterator[Blob]:
        """All blobs, in no order; one that comes or goes meanwhile may be among them or not."""
        pages = obstore.list(self._bucket, self._folder)
        while (page := self._ask(lambda: next(pages, None))) is not None:
            for found in page:
                digest = found["path"].rpartition("/")[2]
                if is_digest(digest):
                    yield Blob(digest=digest, size_bytes=found["size"], written_s=found["last_modified"].timestamp())

    def remove_temporary(self, older_than_s: float = 0.0) -> int:
        """Removes local remains of interrupted writes; parts of interrupted uploads expire by a rule of the bucket."""
        return self._copies.files.remove_temporary(older_than_s)

    def check(self) -> None:
        """Raise OSError or StoreUnavailableError unless blobs can be written."""
        self._copies.files.check()
        self._ask(lambda: obstore.put(self._bucket, f"{self._folder}/probe", b"probe"))

    def send(self, digest: str, path: Path, size_bytes: int) -> None:
        """Stores a local file under its digest; one of more than a part is uploaded in parts, a few at a time."""
        key = self._key(digest)
        if size_bytes <= _PART_BYTES:
            self._ask(lambda: obstore.put(self._bucket, key, path.read_bytes()))
        else:
            self.holds(digest)  # a bucket that does not answer is noticed before the patient upload begins
            with path.open("rb") as file:
                self._ask(
                    lambda: obstore.put(
                        self._uploads, key, file, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
                    )
                )
        self._saw(digest)

    def sent(self, size_bytes: int) -> None:
        """Notes that there is a new local copy."""
        self._copies.added(size_bytes)

    def _key(self, digest: str) -> str:
        self._copies.files.path(digest)  # no other text becomes a key (API-7)
        return f"{self._folder}/{digest}"

    def _saw(self, digest: str) -> None:
        with self._seen_lock:
            self._seen[digest] = time.monotonic() + _SEEN_S
            self._seen.move_to_end(digest)
            while len(self._seen) > _SEEN_MAX:
                self._seen.popitem(last=False)

    def _fetch(self, digest: str) -> None:
        """Makes a verified local copy; raises FileNotFoundError, DamagedBlobError."""
        with self._fetching[int(digest[0], 16)]:
            if self._copies.files.blob(digest) is not None:
                return
            found = self._ask(lambda: obstore.get(self._bucket, self._key(digest)))
            pieces = iter(found.stream(_PIECE_BYTES))
            with self._copies.files.writer() as writer:
                while (piece := self._ask(lambda: next(pieces, None))) is not None:
                    writer.write(piece)
                if writer.sha256 == digest:
                    writer.commit()
                    self._saw(digest)
                    self._copies.added(writer.size_bytes)
                    return
        self.delete(digest)
        log.error("blob_damaged", digest=digest)
        self._hooks.damaged()
        raise DamagedBlobError(f"blob {digest} was damaged")

    def _ask(self, call: Callable[[], T]) -> T:
        """What the bucket answers; raises FileNotFoundError, StoreUnavailableError."""
        begun = time.monotonic()
        if begun < self._silent_until:
            raise unavailable("it did not answer a moment ago")
        try:
            return call()
        except BaseError as error:
            # The text names the request and the answer, never a key.
            reason = str(error).partition("\n")[0]
            log.warning("store_unavailable", error=type(error).__name__, reason=reason)
            self._silent_until = time.monotonic() + self._pause_s
            raise unavailable(type(error).__name__) from error


def unavailable(reason: str) -> StoreUnavailableError:
    """The error for a bucket that does not answer or refuses."""
    return StoreUnavailableError(
        "the service cannot reach its blob store at the moment",
        stage="store",
        actual=reason,
        hint="Try again in a few seconds; an operator finds the cause in the log (store_unavailable)",
    )


class S3Writer:
    """A blob on its way into an S3Store."""

    def __init__(self, store: S3Store, hooks: StoreHooks, file: DirectoryWriter) -> None:
        self._store = store
        self._hooks = hooks
        self._file = file

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return self._file.size_bytes

    @property
    def sha256(self) -> str:
        """The digest of what was written so far."""
        return self._file.sha256

    def write(self, chunk: bytes | memoryview) -> None:
        """Append bytes."""
        self._file.write(chunk)

    def commit(self) -> str:
        """Send the blob; return its digest."""
        digest = self.sha256
        self._hooks.pin(digest)
        self._store.send(digest, self._file.path, self.size_bytes)
        self._file.commit()
        self._store.sent(self.size_bytes)
        return digest

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.__exit__(kind, error, trace)


class LocalCopies:
    """Verified copies of blobs on this machine, bounded in bytes; several processes share them.

    The time of the last use of a copy is that of an empty file beside it, as a copy that changes would be hashed anew.
    """

    def __init__(self, root: Path, limit_bytes: int, damaged: Callable[[], None]) -> None:
        self.files = DirectoryStore(root, StoreHooks(damaged=damaged), durable=False)
        self._root = root
        self._limit_bytes = limit_bytes
        self._used = root / "used"
        private_folder(self._used)
        self._noted: OrderedDict[str, float] = OrderedDict()
        self._added_bytes = limit_bytes  # the first copy finds out what there is

    def opened(self, digest: str) -> BufferedReader:
        """A copy's file, verified; raises FileNotFoundError."""
        file = self.files.opened(digest)
        now = time.monotonic()
        if now > self._noted.get(digest, 0.0):
            self._noted[digest] = now + _USED_S
            while len(self._noted) > _SEEN_MAX:
                self._noted.popitem(last=False)
            (self._used / digest).touch(0o600)
        return file

    def added(self, size_bytes: int) -> None:
        """Notes a new copy; now and then drops those not used for longest."""
        self._added_bytes += size_bytes
        if self._added_bytes < self._limit_bytes // 20:
            return
        with private_file(self._root / "lock", "w") as lock:
            try:
                fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # another process does
            self._added_bytes = 0
            self._trim()

    def _trim(self) -> None:
        self.files.remove_temporary(_LEFTOVER_S)
        copies = sorted(self.files.blobs(), key=self._last_used)
        left_bytes = sum(copy.size_bytes for copy in copies)
        for copy in copies[:-1]:  # the newest is about to be used
            if left_bytes <= self._limit_bytes:
                break
            self.files.delete(copy.digest)
            (self._used / copy.digest).unlink(missing_ok=True)
            left_bytes -= copy.size_bytes

    def _last_used(self, copy: Blob) -> float:
        with suppress(FileNotFoundError):
            return max(copy.written_s, (self._used / copy.digest).stat().st_mtime)
        return copy.written_s
