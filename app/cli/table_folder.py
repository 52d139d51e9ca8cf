"""Keeps parameter tables in a folder of limited size, shared by several processes (SHAPE-7)."""

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

from app.tables.table_encoding import FORM, StoredTable, decoded, encoded
from compiler.errors import RequestError, printable

_LIMIT_BYTES: Final = 64 << 20
# The least size of a file on disk.
_BLOCK_BYTES: Final = 4096
# Pruning stops at this part of the limit, so that not every command has to prune.
_KEPT: Final = 0.9
# An unfinished file of this age was left behind by a killed process.
_UNFINISHED_S: Final = 3600.0
_FORM: Final = re.compile(r"T[0-9]+")
_NAME: Final = re.compile(r"[0-9a-f]{64}|(?P<unfinished>\.[0-9a-f]{64}\.[0-9a-f]{8})")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFolder:
    """Tables by key, one file each; damaged files and those of other versions count as missing.

    Writers take turns. If all tables together exceed `limit_bytes`, the least recently read are removed.
    """

    path: Path
    limit_bytes: int = _LIMIT_BYTES

    @classmethod
    def of(cls, path: Path | None) -> TableFolder:
        """The folder at a path, or the user's own; its limit is TESSERA_TABLES_BYTES, or 64 MiB.

        The user's own folder is TESSERA_TABLES, or `tessera/tables` in the user's cache folder.
        """
        own = os.environ.get("TESSERA_TABLES")
        if path is None and own:
            path = Path(own)
        if path is None:
            caches = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
            path = Path(caches) / "tessera" / "tables"
        return cls(path=path, limit_bytes=_limit(os.environ.get("TESSERA_TABLES_BYTES") or str(_LIMIT_BYTES)))

    def read(self, key: str) -> StoredTable | None:
        """Reads the table under a key and marks it as used now."""
        file = self._file(key)
        try:
            found = decoded(key, file.read_bytes())
        except OSError:
            return None
        if found is not None:
            with suppress(OSError):  # a folder of another owner can still be read
                os.utime(file)
        return found

    def write(self, key: str, table: StoredTable) -> None:
        """Writes a table, whole or not at all; a simple one never replaces an optimised one."""
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
        """Removes the least recently read tables if all together exceed the limit; returns their number."""
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
        """The last use, size in bytes and path of each table; removes unfinished files."""
        for file in self.path.glob("T*/??/*"):
            name = _NAME.fullmatch(file.name)
            if name is None or not _FORM.fullmatch(file.parent.parent.name):
                continue  # the folder is the user's: it may hold other files, which stay
            about = file.lstat()
            if name["unfinished"]:
                if time.time() - about.st_mtime > _UNFINISHED_S:
                    file.unlink(missing_ok=True)
                continue
            yield about.st_mtime_ns, -(-about.st_size // _BLOCK_BYTES) * _BLOCK_BYTES, file

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Locks out all other writers meanwhile; the lock of a killed process ends with it."""
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
            hint="Such as TESSERA_TABLES_BYTES=1073741824, or unset it",
        )
    return int(text)
