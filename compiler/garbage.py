"""When the collector of reference cycles runs: not while many objects that stay are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Many objects: a search takes about a second for so many, and cycles among them hold some 200 MiB.
_MANY: Final = 1 << 20


@contextmanager
def collection_paused() -> Iterator[None]:
    """A context in which no reference cycles are looked for, in the whole process.

    The collector looks at all objects that there are whenever so many new ones have come. Planning and lowering make
    some hundred thousand that stay until they are done: an eighth to a quarter of the time of lowering went into
    finding nothing. What is free of cycles is freed as ever; cycles wait for the end of the context, or for
    `collect_if_many`.
    Contexts that overlap in several threads may end the pause early.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def collect_if_many() -> None:
    """Look for reference cycles, paused or not, if many more objects have come than went since the last search.

    How a group is lowered is objects that know each other. Where thousands of groups are tried they take gigabytes.
    """
    if gc.get_count()[0] >= _MANY:
        gc.collect()
