"""Reads tensors from untrusted .npz files, keyed by tensor name, and writes .npz files with reproducible bytes."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from math import prod
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from compiler.errors import LimitError, RequestError, printable

Array = NDArray[Any]
# The memory limit for all tensors of one file.
MAX_BYTES: Final = 1 << 31
_MAX_TENSORS: Final = 4096
_HEADER_BYTES: Final = 10_000
_CHUNK_BYTES: Final = 1 << 20
_SUFFIX: Final = ".npy"
_ZIP: Final = b"PK\x03\x04"
# Kinds of numpy types for tensors: booleans, numbers, text, and raw bytes (numpy has no bfloat16).
_KINDS: Final = frozenset("biufcSUV")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def read_arrays(file: BinaryIO, *, limit_bytes: int = MAX_BYTES) -> dict[str, Array]:
    """The tensors of an .npz file by key.

    Nothing is unpickled. Unpacking stops at the sizes in the file's directory, whose sum is at most `limit_bytes`.
    Raises RequestError naming the key for an invalid file, and LimitError for one that is too large.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            _check_sizes(members, limit_bytes)
            found: dict[str, Array] = {}
            for member in members:
                key = member.filename.removesuffix(_SUFFIX)
                if key in found:
                    raise _bad(key, "stands in it twice")
                found[key] = _read(archive, member, key)
            return found
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError) as error:
        file.seek(0)
        is_zip = file.read(len(_ZIP)) == _ZIP
        raise RequestError(
            "the .npz file is cut short or damaged" if is_zip else "the inputs are no .npz file",
            code="invalid_inputs",
            stage="inputs",
            actual=printable(str(error), 120),
            hint="Write it with numpy.savez; its keys are the names of the model's inputs",
        ) from None


def _check_sizes(members: list[zipfile.ZipInfo], limit_bytes: int) -> None:
    if len(members) > _MAX_TENSORS:
        raise LimitError(
            "the file holds too many tensors",
            code="inputs_too_large",
            stage="inputs",
            actual=len(members),
            limit=_MAX_TENSORS,
        )
    total = sum(member.file_size for member in members)
    if total > limit_bytes:
        raise LimitError(
            "the tensors of the file take too much memory",
            code="inputs_too_large",
            stage="inputs",
            actual=total,
            limit=limit_bytes,
        )


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, key: str) -> Array:
    """Reads one tensor after checking that its header states the size of its data."""
    with archive.open(member) as data:
        try:
            version = np.lib.format.read_magic(data)
            if version == (1, 0):
                header = np.lib.format.read_array_header_1_0(data, max_header_size=_HEADER_BYTES)
            elif version == (2, 0):
                header = np.lib.format.read_array_header_2_0(data, max_header_size=_HEADER_BYTES)
            else:
                raise ValueError(f"version {version[0]}.{version[1]}")
            shape, is_fortran, dtype = header
        except (ValueError, TypeError, RecursionError, MemoryError) as error:
            raise _bad(key, "has no header of a plain tensor", printable(str(error), 120)) from None
        is_plain = dtype.names is None and dtype.subdtype is None and dtype.kind in _KINDS
        if not is_plain or dtype.itemsize == 0:
            raise _bad(key, "has an element type that is no tensor's", printable(str(dtype), 60))
        begin = data.tell()
        size = prod(shape) * dtype.itemsize
        if len(shape) > 64 or any(extent < 0 for extent in shape) or size != member.file_size - begin:
            raise _bad(key, "has another size than its shape says", f"{dtype}{list(shape)}, {size} bytes")
        raw = np.empty(size, dtype=np.uint8)
        done = 0
        while chunk := data.read(min(_CHUNK_BYTES, size - done)):
            raw[done : done + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
            done += len(chunk)
        if done < size:
            raise _bad(key, "ends early", f"{done} of {size} bytes")
        data.read(1)  # the checksum is verified at the end of the member
    values: Array = raw.view(dtype)
    values = values.reshape(shape[::-1]).T if is_fortran else values.reshape(shape)
    return np.ascontiguousarray(values, dtype=dtype.newbyteorder("=")).reshape(shape)


def _bad(key: str, what: str, actual: object | None = None) -> RequestError:
    return RequestError(
        f"tensor {printable(key, 120)!r} of the inputs {what}", code="invalid_inputs", stage="inputs", actual=actual
    )


def write_arrays(file: BinaryIO, values: Mapping[str, Any]) -> None:
    """Writes values as .npz: equal values give equal bytes.

    Text becomes fixed-width; bfloat16 becomes two raw bytes per element. The elements of a sequence have keys name/0,
    name/1 and so on; an empty optional has no key.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for key, value in plain_tensors(values).items():
            entry = zipfile.ZipInfo(key + _SUFFIX, date_time=_EPOCH)
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, value, allow_pickle=False)


def plain_tensors(values: Mapping[str, Any]) -> dict[str, Array]:
    """Values as arrays by key; a sequence becomes its elements."""
    found: dict[str, Array] = {}
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, list | tuple):
            found |= plain_tensors({f"{name}/{number}": item for number, item in enumerate(value)})
            continue
        array = np.asarray(value)
        found[name] = array.astype(np.str_) if array.dtype.hasobject else array
    return found
