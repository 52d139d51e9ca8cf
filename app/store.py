"""Content-addressed blobs: models, profiles, documents and executables by the SHA-256 of their bytes (API-1)."""

from __future__ import annotations

import hashlib
import itertools
import mmap
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import IO, Final, Protocol, Self

import structlog

from app.private_files import check_writable, private_file, private_folder
from compiler.errors import InternalError

log = structlog.get_logger(__name__)

MODELS: Final = "models"
DOCUMENTS: Final = "documents"
_PIECE_BYTES = 1024 * 1024
_VERIFIED_MAX = 20_000
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Whether a text is a SHA-256 in lower-case hex, hence safe as a name of a blob."""
    return _DIGEST.fullmatch(text) is not None


class DamagedBlobError(FileNotFoundError):
    """The bytes of a blob are not those of its digest; it was removed, so it counts as missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A stored blob by its name, and when it was written last, by the clock of the store (seconds since 1970)."""

    digest: str
    size_bytes: int
    written_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHooks:
    """What a store tells its service: `damaged` after it removed a blob of other bytes than its digest says, `pin`
    before it writes or keeps one, so that no collection removes it before a record names it.

    `pin` says whether it did anything: a blob that this process pinned a moment ago is pinned still.
    """

    damaged: Callable[[], None] = lambda: None
    pin: Callable[[str], bool] = lambda _: False


NO_HOOKS: Final = StoreHooks()


class BlobWriter(Protocol):
    """A blob that is being written: unseen until committed, gone if not."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def sha256(self) -> str: ...

    def write(self, chunk: bytes | memoryview) -> None: ...

    def commit(self) -> str: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class BlobStore(Protocol):
    """The one way to stored bytes: DirectoryStore, S3Store. S3Store raises StoreUnavailableError from every method."""

    def writer(self) -> BlobWriter:
        """Begin a blob whose digest is not known yet."""

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their SHA-256."""

    def keep(self, data: bytes) -> str:
        """Store bytes unless they are there, safe from a collection either way; return their SHA-256."""

    def retain(self, digest: str) -> bool:
        """Whether there is a blob, which is safe from a collection then until a record refers to it."""

    def exists(self, digest: str) -> bool:
        """Whether a blob exists; bytes on this machine are verified, others when they are read."""

    def ready(self, digest: str) -> bool:
        """Whether a blob is on this machine with the bytes of its digest; one that is elsewhere is brought here."""

    def holds(self, digest: str) -> bool:
        """Whether there is a blob of that name, whatever its bytes."""

    def state(self, digest: str) -> Hashable | None:
        """Another value whenever the blob may have other bytes, None if there is no blob; never reads it."""

    def opened(self, digest: str) -> BufferedReader:
        """A file of this machine with the verified bytes of a blob; raises FileNotFoundError."""

    def read(self, digest: str) -> bytes:
        """A small blob's bytes; raises FileNotFoundError."""

    def mapped(self, digest: str) -> AbstractMapping:
        """A blob as memory-mapped bytes for the time of a `with`; raises FileNotFoundError."""

    def size_bytes(self, digest: str) -> int:
        """The size of a blob; raises FileNotFoundError."""

    def pieces(self, digest: str) -> Iterator[bytes]:
        """A blob's bytes piece by piece, the file opened at the first; raises FileNotFoundError."""

    def delete(self, digest: str) -> None:
        """Removes a blob if it exists."""

    def blob(self, digest: str) -> Blob | None:
        """A blob by its name, whatever its bytes."""

    def blobs(self) -> Iterator[Blob]:
        """All blobs, in no order; one that comes or goes meanwhile may be among them or not."""

    def remove_temporary(self, older_than_s: float = 0.0) -> int:
        """Removes the remains of interrupted writes that were not touched for as long; returns their number."""

    def check(self) -> None:
        """Raise OSError unless blobs can be written."""


class AbstractMapping(Protocol):
    """A context manager that gives the mapped bytes."""

    def __enter__(self) -> mmap.mmap | bytes: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None: ...


def file_pieces(file: BufferedReader) -> Iterator[bytes]:
    """A file's bytes piece by piece."""
    while piece := file.read(_PIECE_BYTES):
        yield piece


@contextmanager
def mapped_file(file: IO[bytes]) -> Iterator[mmap.mmap | bytes]:
    """A file as memory-mapped bytes for the time of a `with`; live views keep them, as does a file that is removed."""
    if os.fstat(file.fileno()).st_size == 0:
        yield b""  # an empty file cannot be mapped
        return
    mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        yield mapping
    finally:
        with suppress(BufferError):
            mapping.close()


class DirectoryStore:
    """Blobs as files under two levels of folders.

    A blob is written to a temporary file, synced and moved into place, so a reader sees it whole or not at
    all, and a crash leaves an unused temporary file at worst.

    No byte is believed before it was hashed, once per process and state of its file. A blob of other bytes than its
    digest says is removed, the hook `damaged` is called, and the caller sees DamagedBlobError.
    """

    def __init__(self, root: Path, hooks: StoreHooks = NO_HOOKS, *, durable: bool = True) -> None:
        self._root = root
        self._root_text = str(root)
        self._hooks = hooks
        self._durable = durable
        self._verified: OrderedDict[str, _State] = OrderedDict()
        self._verified_lock = Lock()
        self._temporary = root / "tmp"
        private_folder(self._temporary)

    def path(self, digest: str) -> Path:
        """The path of a blob; the digest is checked, so no other text can become a path (API-7)."""
        if not is_digest(digest):
            raise InternalError("a blob was asked for by something that is no digest", stage="store")
        return self._root / digest[:2] / digest[2:4] / digest

    def writer(self) -> DirectoryWriter:
        """Begin a blob whose digest is not known yet."""
        return DirectoryWriter(self, self._hooks, self._temporary / secrets.token_hex(16), durable=self._durable)

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
        self._hooks.pin(digest)
        return self.exists(digest)

    def exists(self, digest: str) -> bool:
        """Whether a blob with the bytes of its digest exists."""
        try:
            self.opened(digest).close()
        except FileNotFoundError:
            return False
        return True

    def ready(self, digest: str) -> bool:
        """Whether a blob with the bytes of its digest exists."""
        return self.exists(digest)

    def holds(self, digest: str) -> bool:
        """Whether there is a blob of that name, whatever its bytes."""
        return self.path(digest).is_file()

    def state(self, digest: str) -> _State | None:
        """Another value whenever the blob may have other bytes, None if there is no blob; never reads it."""
        if not is_digest(digest):
            return None
        try:
            return _state(f"{self._root_text}/{digest[:2]}/{digest[2:4]}/{digest}")
        except OSError:
            return None

    def read(self, digest: str) -> bytes:
        """A small blob's bytes; raises FileNotFoundError."""
        with self.opened(digest) as file:
            return file.read()

    @contextmanager
    def mapped(self, digest: str) -> Iterator[mmap.mmap | bytes]:
        """A blob as memory-mapped bytes for the time of a `with`; raises FileNotFoundError."""
        with self.opened(digest) as file, mapped_file(file) as mapping:
            yield mapping

    def size_bytes(self, digest: str) -> int:
        """The size of a blob; raises FileNotFoundError."""
        return self.path(digest).stat().st_size

    def pieces(self, digest: str) -> Iterator[bytes]:
        """A blob's bytes piece by piece, the file opened at the first; raises FileNotFoundError."""
        with self.opened(digest) as file:
            yield from file_pieces(file)

    def delete(self, digest: str) -> None:
        """Removes a blob if it exists."""
        self.path(digest).unlink(missing_ok=True)

    def blob(self, digest: str) -> Blob | None:
        """A blob by its name, whatever its bytes."""
        try:
            found = self.path(digest).stat()
        except FileNotFoundError:
            return None
        return Blob(digest=digest, size_bytes=found.st_size, written_s=found.st_mtime)

    def blobs(self) -> Iterator[Blob]:
        """All blobs, in no order; one that comes or goes meanwhile may be among them or not."""
        for folder, _, names in os.walk(self._root):
            for digest in filter(is_digest, names):
                found = self.blob(digest) if folder == str(self.path(digest).parent) else None
                if found is not None:
                    yield found

    def check(self) -> None:
        """Raise OSError unless blobs can be written."""
        check_writable(self._temporary)

    def believe(self, digest: str, state: _State) -> None:
        """Notes that the file in this state has the bytes of the digest."""
        with self._verified_lock:
            self._verified[digest] = state
            self._verified.move_to_end(digest)
            while len(self._verified) > _VERIFIED_MAX:
                self._verified.popitem(last=False)

    def opened(self, digest: str) -> BufferedReader:
        """A blob's file, verified; raises FileNotFoundError, DamagedBlobError."""
        path = self.path(digest)
        file = path.open("rb")
        try:
            state = _state(file.fileno())
            if self._verified.get(digest) == state:
                return file
            if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                self.believe(digest, state)
                file.seek(0)
                return file
            path.unlink(missing_ok=True)
        except BaseException:
            file.close()
            raise
        file.close()
        log.error("blob_damaged", digest=digest)
        self._hooks.damaged()
        raise DamagedBlobError(f"blob {digest} was damaged")

    def remove_temporary(self, older_than_s: float = 0.0) -> int:
        """Removes the remains of interrupted writes that were not touched for as long; returns their number.

        With 0 only call it while nobody writes.
        """
        removed = 0
        for leftover in self._temporary.iterdir():
            with suppress(FileNotFoundError):  # its writer came to an end
                if older_than_s == 0 or leftover.stat().st_mtime < time.time() - older_than_s:
                    leftover.unlink()
                    removed += 1
        return removed


def model_store(root: Path, hooks: StoreHooks = NO_HOOKS) -> DirectoryStore:
    """The store of uploaded models, apart from documents, so that deleting a model never removes a document."""
    return DirectoryStore(root / MODELS, hooks)


def document_store(root: Path, hooks: StoreHooks = NO_HOOKS) -> DirectoryStore:
    """The store of profiles, documents, executables and tensors."""
    return DirectoryStore(root / DOCUMENTS, hooks)


# Inode, size, and the times of the last change of bytes and of anything: a file written anew or in place differs.
_State = tuple[int, int, int, int]


def _state(file: int | str) -> _State:
    """The state of a file by its descriptor or path."""
    found = os.stat(file)  # noqa: PTH116
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DirectoryWriter:
    """A blob on its way into a DirectoryStore."""

    def __init__(self, store: DirectoryStore, hooks: StoreHooks, path: Path, *, durable: bool) -> None:
        self._store = store
        self._hooks = hooks
        self._durable = durable
        self._path = path
        self._hash = hashlib.sha256()
        self._file = private_file(path, "x")
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return self._size_bytes

    @property
    def sha256(self) -> str:
        """The digest of what was written so far."""
        return self._hash.hexdigest()

    def write(self, chunk: bytes | memoryview) -> None:
        """Append bytes."""
        whole = view = memoryview(chunk).cast("B")
        while view:
            view = view[self._file.write(view) :]
        self._hash.update(whole)
        self._size_bytes += whole.nbytes

    @property
    def path(self) -> Path:
        """The file that is being written."""
        return self._path

    def commit(self) -> str:
        """Make the blob durable and visible; return its digest."""
        digest = self.sha256
        self._hooks.pin(digest)
        target = self._store.path(digest)
        if self._durable:
            os.fsync(self._file.fileno())
        folders = (target.parent, target.parent.parent, target.parent.parent.parent)
        made = [above for folder, above in itertools.pairwise(folders) if not folder.exists()]
        private_folder(target.parent)
        self._path.replace(target)
        if self._durable:
            for folder in (target.parent, *made):  # a new folder is there once the one above is written
                sync_folder(folder)
        self._store.believe(digest, _state(self._file.fileno()))
        return digest

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)
