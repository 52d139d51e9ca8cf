"""Traces as Perfetto reads them: they parse, slices nest, and their sums are the report's (SIM-4)."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import CounterDescriptor, Trace, TracePacket, TrackEvent

from compiler.compile import Compilation, compile_model
from compiler.errors import LimitError
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.profile.load import profile_from_values
from compiler.program.errors import ProgramError
from compiler.program.executable import ChipSegment, Executable
from compiler.program.loops.loops import COUNTER_NAMES
from compiler.program.timing.trace import LINK, NOTE, STARTUP, WAIT, trace_of
from tests.models import Model
from tests.profiles import profile_values

PROFILES = ("edge4", "cluster4x4", "manycore2x64")


@dataclass(frozen=True)
class Slice:
    """A slice as a reader of the trace sees it."""

    begin: int
    end: int
    name: str
    category: str
    arguments: dict[str, Any]


@dataclass
class Read:
    """A trace, read: slices and values by track; tracks by group and name."""

    names: dict[int, tuple[str, str]] = field(default_factory=dict)
    slices: dict[tuple[str, str], list[Slice]] = field(default_factory=lambda: defaultdict(list))
    values: dict[tuple[str, str], list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    units: dict[tuple[str, str], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, data: bytes) -> Read:
        trace = Trace()
        trace.ParseFromString(data)
        assert trace.packet[0].sequence_flags == TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        found, groups, texts = cls(), {}, defaultdict[str, dict[int, str]](dict)
        open_slices: dict[int, list[Any]] = defaultdict(list)
        for packet in trace.packet:
            assert packet.trusted_packet_sequence_id == 1
            for table, entries in packet.interned_data.ListFields():
                for entry in entries:
                    assert entry.iid not in texts[table.name]
                    text = entry.str.decode() if table.name == "debug_annotation_string_values" else entry.name
                    texts[table.name][entry.iid] = text
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                assert track.uuid not in found.names
                if track.HasField("process"):
                    groups[track.uuid] = track.process.process_name
                else:
                    found.names[track.uuid] = groups[track.parent_uuid], track.name
                    if track.HasField("counter"):
                        found.units[found.names[track.uuid]] = track.counter
            if packet.HasField("track_event"):
                found._event(packet, texts, open_slices)
        assert not any(open_slices.values())
        return found

    def _event(self, packet: Any, texts: dict[str, dict[int, str]], open_slices: dict[int, list[Any]]) -> None:
        event = packet.track_event
        name = self.names[event.track_uuid]
        if event.type == TrackEvent.TYPE_COUNTER:
            self.values[name].append((packet.timestamp, event.double_counter_value))
        elif event.type == TrackEvent.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid].append(packet)
        else:
            begun = open_slices[event.track_uuid].pop()
            event = begun.track_event
            (category,) = event.category_iids
            arguments = {}
            for one in event.debug_annotations:
                value = getattr(one, one.WhichOneof("value"))
                if one.HasField("string_value_iid"):
                    value = texts["debug_annotation_string_values"][value]
                arguments[texts["debug_annotation_names"][one.name_iid]] = value
            self.slices[name].append(
                Slice(
                    begin=begun.timestamp,
                    end=packet.timestamp,
                    name=texts["event_names"][event.name_iid],
                    category=texts["event_categories"][category],
                    arguments=arguments,
                )
            )


def network() -> bytes:
    model = Model()
    x = model.relu(model.conv(model.input([1, 3, 32, 32], "x"), 3, 16, name="first"), name="act")
    model.output(model.conv(x, 16, 8, name="second\n<b>"))
    return model.data()


@cache
def compiled(profile: str) -> Compilation:
    return compile_model(network(), builtin_profile(profile), parse_options({"verify": "none", "fusion": "rules"}))


def executable_of(profile: str) -> Executable:
    executable = compiled(profile).executable
    assert executable is not None
    return executable


@cache
def read(profile: str) -> Read:
    return Read.of(b"".join(trace_of(executable_of(profile))))


@pytest.mark.parametrize("profile", PROFILES)
def test_slices_of_an_engine_follow_one_another_and_fill_its_time(profile: str) -> None:
    for (group, _), slices in read(profile).slices.items():
        assert all(one.begin <= one.end for one in slices)
        assert all(one.end <= other.begin for one, other in pairwise(slices))
        if group != "links":
            # waits, start-ups and commands leave nothing out between the segment's begin and the engine's last command
            assert all(one.end == other.begin for one, other in pairwise(slices))


@pytest.mark.parametrize("profile", PROFILES)
def test_sums_by_engine_and_category_are_the_report_s(profile: str) -> None:
    (program,) = compiled(profile).report.programs
    sums: Counter[tuple[str, str]] = Counter()
    durations: Counter[tuple[str, str]] = Counter()
    counts: Counter[str] = Counter()
    for (group, engine), slices in read(profile).slices.items():
        for one in slices if group != "links" else []:
            kind = one.category if one.category in (WAIT, STARTUP) else "command"
            key = engine, one.arguments["for"] if kind == WAIT else kind
            sums[key] += one.arguments["cycles"]
            durations[key] += one.end - one.begin
            if kind == "command":
                counts[one.category] += 1
    assert counts == program.opcodes
    per_ns = builtin_profile(profile).clock_hz / 1e9
    for times in program.engines:
        cycles = dict(times.cycles)
        busy = sum(cycles.pop(part, 0) for part in ("work", "ports", "sharing"))
        cycles.pop("done", None)
        parts = {"command": busy, STARTUP: cycles.pop(STARTUP, 0), **cycles}
        for part, mean in parts.items():
            assert sums[times.engine, part] / times.count == pytest.approx(mean, abs=2)
            # each of the times is rounded by itself
            rounding = 1 + program.commands
            assert durations[times.engine, part] * per_ns == pytest.approx(sums[times.engine, part], abs=rounding)
    moved = sum(
        one.arguments.get("bytes", 0)
        for slices in read(profile).slices.values()
        for one in slices
        if one.category == "load"
    )
    assert moved == program.dram_read_bytes + program.table_read_bytes


@pytest.mark.parametrize("profile", PROFILES)
def test_slices_are_named_by_their_nodes_and_nothing_of_a_model_is_unescaped(profile: str) -> None:
    calls = [one for slices in read(profile).slices.values() for one in slices if one.category == "compute"]
    assert {one.name.partition(" +")[0] for one in calls} == {"first", "act", "second\\n<b>"} - (
        set() if any(one.name == "act" for one in calls) else {"act"}
    )
    for one in calls:
        assert one.arguments["group"].startswith("s0.g")
        assert one.arguments["tensor"]
        assert "\n" not in "".join(str(value) for value in one.arguments.values())
    commands = [
        (one.arguments["command"], *(one.arguments.get(name) for name in COUNTER_NAMES))
        for slices in read(profile).slices.values()
        for one in slices
        if "command" in one.arguments
    ]
    (program,) = compiled(profile).report.programs
    assert len(set(commands)) == len(commands) == program.commands
    assert {number for number, *_ in commands} == set(range(program.statements))


@pytest.mark.parametrize("profile", PROFILES)
def test_engines_are_grouped_by_core_and_cluster_and_counters_by_chip(profile: str) -> None:
    found = read(profile)
    (segment,) = (one for one in executable_of(profile).segments if isinstance(one, ChipSegment))
    tracks = {name for name in found.names.values() if name not in found.units and name[0] != "links"}
    owners = {"gdma": "cluster", "bus": "cluster", "cdma": "cluster"}
    assert tracks == {
        (f"chip 0 {owners.get(queue.engine, 'core')} {queue.number}", queue.engine) for queue in segment.program.queues
    }
    (program,) = compiled(profile).report.programs
    for held in program.held:
        values = found.values["chip 0", f"{held.level} {held.number} holds"]
        assert [value for _, value in values] == [*held.held_bytes, 0]
        assert found.units["chip 0", f"{held.level} {held.number} holds"].unit == CounterDescriptor.UNIT_SIZE_BYTES
    rates = [value for _, value in found.values["chip 0", "DRAM bandwidth"]]
    assert max(rates) <= builtin_profile(profile).dram.bandwidth_bytes_per_s * (1 + 1e-9)
    usage = program.usage
    seconds = usage.slice_cycles / builtin_profile(profile).clock_hz
    assert [rate * seconds for rate in rates[:-1]] == pytest.approx(usage.bytes["dram"], abs=1)


def test_links_and_the_beginning_of_a_segment_are_those_of_a_lone_batch() -> None:
    found, stream = read("edge4"), compiled("edge4").report.stream
    assert stream is not None
    (incoming,) = found.slices["links", "host to chip 0"]
    assert (incoming.begin, incoming.category) == (0, LINK)
    assert incoming.end == pytest.approx(stream.segments_begin_s["s0"] * 1e9, abs=1)
    ends = [one.end for slices in found.slices.values() for one in slices]
    assert max(ends) == pytest.approx(stream.latency_s * 1e9, abs=1)


def test_a_limit_leaves_commands_out_and_says_so() -> None:
    executable = executable_of("edge4")
    found = Read.of(b"".join(trace_of(executable, limit=10)))
    commands = [one for s in found.slices.values() for one in s if "command" in one.arguments]
    assert sorted(one.arguments["command"] for one in commands) == list(range(10))
    (note,) = found.slices["chip 0", NOTE]
    count = compiled("edge4").report.programs[0].commands
    assert note.name == f"{count - 10} of {count} commands of s0 are left out"


def test_a_segment_s_name_is_escaped_like_a_node_s() -> None:
    executable = executable_of("edge4")
    (segment,) = executable.segments
    named = replace(executable, segments=(replace(segment, id="s\n\x1b[31m" + 500 * "x"),))
    (note,) = Read.of(b"".join(trace_of(named, limit=10))).slices["chip 0", NOTE]
    assert note.name.isprintable()
    assert len(note.name) < 200


def test_a_program_that_takes_longer_than_a_trace_can_tell_is_refused_before_the_first_piece() -> None:
    executable = executable_of("edge4")
    slow = profile_from_values(profile_values("edge4") | {"clock_hz": 1e-3})
    dram = msgspec.structs.replace(slow.dram, bandwidth_bytes_per_s=1e-9)
    with pytest.raises(LimitError):
        next(trace_of(replace(executable, profile=msgspec.structs.replace(slow, dram=dram))))


def test_a_unit_that_sums_in_an_unknown_type_is_refused_before_the_first_piece() -> None:
    executable = executable_of("edge4")
    first = next(segment for segment in executable.segments if isinstance(segment, ChipSegment))
    units = tuple(replace(unit, accumulator_dtype="int5") for unit in first.program.units)
    wrong = replace(first, program=replace(first.program, units=units))
    segments = tuple(wrong if segment is first else segment for segment in executable.segments)
    with pytest.raises(ProgramError, match="unknown element type"):
        next(trace_of(replace(executable, segments=segments)))


def test_equal_executables_give_equal_traces_and_one_without_segments_an_empty_one() -> None:
    executable = executable_of("edge4")
    assert b"".join(trace_of(executable)) == b"".join(trace_of(executable))
    empty = Read.of(b"".join(trace_of(replace(executable, segments=(), inputs=(), outputs=()))))
    assert not empty.slices
