"""Damages stored blobs: files of a directory, or objects of a bucket."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import obstore

from tests.s3 import S3Server

Change = Callable[[bytes], bytes]


class Blobs(Protocol):
    """What can be damaged in a store."""

    def damage(self, folder: str, dice: random.Random, change: Change) -> bool:
        """Changes one blob of `models` or `documents`; False if there is none."""


@dataclass(frozen=True, slots=True)
class FileBlobs:
    """Blobs below a directory."""

    root: Path

    def damage(self, folder: str, dice: random.Random, change: Change) -> bool:
        found = sorted(path for path in self.root.glob(f"{folder}/??/??/*") if path.is_file())
        if not found:
            return False
        with suppress(FileNotFoundError), dice.choice(found).open("r+b") as file:  # may be removed meanwhile
            changed = change(file.read() or b"\0")
            file.seek(0)
            file.write(changed)
            file.truncate()
        return True


@dataclass(frozen=True, slots=True)
class BucketBlobs:
    """Blobs below a prefix of a bucket, with the local copies of the services that use it."""

    server: S3Server
    prefix: str
    copies: Path

    def damage(self, folder: str, dice: random.Random, change: Change) -> bool:
        bucket = self.server.bucket(self.prefix)
        found = [key for key in self.server.keys(self.prefix) if key.startswith(f"{folder}/")]
        if not found:
            return False
        key = dice.choice(found)
        with suppress(FileNotFoundError):
            obstore.put(bucket, key, change(bytes(obstore.get(bucket, key).bytes()) or b"\0"))
        for copy in self.copies.glob(f"{folder}/??/??/{key.partition('/')[2]}"):
            copy.unlink(missing_ok=True)  # the next reader fetches what the bucket has
        return True
