"""What a job and its worker must agree in: the version of the compiler, and the store (API-5)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Self, get_args

from app.settings import Settings
from app.stores import store_id
from compiler.version import COMPILER_VERSION

QueueKind = Literal["short", "long"]
QUEUE_KINDS: tuple[QueueKind, ...] = get_args(QueueKind)
# Queues of versions before 0.12 were named by their kind alone, and their jobs did not say what worker they need.
UNNAMED = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A version of the compiler and the id of a store."""

    version: str
    store: str

    @classmethod
    def present(cls, settings: Settings) -> Self:
        """That of this process; the store gets an id if it has none."""
        return cls(version=COMPILER_VERSION, store=store_id(settings))

    @property
    def label(self) -> str:
        """The part of the names of its queues that says what the workers are."""
        return f"{self.version}@{self.store}"

    def queues(self) -> tuple[str, ...]:
        """The names of the queues that workers of this identity may serve."""
        return tuple(queue_name(kind, self) for kind in QUEUE_KINDS)

    def labels_beside(self, own: Identity) -> tuple[str, str]:
        """The labels of a figure: the version, and whether the store is the `same` or an `other`."""
        return self.version, "same" if self.store == own.store else "other"

    @property
    def is_known(self) -> bool:
        """Whether jobs of this identity say what worker they need."""
        return self.version != UNNAMED

    def is_newer(self, other: Identity) -> bool:
        """Whether the version is a later one; an unknown version is older than any."""
        return _parts(self.version) > _parts(other.version)


def queue_name(kind: QueueKind, identity: Identity) -> str:
    """The name of a queue, which is also that of Celery's list; the inverse of `parsed_queue`."""
    return f"{kind}@{identity.label}"


def parsed_queue(name: str) -> tuple[QueueKind, Identity]:
    """The kind and identity in the name of a queue."""
    kind, _, rest = name.partition("@")
    version, _, store = rest.partition("@")
    found = next((known for known in QUEUE_KINDS if known == kind), QUEUE_KINDS[-1])
    return found, Identity(version=version or UNNAMED, store=store)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
