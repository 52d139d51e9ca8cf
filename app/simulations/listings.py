"""Listings of executables for the service and the command line (PROG-3)."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from itertools import chain, islice
from threading import BoundedSemaphore
from typing import Final

from app.errors import UnavailableError
from app.http import closing
from app.store import BlobStore
from compiler.errors import InternalError, RequestError, did_you_mean, printable
from compiler.program.executable import ChipSegment, Executable, HostSegment, read
from compiler.program.listing import ListingOptions, listing
from compiler.version import COMPILER_VERSION

# The most statements that one request may ask for at each end of a segment.
MAX_STATEMENTS: Final = 100_000
# The memory limit for reading one executable for its listing.
_LIMIT_BYTES: Final = 1 << 30
# The number of listings made at one time.
AT_ONCE: Final = 4
_LINES_PER_PIECE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The selection: one group or all, the first and last statements of a segment (None: all)."""

    group: str | None = None
    head: int | None = None
    tail: int | None = None
    summary: bool = False


# The default selection.
SHORT: Final = Wanted(head=1000, tail=100)


def tag(digest: str, wanted: Wanted) -> str:
    """A digest of everything that a listing depends on."""
    return hashlib.sha256(repr((digest, astuple(wanted), COMPILER_VERSION)).encode()).hexdigest()


def lines(executable: Executable, wanted: Wanted) -> Iterator[str]:
    """The listing of all segments, or of the segment with the group; raises RequestError for an unknown group."""
    options = ListingOptions(
        groups=None if wanted.group is None else (wanted.group,),
        head=wanted.head,
        tail=wanted.tail,
        summary=wanted.summary,
    )
    parts: list[Iterator[str]] = []
    known: dict[str, None] = {}
    for segment in executable.segments:
        if isinstance(segment, HostSegment):
            if wanted.group is None:
                parts.append(_host(segment))
            continue
        groups = dict.fromkeys(step.group for step in segment.program.steps)
        known |= groups
        if wanted.group is None or wanted.group in groups:
            parts.append(_chip(executable, segment, options))
    if wanted.group is not None and wanted.group not in known:
        raise RequestError(
            f"the executable has no group {printable(wanted.group, 60)!r}",
            code="unknown_group",
            stage="listing",
            actual=printable(wanted.group, 60),
            limit=", ".join(printable(name, 60) for name in list(known)[:20]) or "no groups",
            hint=did_you_mean(wanted.group, known) or "Give the id of a group of the plan's table, such as s0.g0",
        )
    return chain.from_iterable(parts)


def pieces(store: BlobStore, digest: str, wanted: Wanted, makers: BoundedSemaphore) -> Generator[bytes, None, None]:
    """The text of an executable in a store, piece by piece.

    The file is read before the first piece is requested, so that errors in the request are raised at once. `makers`
    limits the number of listings made at one time, each of which holds a program; UnavailableError if all places are
    taken.
    """
    with ExitStack() as stack:
        if not makers.acquire(blocking=False):
            raise UnavailableError(
                "too many listings are made at this time", code="busy", limit=AT_ONCE, hint="Try again in a few seconds"
            )
        stack.callback(makers.release)
        try:
            data = stack.enter_context(store.mapped(digest))
        except FileNotFoundError:
            raise InternalError("an executable is missing from the store", stage="store", actual=digest) from None
        found = lines(read(data, limit_bytes=_LIMIT_BYTES, check_weights=False), wanted)
        return closing(_grouped(found), stack.pop_all())


def _grouped(found: Iterator[str]) -> Iterator[bytes]:
    while piece := list(islice(found, _LINES_PER_PIECE)):
        yield ("\n".join(piece) + "\n").encode()


def _chip(executable: Executable, segment: ChipSegment, options: ListingOptions) -> Iterator[str]:
    yield f"segment {printable(segment.id, 60)} on chip {segment.chip}"
    yield from listing(segment.program, profile=executable.profile, options=options)
    yield ""


def _host(segment: HostSegment) -> Iterator[str]:
    yield f"segment {printable(segment.id, 60)} on the host: {len(segment.nodes)} nodes"
    for node in segment.nodes:
        inputs, outputs = (", ".join(printable(name, 60) for name in names) for names in (node.inputs, node.outputs))
        yield f"  {printable(node.op_type, 60)} {printable(node.name, 120)}: {inputs or 'nothing'} -> {outputs}"
    yield ""
