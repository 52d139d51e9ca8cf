"""The bytes above a plan's floor in words: the largest kinds, and the profile fields that would have to grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from compiler.errors import printable
from compiler.plan import GapDoc, GapEntryDoc

# A plan nearer to its floor than this says nothing of the gap.
GAP_WORTH_WORDS: Final = 1.05
_KINDS_SHOWN: Final = 3
_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "intermediates": "intermediates that leave a group and come back",
        "weights": "weights read again",
        "inputs": "inputs read again by one group",
        "shared": "inputs and weights that several read",
        "unneeded": "positions that no output needs",
    }
)


def gap_lines(
    gap: GapDoc, dram_bytes: int, floor_bytes: int, amount: Callable[[int], str], indent: str = "  "
) -> Iterator[str]:
    """A line on the whole and one for each of the three largest kinds; nothing for a plan near its floor.

    `amount` puts bytes into text.
    """
    if not floor_bytes or dram_bytes <= GAP_WORTH_WORDS * floor_bytes:
        return
    ratio = f"which is {dram_bytes / floor_bytes:.2f} × the floor"
    yield f"Above the floor: {amount(gap.above_floor_bytes)} of {amount(dram_bytes)} in all, {ratio}."
    kinds = sorted(((size, kind) for kind, size in gap.kinds.items() if size), reverse=True)
    for size, kind in kinds[:_KINDS_SHOWN]:
        entries = [entry for entry in gap.entries if entry.kind == kind]
        share = f"{100 * size / gap.above_floor_bytes:.0f} %"
        first = f"{', the largest' if len(entries) > 1 else ''}: {_named(entries[0])}" if entries else ""
        yield f"{indent}{_WORDS.get(kind, kind)}: {amount(size)} ({share}){first}; {_to_grow(entries, amount)}."
    rest = sum(size for size, _ in kinds[_KINDS_SHOWN:])
    if rest:
        yield f"{indent}other kinds: {amount(rest)}."


def entry_line(entry: GapEntryDoc, amount: Callable[[int], str]) -> str:
    """One entry: what, how many bytes, why, and what would have to grow."""
    what = _WORDS.get(entry.kind, entry.kind)
    size = amount(entry.read_bytes + entry.written_bytes)
    return f"{_named(entry)}: {size} ({what}): {printable(entry.why, 300)}; {_to_grow([entry], amount)}"


def _named(entry: GapEntryDoc) -> str:
    times = f" ({entry.times} times)" if entry.times > 1 else ""
    return f"{printable(entry.name, 60)}{times}"


def _to_grow(entries: Iterable[GapEntryDoc], amount: Callable[[int], str]) -> str:
    """The fields that would have to grow, with the bytes that each would spare; those of no field last."""
    spared: dict[tuple[str, ...], int] = {}
    for entry in entries:
        spared[entry.fields] = spared.get(entry.fields, 0) + entry.read_bytes + entry.written_bytes
    ranked = sorted(spared.items(), key=lambda item: (not item[0], -item[1], item[0]))
    if not any(fields for fields, _ in ranked):
        return "no larger memory is known to spare it"
    parts = []
    for fields, size in ranked:
        of = f" (for {amount(size)})" if len(ranked) > 1 else ""
        parts.append(f"{' and '.join(fields)}{of}" if fields else f"none is known{of}")
    return f"would have to grow: {', '.join(parts)}"
