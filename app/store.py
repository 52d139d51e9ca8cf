"""Content-addressed blobs: models, profiles, documents and executables by the SHA-256 of their bytes (API-1)."""

from __future__ import annotations

import hashlib
import itertools
import mmap
import os
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Protocol, Self

import structlog

from app.private_files import private_file, private_folder
from compiler.errors import InternalError

log = structlog.get_logger(__name__)

_PIECE_BYTES = 1024 * 1024
_PROBE_BYTES = 64 * 1024
_VERIFIED_MAX = 20_000
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Whether a text is a SHA-256 in lower-case hex, hence safe as a name of a blob."""
    return _DIGEST.fullmatch(text) is not None


class DamagedBlobError(FileNotFoundError):
    """The bytes of a blob are not those of its digest; it was removed, so it counts as missing."""


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
    """The store that the service needs; a directory now, an object store later."""

    def writer(self) -> BlobWriter:
        """Begin a blob whose digest is not known yet."""

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their SHA-256."""

    def exists(self, digest: str) -> bool:
        """Whether a blob with the bytes of its digest exists."""

    def holds(self, digest: str) -> bool:
        """Whether there is a blob of that name, whatever its bytes."""

    def state(self, digest: str) -> Hashable | None:
        """Another value whenever the blob may have other bytes, None if there is no blob; never reads it."""

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

    def check(self) -> None:
        """Raise OSError unless blobs can be written."""


class AbstractMapping(Protocol):
    """A context manager that gives the mapped bytes."""

    def __enter__(self) -> mmap.mmap | bytes: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None: ...


class DirectoryStore:
    """Blobs as files under two levels of folders.

    A blob is written to a temporary file, synced and moved into place, so a reader sees it whole or not at
    all, and a crash leaves an unused temporary file at worst.

    No byte is believed before it was hashed, once per process and state of its file. A blob of other bytes than its
    digest says is removed, `damaged` is called, and the caller sees DamagedBlobError.
    """

    def __init__(self, root: Path, damaged: Callable[[], None] | None = None) -> None:
        self._root = root
        self._root_text = str(root)
        self._damaged = damaged
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
        return DirectoryWriter(self, self._temporary / secrets.token_hex(16))

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their SHA-256."""
        with self.writer() as writer:
            writer.write(data)
            return writer.commit()

    def exists(self, digest: str) -> bool:
        """Whether a blob with the bytes of its digest exists."""
        try:
            self._opened(digest).close()
        except FileNotFoundError:
            return False
        return True

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
        with self._opened(digest) as file:
            return file.read()

    @contextmanager
    def mapped(self, digest: str) -> Iterator[mmap.mmap | bytes]:
        """A blob as memory-mapped bytes for the time of a `with`; raises FileNotFoundError."""
        with self._opened(digest) as file:
            if os.fstat(file.fileno()).st_size == 0:
                yield b""  # an empty file cannot be mapped
                return
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            yield mapping
        finally:
            with suppress(BufferError):  # live views keep the mapping; it ends with them
                mapping.close()

    def size_bytes(self, digest: str) -> int:
        """The size of a blob; raises FileNotFoundError."""
        return self.path(digest).stat().st_size

    def pieces(self, digest: str) -> Iterator[bytes]:
        """A blob's bytes piece by piece, the file opened at the first; raises FileNotFoundError."""
        with self._opened(digest) as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece

    def delete(self, digest: str) -> None:
        """Removes a blob if it exists."""
        self.path(digest).unlink(missing_ok=True)

    def check(self) -> None:
        """Raise OSError unless blobs can be written."""
        probe = self._temporary / f"probe-{secrets.token_hex(8)}"
        try:
            with BufferedWriter(private_file(probe, "x")) as file:
                file.write(bytes(_PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        finally:
            probe.unlink(missing_ok=True)

    def believe(self, digest: str, state: _State) -> None:
        """Notes that the file in this state has the bytes of the digest."""
        with self._verified_lock:
            self._verified[digest] = state
            self._verified.move_to_end(digest)
            while len(self._verified) > _VERIFIED_MAX:
                self._verified.popitem(last=False)

    def _opened(self, digest: str) -> BufferedReader:
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
        if self._damaged is not None:
            self._damaged()
        raise DamagedBlobError(f"blob {digest} was damaged")

    def remove_temporary(self) -> None:
        """Removes the remains of interrupted uploads; only call it while nobody writes."""
        for leftover in self._temporary.iterdir():
            leftover.unlink(missing_ok=True)


def model_store(root: Path, damaged: Callable[[], None] | None = None) -> DirectoryStore:
    """The store of uploaded models, apart from documents, so that deleting a model never removes a document."""
    return DirectoryStore(root / "models", damaged)


def document_store(root: Path, damaged: Callable[[], None] | None = None) -> DirectoryStore:
    """The store of profiles, documents, executables and tensors."""
    return DirectoryStore(root / "documents", damaged)


# Inode, size, and the times of the last change of bytes and of anything: a file written anew or in place differs.
_State = tuple[int, int, int, int]


def _state(file: int | str) -> _State:
    """The state of a file by its descriptor or path."""
    found = os.stat(file)  # noqa: PTH116
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DirectoryWriter:
    """A blob on its way into a DirectoryStore."""

    def __init__(self, store: DirectoryStore, path: Path) -> None:
        self._store = store
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

    def commit(self) -> str:
        """Make the blob durable and visible; return its digest."""
        digest = self.sha256
        target = self._store.path(digest)
        os.fsync(self._file.fileno())
        folders = (target.parent, target.parent.parent, target.parent.parent.parent)
        made = [above for folder, above in itertools.pairwise(folders) if not folder.exists()]
        private_folder(target.parent)
        self._path.replace(target)
        for folder in (target.parent, *made):  # a new folder is there once the one above is written
            _sync(folder)
        self._store.believe(digest, _state(self._file.fileno()))
        return digest

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)
