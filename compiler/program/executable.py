"""The executable: one file that carries a compiled model to another machine, and the reader of it (PROG-3).

docs/executable.md describes the bytes. Reading imports nothing of what compiles: no import of models, no search.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from mmap import mmap
from typing import BinaryIO, Final, Literal, NoReturn

from compiler.errors import InternalError, RequestError
from compiler.ir.graph import HostNode
from compiler.profile.load import profile_digest, profile_from_values, profile_json
from compiler.profile.schema import Profile
from compiler.program.encoding import manifest as m
from compiler.program.encoding.blob import Blob
from compiler.program.encoding.check import check_program, check_shapes, check_tensors
from compiler.program.encoding.container import (
    ALIGNMENT,
    NO_SEGMENT,
    Buffer,
    Container,
    Section,
    read_container,
    write_container,
)
from compiler.program.encoding.cursor import Budget, Cursor
from compiler.program.encoding.records import ProgramRecord, canonical, from_canonical, program_parts, program_record
from compiler.program.encoding.sizes import array_bytes, stream_of
from compiler.program.encoding.stream import decode_entries, decode_stream, encode_entries, encode_stream
from compiler.program.errors import ExecutableError
from compiler.program.program import Program, Role

# What reading may take in memory beside the file, if the caller states nothing.
DEFAULT_LIMIT_BYTES: Final = 4 << 30
# Versions of operator sets lie far below.
_MAX_OPSET: Final = 1 << 31
# The sections whose bytes stand for many more in memory.
_STREAMS: Final = ("tables", "commands")


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """An input or output of the model: its ONNX name, its tensor, element type and shape (None: the run tells)."""

    name: str
    tensor: str
    dtype: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weight:
    """A weight as it lies in its region of the DRAM: the region's number in its program, and all its bytes."""

    region: int
    data: Blob


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostConstant:
    """A constant that the host reads, or that is an output of the model.

    `form`: `elements` (row-major, little-endian) or `tensor` (a TensorProto message, for types only the host knows).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    form: Literal["elements", "tensor"]
    data: Blob


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChipSegment:
    """A segment that the accelerator runs: on which chip, its program, its weights (none where values are absent)."""

    id: str
    chip: int
    program: Program
    weights: tuple[Weight, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSegment:
    """A segment that the host runs: its nodes in order, the tensors it reads from outside, and those it hands out."""

    id: str
    nodes: tuple[HostNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Executable:
    """A compiled model: segments in the order in which they run, and what goes in and comes out.

    Digests are SHA-256 in hexadecimal. `has_values` is False for planning what-ifs (option `precision`), whose weights
    nobody has: such an executable can be timed, not run.
    """

    compiler_version: str
    profile: Profile
    model_name: str
    model_digest: str
    options_digest: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    segments: tuple[ChipSegment | HostSegment, ...]
    constants: tuple[HostConstant, ...] = ()
    has_values: bool = True


def write(executable: Executable) -> Iterator[Buffer]:
    """The file's bytes, piece by piece; weights are never in memory as a whole.

    Raises InternalError if a program's numbers name things that are not there, or weights are missing; LimitError if
    a program is larger than a reader accepts.
    """
    return write_container(_sections(executable))


def write_to(executable: Executable, file: BinaryIO) -> int:
    """Write the file; the number of bytes written."""
    total = 0
    for piece in write(executable):
        total += memoryview(piece).nbytes
        file.write(piece)
    return total


def read(
    buffer: bytes | bytearray | memoryview | mmap,
    *,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    check_weights: bool = True,
) -> Executable:
    """The executable in a buffer (bytes or a memory map); weights are views of it, not copies.

    `limit_bytes` bounds the memory taken beside the buffer (see Budget for the bound below it). With `check_weights`
    False the digest of weights is not computed, so their pages are not touched before they are used.
    Raises ExecutableError naming section and byte, or LimitError.
    """
    data = memoryview(buffer).cast("B")
    container = read_container(data, unchecked=frozenset() if check_weights else frozenset({"weights"}))
    manifest = from_canonical(container.section("manifest"), m.Manifest, "manifest")
    if manifest.schema != m.SCHEMA:
        raise ExecutableError(
            "the manifest has a version that this reader does not know",
            section="manifest",
            offset=0,
            code="executable_version",
            actual=manifest.schema,
            limit=m.SCHEMA,
            hint="Compile the model again, or read it with the version of Tessera that made it",
        )
    sections = _sections_of(manifest)
    if sections != set(container.entries):
        odd = sorted(sections ^ set(container.entries))[0]
        raise ExecutableError("sections and manifest do not agree", section=odd[0], offset=0, actual=odd[1])
    constants = container.section("constants")
    streams = sum(entry.length for (name, _), entry in container.entries.items() if name in _STREAMS)
    budget = Budget(streams, limit_bytes)
    return Executable(
        compiler_version=manifest.compiler_version,
        profile=_read_profile(container, manifest),
        model_name=manifest.model_name,
        model_digest=manifest.model_digest,
        options_digest=manifest.options_digest,
        inputs=tuple(Value(**m.values_of(value)) for value in manifest.inputs),
        outputs=tuple(Value(**m.values_of(value)) for value in manifest.outputs),
        segments=tuple(
            _read_chip(container, number, one, manifest.has_values, budget)
            if isinstance(one, m.ChipRecord)
            else _read_host(container, number, one)
            for number, one in enumerate(manifest.segments)
        ),
        constants=tuple(
            HostConstant(
                name=one.name,
                dtype=one.dtype,
                shape=one.shape,
                form=one.form,
                data=_blob(constants, one.data, "constants"),
            )
            for one in manifest.constants
        ),
        has_values=manifest.has_values,
    )


def check_profile(executable: Executable, profile: Profile) -> None:
    """Raises RequestError unless the executable was built for this profile (SHAPE-10)."""
    if profile_digest(executable.profile) != profile_digest(profile):
        raise RequestError(
            "the executable was built for another profile",
            code="wrong_profile",
            stage="executable",
            actual=f"{executable.profile.name} {profile_digest(executable.profile)[:12]}",
            limit=f"{profile.name} {profile_digest(profile)[:12]}",
            hint="Compile the model for this profile",
        )


def check_flow(executable: Executable) -> None:
    """Raises ExecutableError unless tensors have possible shapes, and are made before they are read."""

    def refuse(message: str, *, actual: object, limit: object) -> NoReturn:
        raise ExecutableError(message, section="manifest", offset=0, actual=actual, limit=limit)

    inputs, outputs, constants = executable.inputs, executable.outputs, executable.constants
    check_shapes([*(one.shape for one in (*inputs, *outputs)), *(one.shape for one in constants)], refuse)
    given = (*(one.tensor for one in inputs), *(one.name for one in constants))
    steps = []
    for segment in executable.segments:
        if isinstance(segment, HostSegment):
            made = {name for node in segment.nodes for name in node.outputs}
            steps.append((segment.inputs, tuple(name for name in segment.outputs if name in made)))
        else:
            regions = segment.program.regions
            read, wrote = (tuple(one.name for one in regions if one.role is role) for role in (Role.INPUT, Role.OUTPUT))
            steps.append((read, wrote))
    check_tensors(given, steps, (one.tensor for one in outputs), refuse)


def _sections(executable: Executable) -> Iterator[Section]:
    read_bytes = taken_bytes = 0
    packed = [_Packed() for _ in range(len(executable.segments) + 1)]
    manifest = _manifest(executable, packed)
    yield Section(name="manifest", segment=NO_SEGMENT, pieces=(canonical(manifest),))
    yield Section(name="profile", segment=NO_SEGMENT, pieces=(profile_json(executable.profile),))
    yield Section(name="constants", segment=NO_SEGMENT, pieces=packed[-1].pieces())
    for number, segment in enumerate(executable.segments):
        if isinstance(segment, HostSegment):
            yield Section(name="nodes", segment=number, pieces=packed[number].pieces())
            continue
        program = segment.program
        entries, _ = encode_entries([table.entries for table in program.tables])
        stream = encode_stream(stream_of(program), len(program.queues))
        # nothing is written that the reader would refuse as a bomb
        read_bytes += len(entries) + len(stream.data)
        taken_bytes += array_bytes(program)
        Budget(read_bytes, DEFAULT_LIMIT_BYTES).take(taken_bytes, f"segment {segment.id}")
        yield Section(name="program", segment=number, pieces=(canonical(program_record(program)),))
        yield Section(name="tables", segment=number, pieces=(entries,))
        yield Section(name="commands", segment=number, pieces=(stream.data,))
        yield Section(name="weights", segment=number, pieces=packed[number].pieces())


class _Packed:
    """Blobs in one section, each at a multiple of 64 bytes; equal small ones once."""

    def __init__(self) -> None:
        self._blobs: list[Blob] = []
        self._known: dict[bytes, m.Piece] = {}
        self._size = 0

    def add(self, blob: Blob) -> m.Piece:
        """Where the blob will lie."""
        piece = m.Piece(offset=self._size, stored_bytes=blob.stored_bytes, size_bytes=blob.size_bytes)
        self._blobs.append(blob)
        self._size += blob.stored_bytes + -blob.stored_bytes % ALIGNMENT
        return piece

    def add_bytes(self, data: bytes) -> m.Piece:
        """Where these bytes will lie: where they do already, if they were added before."""
        if data not in self._known:
            self._known[data] = self.add(Blob.of(data))
        return self._known[data]

    def pieces(self) -> Iterator[Buffer]:
        """The section's bytes."""
        for blob in self._blobs:
            yield from blob.pieces()
            yield bytes(-blob.stored_bytes % ALIGNMENT)


def _manifest(executable: Executable, packed: list[_Packed]) -> m.Manifest:
    segments: list[m.ChipRecord | m.HostRecord] = []
    for number, segment in enumerate(executable.segments):
        if isinstance(segment, HostSegment):
            segments.append(_host_record(segment, packed[number]))
            continue
        check_program(segment.program, _internal)
        _check_weights(segment, executable.has_values, _internal)
        weights = tuple(m.WeightRecord(region=w.region, data=packed[number].add(w.data)) for w in segment.weights)
        segments.append(m.ChipRecord(id=segment.id, chip=segment.chip, weights=weights))
    return m.Manifest(
        schema=m.SCHEMA,
        compiler_version=executable.compiler_version,
        profile_digest=profile_digest(executable.profile),
        model_name=executable.model_name,
        model_digest=executable.model_digest,
        options_digest=executable.options_digest,
        inputs=tuple(m.record_of(m.ValueRecord, value) for value in executable.inputs),
        outputs=tuple(m.record_of(m.ValueRecord, value) for value in executable.outputs),
        segments=tuple(segments),
        constants=tuple(
            m.record_of(m.ConstantRecord, one, data=packed[-1].add(one.data)) for one in executable.constants
        ),
        has_values=executable.has_values,
    )


def _host_record(segment: HostSegment, packed: _Packed) -> m.HostRecord:
    nodes = tuple(
        m.record_of(
            m.NodeRecord,
            node,
            node=packed.add_bytes(node.node),
            functions=tuple(packed.add_bytes(function) for function in node.functions),
        )
        for node in segment.nodes
    )
    return m.HostRecord(id=segment.id, nodes=nodes, inputs=segment.inputs, outputs=segment.outputs)


def _sections_of(manifest: m.Manifest) -> set[tuple[str, int]]:
    """The sections that a file with this manifest has."""
    chip, host = ("program", "tables", "commands", "weights"), ("nodes",)
    per_segment = (chip if isinstance(one, m.ChipRecord) else host for one in manifest.segments)
    found = {(name, number) for number, names in enumerate(per_segment) for name in names}
    return found | {(name, NO_SEGMENT) for name in ("manifest", "profile", "constants")}


def _read_profile(container: Container, manifest: m.Manifest) -> Profile:
    data = bytes(container.section("profile"))
    if hashlib.sha256(data).hexdigest() != manifest.profile_digest:
        raise ExecutableError("the profile is not the one of the manifest", section="profile", offset=0)
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ExecutableError("the profile is no JSON object", section="profile", offset=0)
    return profile_from_values(values, origin="the executable's profile")


def _read_chip(
    container: Container, number: int, record: m.ChipRecord, has_values: bool, budget: Budget
) -> ChipSegment:
    label = f"program of segment {number}"
    parts = from_canonical(container.section("program", number), ProgramRecord, label)
    tables = Cursor(f"tables of segment {number}", container.section("tables", number), budget)
    entries = decode_entries(tables, len(parts.tables))
    tables.finish()
    commands = Cursor(f"commands of segment {number}", container.section("commands", number), budget)
    stream = decode_stream(commands, len(parts.queues))
    commands.finish()
    program = Program(
        commands=stream.commands,
        wait_offsets=stream.wait_offsets,
        waits=stream.waits,
        loops=stream.loops,
        calls=stream.calls,
        bindings=stream.bindings,
        **program_parts(parts, entries, label),
    )

    def refuse(message: str, *, actual: object, limit: object) -> NoReturn:
        raise ExecutableError(message, section=commands.section, offset=0, actual=actual, limit=limit)

    check_program(program, refuse)
    data = container.section("weights", number)
    weights = tuple(Weight(region=w.region, data=_blob(data, w.data, "weights")) for w in record.weights)
    segment = ChipSegment(id=record.id, chip=record.chip, program=program, weights=weights)
    _check_weights(segment, has_values, refuse)
    return segment


def _read_host(container: Container, number: int, record: m.HostRecord) -> HostSegment:
    data = container.section("nodes", number)
    nodes = []
    for node in record.nodes:
        given = {name: getattr(node, name) for name in m.NodeRecord.__struct_fields__}
        if not all(0 <= version < _MAX_OPSET for _, version in node.opsets):
            raise ExecutableError(
                "an opset has no possible version", section="manifest", offset=0, limit=_MAX_OPSET - 1
            )
        given["node"] = _bytes(data, node.node)
        given["functions"] = tuple(_bytes(data, function) for function in node.functions)
        nodes.append(HostNode(**given))
    return HostSegment(id=record.id, nodes=tuple(nodes), inputs=record.inputs, outputs=record.outputs)


def _blob(data: memoryview, piece: m.Piece, section: str) -> Blob:
    """A piece of a section as a view; raises ExecutableError if it is not inside."""
    stored, size = piece.stored_bytes, piece.size_bytes
    if not (0 <= piece.offset <= len(data) and 0 <= stored <= len(data) - piece.offset):
        raise ExecutableError("a piece is not inside its section", section=section, offset=0, actual=piece.offset)
    if size < stored or (size % stored if stored else size):
        raise ExecutableError("a piece does not make up its tensor", section=section, offset=piece.offset, actual=size)
    return Blob(size_bytes=size, stored_bytes=stored, source=data[piece.offset : piece.offset + stored])


def _bytes(data: memoryview, piece: m.Piece) -> bytes:
    return bytes(_blob(data, piece, "nodes").view())


def _check_weights(segment: ChipSegment, has_values: bool, fail: m.Refuse) -> None:
    """Every weight region has its bytes, in the order of regions; none has where values are absent."""
    regions = segment.program.regions
    wanted = [number for number, region in enumerate(regions) if region.role is Role.WEIGHT] if has_values else []
    given = [weight.region for weight in segment.weights]
    if wanted != given:
        fail("the weights are not those of the weight regions", actual=str(given[:20]), limit=str(wanted[:20]))
    for weight in segment.weights:
        size = regions[weight.region].size_bytes
        if weight.data.size_bytes != size:
            fail("a weight does not fill its region", actual=weight.data.size_bytes, limit=size)


def _internal(message: str, *, actual: object, limit: object) -> NoReturn:
    raise InternalError(message, stage="executable", actual=actual, limit=limit)
