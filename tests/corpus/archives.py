"""Archives written byte by byte, so that they can say what no tool would write; members are (name, bytes)."""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import onnx
from onnx import TensorProto

from tests.models import Model

Member = tuple[str, bytes]
_DATE: Final = (2020, 1, 1, 0, 0, 0)


def external_model(location: str | None = "weights.bin", *, dims: Sequence[int] = (300,), **entries: str) -> bytes:
    """x + w, where node `add` reads `w`, whose 1,200 bytes lie outside; `entries` are offset, length, checksum."""
    model = Model()
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    if location is not None:
        tensor.external_data.append(onnx.StringStringEntryProto(key="location", value=location))
    for key, value in entries.items():
        tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=value))
    model.initializers.append(tensor)
    x = model.input([1], "x")
    model.output(model.node("Add", [x, "w"], name="add"))
    return model.data()


def weights(count: int = 300) -> bytes:
    """As many float32 as the weight of `external_model` has elements."""
    return struct.pack(f"<{count}f", *(float(i) for i in range(count)))


def zip_of(*members: Member, compression: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    """A zip file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, data in members:
            archive.writestr(_zip_info(name, compression), data)
        archive.comment = comment
    return out.getvalue()


def zip_with_mode(name: str, data: bytes, mode: int, *members: Member) -> bytes:
    """A zip file whose first member has the given Unix file mode, a symbolic link for instance."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        first = _zip_info(name, zipfile.ZIP_STORED)
        first.create_system = 3
        first.external_attr = mode << 16
        archive.writestr(first, data)
        for other, content in members:
            archive.writestr(_zip_info(other, zipfile.ZIP_STORED), content)
    return out.getvalue()


def _zip_info(name: str, compression: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("placeholder", _DATE)
    info.filename = name  # set afterwards: the constructor mends names
    info.compress_type = compression
    return info


class RawMember:
    """A member of a zip file whose headers say what they are told to."""

    def __init__(self, name: str, payload: bytes, *, method: int = 0, size: int | None = None, flags: int = 0) -> None:
        self.name = name.encode()
        self.payload = payload
        self.method = method
        self.size = len(payload) if size is None else size
        self.flags = flags

    def local(self) -> bytes:
        """Local header and data."""
        common = struct.pack("<HHHHHIII", 20, self.flags, self.method, 0, 0x21, self._crc(), *self._sizes())
        return b"PK\3\4" + common + struct.pack("<HH", len(self.name), 0) + self.name + self.payload

    def central(self, offset: int) -> bytes:
        """The entry of the directory."""
        common = struct.pack("<HHHHHHIII", 20, 20, self.flags, self.method, 0, 0x21, self._crc(), *self._sizes())
        rest = struct.pack("<HHHHHII", len(self.name), 0, 0, 0, 0, 0, offset)
        return b"PK\1\2" + common + rest + self.name

    def _crc(self) -> int:
        return zlib.crc32(self.payload) if self.method == 0 else 0

    def _sizes(self) -> tuple[int, int]:
        return len(self.payload), self.size & 0xFFFFFFFF


def raw_zip(
    members: Sequence[RawMember], *, overlapping: int = 0, offset_shift: int = 0, count: int | None = None
) -> bytes:
    """A zip file; `overlapping` further directory entries point to the last member's data."""
    out = bytearray()
    directory = bytearray()
    begin = 0
    for member in members:
        begin = len(out)
        directory += member.central(begin + offset_shift)
        out += member.local()
    directory += members[-1].central(begin + offset_shift) * overlapping
    entries = len(members) + overlapping if count is None else count
    end = struct.pack("<HHHHIIH", 0, 0, entries & 0xFFFF, entries & 0xFFFF, len(directory), len(out), 0)
    return bytes(out + directory) + b"PK\5\6" + end


def deflated_zeros(size_bytes: int) -> bytes:
    """A deflate stream of zeros in a thousandth of the size, made in no time: one flushed mebibyte, repeated."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = bytes(2**20)
    first = compressor.compress(block) + compressor.flush(zlib.Z_FULL_FLUSH)
    again = compressor.compress(block) + compressor.flush(zlib.Z_FULL_FLUSH)
    return first + again * (size_bytes // 2**20 - 1) + compressor.flush(zlib.Z_FINISH)


def tar_of(*members: Member, kind: int = tarfile.USTAR_FORMAT) -> bytes:
    """A tar file."""
    return tar_with([(tarfile.TarInfo(name), data) for name, data in members], kind=kind)


def tar_with(members: Sequence[tuple[tarfile.TarInfo, bytes]], *, kind: int = tarfile.GNU_FORMAT) -> bytes:
    """A tar file of members whose headers are given; sizes are filled in for those that have none."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as archive:
        for info, data in members:
            info.size = info.size or len(data)
            archive.addfile(info, io.BytesIO(data) if data else None)
    return out.getvalue()


def tar_entry(name: str, kind: bytes, target: str = "", **fields: Any) -> tarfile.TarInfo:
    """A header of a given kind: link, device, pipe..."""
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def tar_edited(data: bytes, position: int, change: Callable[[bytearray], object]) -> bytes:
    """A tar file with the header at a position changed and its checksum made right."""
    out = bytearray(data)
    header = out[position : position + 512]
    change(header)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    out[position : position + 512] = header
    return bytes(out)
