"""The executable file: what is written comes back, and nothing else is accepted (PROG-3, SHAPE-10, API-4)."""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from compiler.errors import InternalError, LimitError, RequestError, TesseraError
from compiler.ir.graph import HostNode
from compiler.profile.load import builtin_profile
from compiler.program.encoding.blob import Blob
from compiler.program.encoding.container import NO_SEGMENT, Section, read_container, write_container
from compiler.program.encoding.cursor import encode_counts
from compiler.program.errors import ExecutableError
from compiler.program.executable import (
    ChipSegment,
    Executable,
    HostConstant,
    HostSegment,
    Value,
    Weight,
    check_profile,
    read,
    write,
    write_to,
)
from compiler.program.program import Region, Role
from tests.compiler.program.arbitrary import executables
from tests.compiler.program.tiled import tiled_program
from tests.matrices import tries


def weight_region(size_bytes: int) -> Region:
    """A region that holds a weight of so many bytes."""
    return Region(
        name="w",
        role=Role.WEIGHT,
        address=1 << 24,
        shape=(size_bytes,),
        dtype="uint8",
        order=(0,),
        strides=(1,),
        size_bytes=size_bytes,
    )


def small_executable(weight: Blob | None = None, *, tiles: int = 3) -> Executable:
    """A segment of the chip and one of the host, with a weight, a constant and a node with a function."""
    data = weight or Blob.of(bytes(range(100)))
    program = tiled_program(cores=2, layers=2, rows=tiles, columns=tiles)
    program = replace(program, regions=(*program.regions, weight_region(data.size_bytes)))
    node = HostNode(
        name="top",
        op_type="TopK",
        domain="",
        reason="TopK stays on the host",
        node=b"node",
        inputs=("y1", "k"),
        outputs=("values", ""),
        opsets=(("", 17),),
        functions=(b"function", b"function"),
        macs=None,
    )
    return Executable(
        compiler_version="0.0.0",
        profile=builtin_profile("edge4"),
        model_name="small",
        model_digest="11" * 32,
        options_digest="22" * 32,
        inputs=(Value(name="x", tensor="x0", dtype="float32", shape=(1, 16, 21, 22)),),
        outputs=(Value(name="top values", tensor="values", dtype="float32", shape=None),),
        segments=(
            ChipSegment(id="s0", chip=0, program=program, weights=(Weight(region=3, data=data),)),
            HostSegment(id="s1", nodes=(node,), inputs=("y1", "k"), outputs=("values",)),
        ),
        constants=(HostConstant(name="k", dtype="int64", shape=(1,), form="elements", data=Blob.of(b"\3" + bytes(7))),),
    )


def file_of(executable: Executable) -> bytes:
    """The whole file."""
    return b"".join(write(executable))


def same(one: Any, other: Any) -> bool:
    """True if two values are equal, arrays and blobs by what they hold."""
    if isinstance(one, Blob):
        return isinstance(other, Blob) and (one.size_bytes, one.view()) == (other.size_bytes, other.view())
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(same, one, other))
    if is_dataclass(one):
        return type(one) is type(other) and all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return type(one) is type(other) and bool(one == other)


def resealed(data: bytes, change: Callable[[str, int, bytes], bytes | None]) -> bytes:
    """The file with sections changed (None: left out) and all digests right again."""
    container = read_container(memoryview(data))
    sections = []
    for (name, segment), entry in container.entries.items():
        changed = change(name, segment, bytes(data[entry.offset : entry.offset + entry.length]))
        if changed is not None:
            sections.append(Section(name=name, segment=segment, pieces=(changed,)))
    return b"".join(write_container(sections))


def replaced(data: bytes, section: str, old: bytes, new: bytes) -> bytes:
    """The file with some bytes of a section replaced."""
    assert old in bytes(read_container(memoryview(data)).section(section, 0 if section == "program" else NO_SEGMENT))
    return resealed(data, lambda name, _, content: content.replace(old, new) if name == section else content)


@given(executables(max_commands=30))
@tries(first=8, rest=20)
def test_an_executable_comes_back_as_it_was_written(executable: Executable) -> None:
    data = file_of(executable)
    assert same(read(data), executable)
    assert file_of(read(data)) == data


def test_a_tiled_program_comes_back_through_a_file() -> None:
    executable = small_executable()
    file = io.BytesIO()
    assert write_to(executable, file) == len(file.getvalue())
    assert same(read(file.getvalue()), executable)


def test_the_file_is_equal_to_the_byte_twice_and_in_every_process() -> None:
    code = (
        "import hashlib; from tests.compiler.program.test_executable import small_executable, file_of;"
        "print(hashlib.sha256(file_of(small_executable())).hexdigest())"
    )
    expected = hashlib.sha256(file_of(small_executable())).hexdigest()
    assert hashlib.sha256(file_of(small_executable())).hexdigest() == expected
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == expected


def test_reading_needs_nothing_of_what_compiles() -> None:
    code = (
        "import sys; import compiler.program.executable, compiler.program.listing;"
        "print('\\n'.join(name for name in sys.modules if name.startswith(('compiler.', 'onnx'))))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {".".join(name.split(".")[:2]) for name in run.stdout.split()}
    assert "compiler.program" in loaded
    assert loaded <= {
        "compiler.program",
        "compiler.ir",
        "compiler.errors",
        "compiler.lazy",
        "compiler.units",
        "compiler.profile",
        "compiler.address",
        "compiler.ops",
    }


def test_weights_are_streamed_and_never_joined() -> None:
    size, piece = 48 << 20, bytes(1 << 20)

    def pieces() -> Iterator[bytes]:
        for _ in range(size // len(piece)):
            yield piece

    executable = small_executable(Blob.streamed(size, pieces))
    tracemalloc.start()
    total = sum(memoryview(part).nbytes for part in write(executable))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total > size
    assert peak < 8 << 20


def test_an_executable_is_read_from_a_memory_map(tmp_path: Path) -> None:
    executable = small_executable()
    path = tmp_path / "small.tessera"
    with path.open("wb") as file:
        write_to(executable, file)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert same(read(mapped), executable)


def test_weights_are_views_of_the_file() -> None:
    file = file_of(small_executable(Blob.of(bytes(range(256)) * 400)))
    data = np.frombuffer(file, dtype=np.uint8)
    segment = read(file).segments[0]
    assert isinstance(segment, ChipSegment)
    view = np.frombuffer(segment.weights[0].data.view(), dtype=np.uint8)
    assert np.shares_memory(view, data)
    assert view.tobytes() == bytes(range(256)) * 400
    assert view.ctypes.data % 64 == data.ctypes.data % 64


def test_a_weight_that_repeats_itself_is_stored_once() -> None:
    """A model of 9 kB whose weights are one value everywhere gives no file of their size (IMPORT-4)."""
    data = file_of(small_executable(Blob.repeated(b"\0\1\2\3", 1 << 20)))
    assert len(data) < 40_000
    segment = read(data).segments[0]
    assert isinstance(segment, ChipSegment)
    target = np.zeros(1 << 20, dtype=np.uint8)
    segment.weights[0].data.write_to(target)
    assert target.tobytes() == b"\0\1\2\3" * (1 << 18)


def test_a_blob_that_is_not_what_was_announced_is_an_internal_error() -> None:
    for made in (b"12", b"1234"):
        blob = Blob.streamed(3, lambda made=made: [made])  # type: ignore[misc]
        with pytest.raises(InternalError, match="announced"):
            file_of(small_executable(blob))
    with pytest.raises(InternalError, match="does not go into"):
        Blob.repeated(b"123", 4)


def test_a_wrong_weight_is_not_written_and_not_read() -> None:
    executable = small_executable()
    segment = executable.segments[0]
    assert isinstance(segment, ChipSegment)
    for weights in ((), (Weight(region=3, data=Blob.of(b"short")),), (Weight(region=0, data=Blob.of(bytes(100))),)):
        with pytest.raises(InternalError, match="weight"):
            file_of(replace(executable, segments=(replace(segment, weights=weights),)))
    with pytest.raises(ExecutableError, match="weight"):
        read(replaced(file_of(executable), "program", b'"size_bytes":100', b'"size_bytes":101'))


def test_an_executable_without_values_has_no_weights() -> None:
    executable = small_executable()
    segment = executable.segments[0]
    assert isinstance(segment, ChipSegment)
    with pytest.raises(InternalError, match="weight"):
        file_of(replace(executable, has_values=False))
    bare = replace(executable, has_values=False, segments=(replace(segment, weights=()),))
    assert same(read(file_of(bare)), bare)


def test_a_unit_that_is_not_what_its_identifier_says_is_refused() -> None:
    """SHAPE-1."""
    changed = replaced(file_of(small_executable()), "program", b'"opset":9', b'"opset":8')
    with pytest.raises(ExecutableError, match="identifier"):
        read(changed)


@pytest.mark.parametrize(
    ("section", "old", "new", "message"),
    [
        ("manifest", b'"model_name"', b'"model_nam"', "manifest, byte 0: not what belongs here"),
        ("manifest", b'"model_name":"small"', b'"model_name": "small"', "not canonical"),
        ("manifest", b'"schema":4', b'"schema":3', "version"),
        ("manifest", b'"region":3', b'"region":2', "weights are not those"),
        ("manifest", b'"offset":0', b'"offset":-1', "not inside"),
        ("manifest", b'"stored_bytes":100', b'"stored_bytes":999', "not inside|does not make up"),
        ("manifest", b'"kind":"host"', b'"kind":"moon"', "not what belongs here"),
        ("profile", b'"name":"edge4"', b'"name":"edge5"', "profile, byte 0"),
        ("program", b'"level":"dram"', b'"level":"drum"', "program of segment 0"),
        ("program", b'"order":[0,2,3,1]', b'"order":[0,2,3,3]', "order"),
        ("program", b'"unit":0', b'"unit":1', "unit is not there"),
        ("program", b'"capacity_bytes":524288', b'"capacity_bytes":-524288', "capacity"),
    ],
)
def test_what_does_not_belong_in_a_section_is_refused(section: str, old: bytes, new: bytes, message: str) -> None:
    with pytest.raises(ExecutableError, match=message):
        read(replaced(file_of(small_executable()), section, old, new))


def test_files_that_are_no_executables_are_refused() -> None:
    data = file_of(small_executable())
    for wrong, message in (
        (b"", "no executable"),
        (b"\0" * 500, "no executable"),
        (data[:-1], "cut off"),
        (data + b"\0", "cut off"),
        (data[:8] + b"\2" + data[9:], "version"),
        (data[:20] + b"\1" + data[21:], "table is not where"),
    ):
        with pytest.raises(ExecutableError, match=message):
            read(wrong)


def test_no_length_is_read_where_the_file_does_not_end() -> None:
    data = file_of(small_executable())
    for wrong in (data[:-1], data[: len(data) // 2], data + b"\0"):
        with pytest.raises(ExecutableError, match="cut off, or something follows its end") as caught:
            read(wrong)
        assert (caught.value.actual, caught.value.limit) == (len(wrong), None)
    with pytest.raises(ExecutableError, match="cut off, or something follows its end") as caught:
        read(data[:64] + data[128:])
    assert (caught.value.actual, caught.value.limit) == (len(data) - 64, len(data))


def test_a_section_too_many_or_too_few_is_refused() -> None:
    data = file_of(small_executable())
    with pytest.raises(ExecutableError, match="do not agree"):
        read(resealed(data, lambda name, _, content: None if name == "nodes" else content))
    with pytest.raises(ExecutableError, match="missing"):
        read(resealed(data, lambda name, _, content: None if name == "manifest" else content))
    container = read_container(memoryview(data))
    doubled = [
        Section(name=name, segment=segment, pieces=(container.section(name, segment),))
        for name, segment in (*container.entries, ("manifest", NO_SEGMENT))
    ]
    with pytest.raises(ExecutableError, match="twice"):
        read(b"".join(write_container(doubled)))


def test_damaged_weights_are_found_unless_they_are_not_asked_for() -> None:
    data = bytearray(file_of(small_executable()))
    at = data.index(bytes(range(100)))
    data[at] ^= 1
    with pytest.raises(ExecutableError, match="weights of segment 0, byte 0: the section is damaged"):
        read(data)
    segment = read(data, check_weights=False).segments[0]
    assert isinstance(segment, ChipSegment)
    assert segment.weights[0].data.view()[0] == 1


def test_a_file_that_claims_much_takes_little_memory() -> None:
    """API-4, API-7: counts are refused before memory is taken for them."""
    data = file_of(small_executable())
    head = encode_counts(1 << 30, 1 << 30, 1 << 30, 1 << 30)
    bomb = resealed(data, lambda name, _, content: head + content[4:] if name == "commands" else content)
    tracemalloc.start()
    with pytest.raises(LimitError, match="more memory"):
        read(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
    with pytest.raises(LimitError, match="more memory") as caught:
        read(data, limit_bytes=1000)
    assert caught.value.limit == 1000


@pytest.mark.parametrize("seed", range(4))
def test_every_file_cut_short_is_refused(seed: int) -> None:
    data = file_of(small_executable())
    for length in np.random.default_rng(seed).integers(0, len(data), 25).tolist():
        with pytest.raises(ExecutableError):
            read(data[:length])


@pytest.mark.parametrize("seed", range(5))
def test_a_file_with_one_byte_changed_is_refused(seed: int) -> None:
    data = file_of(small_executable())
    random = np.random.default_rng(seed)
    for at in random.integers(0, len(data), 30).tolist():
        changed = bytearray(data)
        changed[at] ^= int(random.integers(1, 256))
        with pytest.raises(ExecutableError):
            read(changed)


@pytest.mark.matrix(first=4, rest=4)
@pytest.mark.parametrize("section", ["manifest", "profile", "program", "tables", "commands", "nodes"])
@pytest.mark.parametrize("seed", range(2))
def test_a_section_with_one_byte_changed_is_refused_or_read_and_takes_little_memory(section: str, seed: int) -> None:
    """The digests are right, as whoever means harm makes them."""
    data = file_of(small_executable(tiles=2))
    random = np.random.default_rng(seed)

    def damaged(content: bytes) -> bytes:
        at = int(random.integers(0, len(content)))
        kind = int(random.integers(0, 3))
        middle = (bytes([int(random.integers(0, 256))]), b"", random.bytes(2))[kind]
        return content[:at] + middle + content[at + (kind < 2) :]

    outcomes = set()
    if section in ("tables", "commands"):
        tracemalloc.start()
    for _ in range(20):
        changed = resealed(data, lambda name, _, content: damaged(content) if name == section else content)
        try:
            again = read(changed)
        except TesseraError:
            outcomes.add("refused")
        else:
            outcomes.add("read")
            assert same(read(file_of(again)), again)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "refused" in outcomes or section == "nodes"
    # three times what a file of this size may take in all
    assert peak < 300 << 20


def test_an_executable_runs_on_the_profile_that_it_was_built_for() -> None:
    """SHAPE-10."""
    executable = read(file_of(small_executable()))
    check_profile(executable, builtin_profile("edge4"))
    with pytest.raises(RequestError, match="another profile") as caught:
        check_profile(executable, builtin_profile("cluster4x4"))
    assert caught.value.code == "wrong_profile"


def test_names_from_the_model_do_not_reach_an_error_unescaped() -> None:
    """API-7."""
    data = replaced(file_of(small_executable()), "manifest", b'"kind":"host"', b'"kind":"\\u001b[31m"')
    with pytest.raises(ExecutableError) as caught:
        read(data)
    assert str(caught.value).isprintable()
