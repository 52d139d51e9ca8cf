"""DRAM traffic above a plan's minimum in words: the largest kinds, and the memories that would have to grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from compiler.amounts import bytes_text, share_text
from compiler.errors import printable
from compiler.report.plan import GapDoc, GapEntryDoc

# A plan nearer to its floor than this says nothing of the gap.
GAP_WORTH_WORDS: Final = 1.05
_KINDS_SHOWN: Final = 3
_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "intermediates": "intermediates stored and loaded again",
        "weights": "weights loaded more than once",
        "inputs": "inputs loaded more than once by one group",
        "shared": "inputs and weights loaded by several groups",
        "unneeded": "positions that no output needs",
    }
)


def gap_lines(gap: GapDoc, dram_bytes: int, floor_bytes: int) -> Iterator[str]:
    """A line for each of the three largest kinds of traffic above the minimum; nothing for a plan near it."""
    if not floor_bytes or dram_bytes <= GAP_WORTH_WORDS * floor_bytes:
        return
    kinds = sorted(((size, kind) for kind, size in gap.kinds.items() if size), reverse=True)
    for size, kind in kinds[:_KINDS_SHOWN]:
        entries = [entry for entry in gap.entries if entry.kind == kind]
        share = share_text(size, gap.above_floor_bytes)
        first = f", {'most ' if len(entries) > 1 else ''}for {_named(entries[0])}" if entries else ""
        yield f"{bytes_text(size)} ({share}): {_WORDS.get(kind, kind)}{first}; {remedy(entries)}"
    rest = sum(size for size, _ in kinds[_KINDS_SHOWN:])
    if rest:
        yield f"{bytes_text(rest)}: other kinds"


def entry_line(entry: GapEntryDoc) -> str:
    """One entry: what, how many bytes, why, and which memory would help."""
    what = _WORDS.get(entry.kind, entry.kind)
    size = bytes_text(entry.read_bytes + entry.written_bytes)
    return f"{_named(entry)}: {size} ({what}), because {printable(entry.why, 300)}; {remedy([entry])}"


def _named(entry: GapEntryDoc) -> str:
    what = "node" if entry.kind == "weights" else "tensor"
    times = f" (loaded {entry.times} times)" if entry.times > 1 else ""
    return f"{what} {printable(entry.name, 60)}{times}"


def remedy(entries: Iterable[GapEntryDoc]) -> str:
    """Which fields of the profile would have to grow, with the traffic that each could save."""
    saved: dict[tuple[str, ...], int] = {}
    for entry in entries:
        saved[entry.fields] = saved.get(entry.fields, 0) + entry.read_bytes + entry.written_bytes
    none = saved.pop((), 0)
    if not saved:
        return "no larger memory is known to help"
    ranked = sorted(saved.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"more {_memories(fields)} could save up to {bytes_text(size)}" for fields, size in ranked]
    return "; ".join([*parts, *((f"for {bytes_text(none)} no larger memory is known to help",) if none else ())])


def _memories(fields: tuple[str, ...]) -> str:
    """The memories by name, each with its field of the profile: NRAM (nram.capacity_bytes)."""
    return " and ".join(f"{field.partition('.')[0].upper()} ({field})" for field in fields)
