"""When the collector of reference cycles runs: not while many objects that stay are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """A context in which no reference cycles are looked for, in the whole process.

    The collector looks at all objects that there are whenever so many new ones have come. Lowering makes some hundred
    thousand tuples that stay until it is done, and next to no cycles: an eighth to a quarter of its time went into
    finding nothing. What is free of cycles is freed as ever. Contexts that overlap in several threads may end the
    pause early.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
