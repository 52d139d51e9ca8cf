"""From the gap to its part of the plan."""

from __future__ import annotations

from compiler.fusion.gap import Gap
from compiler.report import plan as doc


def gap_doc(gap: Gap) -> doc.GapDoc:
    """The bytes above the floor as the plan has them."""
    return doc.GapDoc(
        above_floor_bytes=gap.above_floor_bytes,
        kinds={kind.value: size for kind, size in gap.kinds.items()},
        entries=tuple(
            doc.GapEntryDoc(
                kind=entry.kind.value,
                name=entry.name,
                groups=entry.groups,
                read_bytes=entry.read_bytes,
                written_bytes=entry.written_bytes,
                times=entry.times,
                fields=entry.fields,
                why=entry.why,
            )
            for entry in gap.entries
        ),
    )
