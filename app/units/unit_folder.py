"""Shape units in a local folder, a file per library: for compilations without a service (SHAPE-1)."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from compiler.errors import RequestError
from compiler.shapes.unit_bundle import MAX_BYTES, decode_bundle, encode_bundle
from compiler.unit_key import library_id_of

_NAME: Final = re.compile(r"(?P<id>[0-9a-f]{64})\.units")


@dataclass(slots=True)
class UnitFolder:
    """The port `StoredUnits` over a folder; the folder is its user's own, as programs are that he runs.

    Files that are no bundles, or of other versions, count as missing.
    """

    path: Path
    _read: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path | None) -> UnitFolder | None:
        """The folder at a path, or the one that TESSERA_UNITS names; None without either."""
        own = os.environ.get("TESSERA_UNITS")
        if path is None and own:
            path = Path(own)
        return None if path is None else cls(path)

    def __str__(self) -> str:
        """The path."""
        return str(self.path)

    def bundle(self, library_id: str) -> bytes | None:
        """The bytes of a library's file, None if there is none."""
        try:
            with (self.path / f"{library_id}.units").open("rb") as file:
                return file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None

    def get_many(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """The values of libraries in the folder, and of the units of those that were asked for."""
        for key in keys:
            if key.startswith("library:") and key not in self._read:
                self._read |= self._bundle(key)
        return {key: self._read[key] for key in keys if key in self._read}

    def put_many(self, library: str, values: Mapping[str, bytes], labels: Mapping[str, str]) -> None:  # noqa: ARG002
        """Write a library, whole or not at all."""
        self._read |= values
        self.write(library, encode_bundle(library, values))

    def drop_damaged(self, keys: Sequence[str]) -> None:
        """Forget what was read."""
        for key in keys:
            self._read.pop(key, None)

    def used(self, libraries: Mapping[str, int]) -> None:
        """Nobody asks."""

    @contextmanager
    def building(self, library: str) -> Iterator[bool]:  # noqa: ARG002
        """At once: two commands may build the same, and write the same."""
        yield True

    def libraries(self) -> Iterator[tuple[str, bytes]]:
        """The bundles of the folder by the ids of their libraries, one at a time.

        Raises OSError where there is no such folder.
        """
        for match in [_NAME.fullmatch(one.name) for one in sorted(self.path.iterdir())]:
            data = None if match is None else self.bundle(match["id"])
            if match is not None and data is not None:
                yield match["id"], data

    def write(self, library: str, bundle: bytes) -> None:
        """Write a bundle under the key of its library."""
        self.path.mkdir(parents=True, exist_ok=True)
        file = self._file(library)
        fresh = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
        try:
            fresh.write_bytes(bundle)
            fresh.replace(file)
        finally:
            fresh.unlink(missing_ok=True)

    def _bundle(self, library: str) -> dict[str, bytes]:
        try:
            key, values = decode_bundle(self.bundle(library_id_of(library)) or b"")
        except (OSError, RequestError):
            return {}
        return values if key == library else {}

    def _file(self, library: str) -> Path:
        return self.path / f"{library_id_of(library)}.units"
