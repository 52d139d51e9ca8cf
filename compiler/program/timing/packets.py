"""Tracks, slices and counters as packets of a Perfetto trace (SIM-4).

A trace is a list of packets, and lists written one after another are one trace, so it is written piece by piece. Names,
categories and texts are sent once and then named by number. Times are whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    CounterDescriptor,
    Trace,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)

# All packets are of one sequence, whose numbers of names hold throughout.
_SEQUENCE: Final = 1

Argument = int | float | str


class TraceWriter:
    """Collects packets; `take` gives the bytes of those since it was asked last."""

    def __init__(self) -> None:
        self.count = 0
        self._trace = Trace()
        self._tracks = 0
        self._numbers: dict[str, dict[str, int]] = {}
        first = self._packet()
        first.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        first.first_packet_on_sequence = True

    def take(self) -> bytes:
        """The packets so far, which are then forgotten."""
        data: bytes = self._trace.SerializeToString()
        self._trace.Clear()
        return data

    def process(self, name: str, rank: int) -> int:
        """A group of tracks, shown in the order of ranks; its number."""
        track = self._track(name, None)
        track.process.pid = rank + 1
        track.process.process_name = name
        track.child_ordering = TrackDescriptor.EXPLICIT
        return int(track.uuid)

    def track(self, name: str, parent: int, rank: int) -> int:
        """A track of slices in a group; its number."""
        track = self._track(name, parent)
        track.sibling_order_rank = rank
        return int(track.uuid)

    def counter(self, name: str, parent: int, rank: int, *, unit: str | None = None) -> int:
        """A track of values in a group, in bytes unless a unit is named; its number."""
        track = self._track(name, parent)
        track.sibling_order_rank = rank
        if unit is None:
            track.counter.unit = CounterDescriptor.UNIT_SIZE_BYTES
        else:
            track.counter.unit_name = unit
        return int(track.uuid)

    def slice(
        self, track: int, begin_ns: int, end_ns: int, name: str, category: str, arguments: Mapping[str, Argument]
    ) -> None:
        """A slice of a track; slices of one track come in order and do not overlap."""
        # numbers first: they may be packets of their own
        name_number, category_number = self._number("event_names", name), self._number("event_categories", category)
        texts = "debug_annotation_string_values"
        given = [
            (
                self._number("debug_annotation_names", key),
                self._number(texts, value) if isinstance(value, str) else value,
            )
            for key, value in arguments.items()
        ]
        event = self._event(TrackEvent.TYPE_SLICE_BEGIN, track, begin_ns)
        event.name_iid = name_number
        event.category_iids.append(category_number)
        for (number, value), original in zip(given, arguments.values(), strict=True):
            annotation = event.debug_annotations.add()
            annotation.name_iid = number
            if isinstance(original, str):
                annotation.string_value_iid = value
            elif isinstance(original, int):
                annotation.int_value = value
            else:
                annotation.double_value = value
        self._event(TrackEvent.TYPE_SLICE_END, track, end_ns)

    def value(self, track: int, time_ns: int, value: float) -> None:
        """A counter's value from a time on."""
        self._event(TrackEvent.TYPE_COUNTER, track, time_ns).double_counter_value = value

    def _packet(self) -> Any:
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        self.count += 1
        return packet

    def _track(self, name: str, parent: int | None) -> Any:
        self._tracks += 1
        track = self._packet().track_descriptor
        track.uuid, track.name = self._tracks, name
        if parent is not None:
            track.parent_uuid = parent
        return track

    def _event(self, kind: int, track: int, time_ns: int) -> Any:
        packet = self._packet()
        packet.timestamp = time_ns
        packet.sequence_flags = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        return packet.track_event

    def _number(self, table: str, text: str) -> int:
        """The number of a text in a table of names; a new one is sent first."""
        known = self._numbers.setdefault(table, {})
        number = known.get(text)
        if number is None:
            number = known[text] = len(known) + 1
            packet = self._packet()
            packet.sequence_flags = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            entry = getattr(packet.interned_data, table).add()
            entry.iid = number
            if table == "debug_annotation_string_values":
                entry.str = text.encode()
            else:
                entry.name = text
        return number
