"""Parameter tables kept in a folder, by several processes at once, in bounded room (SHAPE-7)."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.tables.stored import FORM, StoredTable, decoded, encoded
from compiler.errors import RequestError, printable

_LIMIT_BYTES: Final = 64 << 20
# What a file takes on a disk at least.
_BLOCK_BYTES: Final = 4096
# Room is made until this part of the limit is left, so that not every command has to.
_KEPT: Final = 0.9
# A file that nobody finished writing for so long is left behind by a process that was killed.
_UNFINISHED_S: Final = 3600.0
_FORM: Final = re.compile(r"T[0-9]+")
_NAME: Final = re.compile(r"[0-9a-f]{64}|(?P<unfinished>\.[0-9a-f]{64}\.[0-9a-f]{8})")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFolder:
    """Tables by key, a file each; whatever is damaged or of another version is not there.

    Writers take turns. The tables that were not read for longest go once all take more than `limit_bytes`.
    """

    path: Path
    limit_bytes: int = _LIMIT_BYTES

    @classmethod
    def of(cls, path: Path | None) -> TableFolder:
        """The folder at a path, or the user's own; its limit is TESSERA_TABLES_BYTES, or 64 MiB.

        The user's own: TESSERA_TABLES, or `tessera/tables` where the user's caches are.
        """
        own = os.environ.get("TESSERA_TABLES")
        if path is None and own:
            path = Path(own)
        if path is None:
            caches = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
            path = Path(caches) / "tessera" / "tables"
        return cls(path=path, limit_bytes=_limit(os.environ.get("TESSERA_TABLES_BYTES") or str(_LIMIT_BYTES)))

    def read(self, key: str) -> StoredTable | None:
        """The table under a key, which was used now."""
        file = self._file(key)
        try:
            found = decoded(key, file.read_bytes())
        except OSError:
            return None
        if found is not None:
            with suppress(OSError):  # a folder that others own is read all the same
                os.utime(file)
        return found

    def write(self, key: str, table: StoredTable) -> None:
        """Keep a table: whole or not at all, and no simple one in the place of a better one."""
        with self._alone():
            known = self.read(key)
            if known is not None and known.kind == "optimised" and table.kind == "simple":
                return
            file = self._file(key)
            file.parent.mkdir(parents=True, exist_ok=True)
            fresh = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
            try:
                fresh.write_bytes(encoded(key, table))
                fresh.replace(file)
            finally:
                fresh.unlink(missing_ok=True)

    def prune(self) -> int:
        """Make room, if all tables take more than the limit: those read longest ago go; how many."""
        with self._alone():
            kept = sorted(self._kept())
            total = sum(size for _, size, _ in kept)
            if total <= self.limit_bytes:
                return 0
            gone = 0
            for _, size, file in kept:
                if total <= self.limit_bytes * _KEPT:
                    break
                file.unlink(missing_ok=True)
                total -= size
                gone += 1
            return gone

    def _kept(self) -> Iterator[tuple[int, int, Path]]:
        """When each table was used last, the bytes it takes, and where it is; what nobody finished goes."""
        for file in self.path.glob("T*/??/*"):
            name = _NAME.fullmatch(file.name)
            if name is None or not _FORM.fullmatch(file.parent.parent.name):
                continue  # the folder is the user's: other files in it are no business of ours
            about = file.lstat()
            if name["unfinished"]:
                if time.time() - about.st_mtime > _UNFINISHED_S:
                    file.unlink(missing_ok=True)
                continue
            yield about.st_mtime_ns, -(-about.st_size // _BLOCK_BYTES) * _BLOCK_BYTES, file

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """The only writer of all processes, for as long; one that is killed holds up nobody."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with (self.path / ".lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise RequestError(
                "the folder for tables cannot be written to",
                code="cache_not_writable",
                actual=printable(f"{self.path}: {error.strerror or type(error).__name__}", 200),
                hint="Name another with --cache, or leave it out with --no-cache",
            ) from None

    def _file(self, key: str) -> Path:
        return self.path / FORM / key[:2] / key


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < len(text) < 19:
        raise RequestError(
            "TESSERA_TABLES_BYTES is no number of bytes",
            code="invalid_request",
            actual=printable(text, 40),
            limit="a whole number of bytes",
        )
    return int(text)
