"""Archives of a model and its external data: read in place, never outside the upload, within bounds (IMPORT-1)."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterable

import msgspec
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from compiler.compile import plan_model
from compiler.errors import TesseraError
from compiler.frontend import archive as module
from compiler.frontend.archive import open_archive, safe_path
from compiler.frontend.constant_values import materialise
from compiler.frontend.lower import LowerModel
from compiler.frontend.read import ReadModel
from compiler.frontend.source import ModelSource
from compiler.frontend.validate import ValidateModel
from compiler.ir.constant import Stored
from compiler.profile import builtin_profile
from compiler.report.plan import plan_json
from tests.compiler.planning import BY_RULES
from tests.models import Model, error_of, light_path

Members = dict[str, bytes]
WEIGHTS = np.arange(2 * 3 * 400, dtype=np.float32)


def with_external(*, location: str = "weights.bin", offset: int | None = 8, length: int | None = 4800) -> bytes:
    """A product of [1, 3] with [3, 400] weights that lie beside the model."""
    model = Model()
    x = model.input([1, 3])
    model.output(model.node("MatMul", [x, "w"], name="product"))
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3, 400], data_location=TensorProto.EXTERNAL)
    entries = {"location": location, "offset": offset, "length": length}
    for key, value in entries.items():
        if value is not None:
            tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=str(value)))
    model.initializers.append(tensor)
    return model.data()


def zipped(members: Members, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of the members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def stored(members: Members) -> bytes:
    """A zip whose members are not compressed."""
    return zipped(members, zipfile.ZIP_STORED)


def tarred(members: Members) -> bytes:
    """A tar of the members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def gzipped(members: Members) -> bytes:
    """A compressed tar of the members."""
    return gzip.compress(tarred(members))


PACKERS: dict[str, Callable[[Members], bytes]] = {"stored": stored, "zip": zipped, "tar": tarred, "tar.gz": gzipped}
packers = pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)


def refused(data: bytes) -> TesseraError:
    """The error that reading and lowering an upload gives."""
    with pytest.raises(TesseraError) as caught:
        LowerModel().run(ValidateModel().run(ReadModel().run(ModelSource.from_bytes(data))))
    assert caught.value.code != "internal_error"
    return caught.value


# What is read


@pytest.mark.matrix(first=1, rest=1)
@packers
def test_a_model_in_an_archive_gives_the_plan_of_the_model_alone(pack: Callable[[Members], bytes]) -> None:
    """IMPORT-1: but for the name and the hash of what was uploaded, equal to the byte."""
    data = light_path("zfnet512").read_bytes()
    profile = builtin_profile("edge4")
    plain = plan_model(ModelSource.from_bytes(data, name="zfnet512"), profile, BY_RULES).plan
    source = ModelSource.from_bytes(pack({"model/zfnet512.onnx": data, "README": b"read me"}), name="zfnet512")
    packed = plan_model(source, profile, BY_RULES).plan
    assert packed.model.sha256 == source.sha256 != plain.model.sha256
    assert plan_json(msgspec.structs.replace(packed, model=plain.model)) == plan_json(plain)


@packers
@pytest.mark.parametrize("folder", ["", "a/b/"])
def test_external_data_is_found_beside_the_model_by_offset_and_length(
    pack: Callable[[Members], bytes], folder: str
) -> None:
    """IMPORT-1: whatever folder the model lies in."""
    data = pack({f"{folder}m.onnx": with_external(), f"{folder}weights.bin": WEIGHTS.tobytes()})
    read = ValidateModel().run(ReadModel().run(ModelSource.from_bytes(data)))
    graph = LowerModel().run(read)
    constant = graph.tensors["w"].constant
    assert constant is not None
    assert constant.data == Stored(offset=8, size_bytes=4800, file="weights.bin")
    assert materialise(constant, read.source).tolist() == WEIGHTS[2:1202].reshape(3, 400).tolist()


@pytest.mark.parametrize("location", ["data/weights.bin", "./data/weights.bin", "data//weights.bin"])
def test_external_data_may_lie_in_a_folder_below_the_model(location: str) -> None:
    data = zipped({"m.onnx": with_external(location=location), "data/weights.bin": WEIGHTS.tobytes()})
    assert LowerModel().run(ReadModel().run(ModelSource.from_bytes(data))).tensors["w"].constant is not None


def test_external_data_without_offset_and_length_begins_at_the_beginning() -> None:
    model = with_external(offset=None, length=None)
    read = ReadModel().run(ModelSource.from_bytes(zipped({"m.onnx": model, "weights.bin": WEIGHTS.tobytes()})))
    constant = LowerModel().run(read).tensors["w"].constant
    assert constant is not None
    assert materialise(constant, read.source).reshape(-1).tolist() == WEIGHTS[:1200].tolist()


@pytest.mark.parametrize("pack", [stored, tarred])
def test_members_that_are_not_compressed_are_windows_into_the_upload(pack: Callable[[Members], bytes]) -> None:
    data = pack({"m.onnx": with_external(), "weights.bin": WEIGHTS.tobytes()})
    archive = open_archive(ModelSource.from_bytes(data))
    assert archive is not None
    assert np.shares_memory(np.frombuffer(archive.read("weights.bin"), np.uint8), np.frombuffer(data, np.uint8))


def test_a_member_behind_an_extra_field_begins_after_it() -> None:
    """Zip tools write times and owners there."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in (("m.onnx", with_external()), ("weights.bin", WEIGHTS.tobytes())):
            entry = zipfile.ZipInfo(name)
            entry.extra = b"\x99\x99\x06\x00abcdef"
            archive.writestr(entry, data)
    opened = open_archive(ModelSource.from_bytes(buffer.getvalue()))
    assert opened is not None
    assert bytes(opened.read("weights.bin")) == WEIGHTS.tobytes()


def test_a_compressed_member_is_expanded_once_and_only_if_it_is_read() -> None:
    archive = open_archive(ModelSource.from_bytes(zipped({"m.onnx": b"m" * 99, "other": b"o" * 99})))
    assert archive is not None
    assert archive.expanded == {}
    assert archive.read("m.onnx").obj is archive.read("m.onnx").obj
    assert set(archive.expanded) == {"m.onnx"}


@packers
def test_folders_and_files_without_contents_are_passed_over(pack: Callable[[Members], bytes]) -> None:
    model = with_external(offset=None)
    data = pack({"m.onnx": model, "empty": b"", "weights.bin": WEIGHTS.tobytes()[:4800]})
    assert LowerModel().run(ReadModel().run(ModelSource.from_bytes(data))).ops


def test_folder_entries_are_passed_over() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.mkdir("folder")
        archive.writestr("folder/m.onnx", light_path("zfnet512").read_bytes())
    assert len(ReadModel().run(ModelSource.from_bytes(buffer.getvalue())).proto.graph.node) == 38


def test_a_model_that_is_no_archive_is_read_as_it_is() -> None:
    assert open_archive(ModelSource.from_bytes(light_path("zfnet512").read_bytes())) is None


# What is refused


@packers
@pytest.mark.parametrize(("names", "actual"), [((), "none"), (("a.onnx", "b/c.ONNX"), "2: a.onnx, b/c.ONNX")])
def test_an_archive_without_exactly_one_model_is_refused(
    pack: Callable[[Members], bytes], names: Iterable[str], actual: str
) -> None:
    error = refused(pack({"other.txt": b"text", **dict.fromkeys(names, b"m")}))
    assert (error.code, error.actual, error.limit) == ("invalid_archive", actual, "1")


@packers
@pytest.mark.parametrize(
    "name", ["../m.onnx", "/m.onnx", "a/../../m.onnx", "a/..", "C:/m.onnx", "a\\m.onnx", "m\n.onnx", "m\x1b.onnx"]
)
def test_a_member_whose_path_could_leave_the_upload_is_refused(pack: Callable[[Members], bytes], name: str) -> None:
    """IMPORT-4: absolute paths and `..`; API-7: control characters reach no message."""
    error = refused(pack({name: with_external()}))
    assert error.code == "external_data_path"
    assert str(error).isprintable()


@pytest.mark.parametrize("location", ["../weights.bin", "/weights.bin", "a/../../weights.bin", "", "..", "w\\x", "D:w"])
def test_external_data_that_could_leave_the_upload_is_refused(location: str) -> None:
    """IMPORT-4."""
    members = {"a/m.onnx": with_external(location=location), "weights.bin": WEIGHTS.tobytes()}
    assert refused(zipped(members)).code == "external_data_path"


def test_external_data_in_a_folder_above_the_model_is_refused_even_inside_the_archive() -> None:
    """IMPORT-4: the location is relative to the model, and `..` is never followed."""
    members = {"a/m.onnx": with_external(), "weights.bin": WEIGHTS.tobytes()}
    error = refused(zipped(members))
    assert (error.code, error.actual) == ("external_data", "weights.bin")


@packers
@pytest.mark.parametrize(
    ("offset", "length"), [(4804, 4800), (9600, 4800), (-4, 4800), (8, 4799), (8, 4804), (8, -1), (2**63, 4800)]
)
def test_external_data_beyond_its_file_or_of_another_length_is_refused(
    pack: Callable[[Members], bytes], offset: int, length: int
) -> None:
    """IMPORT-4: short, with bad or negative offsets."""
    error = refused(pack({"m.onnx": with_external(offset=offset, length=length), "weights.bin": WEIGHTS.tobytes()}))
    assert error.code == "external_data"
    assert "'w'" in error.message


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
@pytest.mark.parametrize("name", ["weights.bin", "harmless"])
def test_links_and_devices_of_a_tar_are_refused(kind: bytes, name: str) -> None:
    """IMPORT-4."""
    buffer = io.BytesIO(tarred({"m.onnx": with_external()}))
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, "/etc/passwd"
        archive.addfile(entry)
    error = refused(buffer.getvalue())
    assert (error.code, error.actual) == ("external_data_path", name)
    assert "link" in error.message if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else "device" in error.message


@pytest.mark.parametrize(
    ("mode", "what"), [(0o120777, "a symbolic link"), (0o020666, "no regular file"), (0o010666, "no regular file")]
)
def test_links_and_devices_of_a_zip_are_refused(mode: int, what: str) -> None:
    """IMPORT-4."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("m.onnx", with_external())
        entry = zipfile.ZipInfo("weights.bin")
        entry.create_system, entry.external_attr = 3, mode << 16
        archive.writestr(entry, "/etc/passwd")
    error = refused(buffer.getvalue())
    assert error.code == "external_data_path"
    assert what in error.message


@pytest.mark.parametrize("names", [("m.onnx", "m.onnx"), ("m.onnx", "./m.onnx"), ("a/m.onnx", "a//m.onnx")])
def test_a_name_given_twice_is_refused(names: tuple[str, str]) -> None:
    """Which of the two would be the model depends on the reader."""
    buffers = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(buffers[0], "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            archive.writestr(name, with_external())
    with tarfile.open(fileobj=buffers[1], mode="w") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    for buffer in buffers:
        error = refused(buffer.getvalue())
        assert error.code == "invalid_archive"
        assert "twice" in error.message


def test_an_encrypted_member_is_refused() -> None:
    data = bytearray(stored({"m.onnx": with_external()}))
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + at] |= 1
    assert "encrypted" in refused(bytes(data)).message


def test_a_compression_other_than_deflate_is_refused() -> None:
    error = refused(zipped({"m.onnx": with_external()}, zipfile.ZIP_LZMA))
    assert (error.code, error.actual, error.limit) == ("invalid_archive", "method 14", "stored or deflate")


def test_a_gzip_file_of_something_else_is_refused() -> None:
    error = refused(gzip.compress(light_path("zfnet512").read_bytes()))
    assert (error.code, error.limit) == ("invalid_archive", "tar")


def test_a_member_whose_contents_fail_their_checksum_is_refused() -> None:
    data = bytearray(zipped({"m.onnx": light_path("zfnet512").read_bytes()}))
    for signature, at in ((b"PK\x03\x04", 14), (b"PK\x01\x02", 16)):
        data[data.index(signature) + at] ^= 0xFF
    assert refused(bytes(data)).code == "invalid_archive"


def test_a_member_that_is_larger_than_it_says_is_refused() -> None:
    """A bomb that lies about its size is expanded no further than that."""
    data = bytearray(zipped({"m.onnx": b"\0" * 10_000}))
    for signature, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", data, data.index(signature) + at, 100)
    error = refused(bytes(data))
    assert (error.code, error.limit) == ("invalid_archive", 100)


def test_members_that_overlap_are_refused() -> None:
    """Many entries over one piece of data expand to far more than the upload holds."""
    data = bytearray(stored({"m.onnx": with_external(), "b.bin": b"other"}))
    second = data.rindex(b"PK\x01\x02")
    struct.pack_into("<I", data, second + 42, 0)  # the second entry's local header is the first one's
    assert refused(bytes(data)).code == "invalid_archive"


def test_an_archive_that_expands_to_too_much_is_refused_before_it_is_expanded() -> None:
    """IMPORT-4: 65 MiB of zeros in 65 kB."""
    data = zipped({"m.onnx": with_external(), "weights.bin": bytes(65 * 2**20)})
    assert len(data) < 80_000
    error = refused(data)
    assert error.code == "archive_too_large"
    assert str(65 * 2**20 // 1000)[:4] in str(error.actual)


def test_a_gzip_file_that_expands_to_too_much_is_refused() -> None:
    """IMPORT-4."""
    assert refused(gzip.compress(bytes(65 * 2**20))).code == "archive_too_large"


def test_members_that_compress_as_weights_do_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound on the ratio is for bombs."""
    monkeypatch.setattr(module, "_RATIO_FLOOR_BYTES", 2**16)
    noise = np.random.default_rng(0).integers(0, 16, 2**20, dtype=np.uint8).tobytes()
    for pack in (zipped, gzipped):
        assert open_archive(ModelSource.from_bytes(pack({"weights.bin": noise}))) is not None
        assert refused(pack({"weights.bin": bytes(2**20)})).code == "archive_too_large"


@packers
def test_an_archive_of_too_many_members_is_refused(
    pack: Callable[[Members], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_MEMBERS", 5)
    members = {"m.onnx": light_path("zfnet512").read_bytes(), **{f"f{index}": b"" for index in range(4)}}
    assert open_archive(ModelSource.from_bytes(pack(members))) is not None
    error = refused(pack({**members, "more": b""}))
    assert (error.code, error.limit) == ("archive_too_large", 5)


@packers
@settings(max_examples=40)
@given(data=st.data())
def test_an_archive_cut_or_changed_anywhere_never_crashes(
    pack: Callable[[Members], bytes], data: st.DataObject
) -> None:
    """IMPORT-4."""
    whole = bytearray(pack({"m.onnx": with_external(), "weights.bin": WEIGHTS.tobytes()[:4808]}))
    if data.draw(st.booleans()):
        whole = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))

    def read() -> None:
        LowerModel().run(ValidateModel().run(ReadModel().run(ModelSource.from_bytes(bytes(whole)))))

    error = error_of(read)
    assert error is None or error.code != "internal_error"


@packers
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_a_truncated_archive_is_refused(pack: Callable[[Members], bytes], share: float) -> None:
    data = pack({"m.onnx": with_external(), "weights.bin": WEIGHTS.tobytes()})
    assert refused(data[: int(len(data) * share)]).code in ("invalid_archive", "not_onnx", "external_data")


@given(st.text(alphabet="ab./\\:", max_size=8))
def test_a_safe_path_stays_below_where_it_begins(location: str) -> None:
    """IMPORT-4: judged by walking it."""
    made: list[str] = []
    error = error_of(lambda: made.append(safe_path(location, what="location")))
    if error is not None:
        assert error.code == "external_data_path"
        return
    depth = 0
    for part in made[0].split("/"):
        assert part not in ("", ".", "..")
        depth += 1
    assert depth > 0
    assert not made[0].startswith("/")
    assert "\\" not in made[0]
