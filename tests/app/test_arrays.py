"""Tensors in .npz files: what is written comes back, and what somebody sends is not believed."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from app.simulations.arrays import read_arrays, write_arrays
from compiler.errors import LimitError, RequestError


def written(values: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    write_arrays(file, values)
    return file.getvalue()


def test_tensors_come_back_as_they_were_and_numpy_reads_them() -> None:
    random = np.random.default_rng(1)
    values: dict[str, Any] = {
        "x": random.standard_normal((2, 3)).astype(np.float32),
        "a/b:0": random.integers(-5, 5, (4,)),
        "flag": np.array(True),
        "none": np.zeros((0, 3), np.float16),
    }
    data = written(values)
    for found in (read_arrays(io.BytesIO(data)), dict(np.load(io.BytesIO(data)))):
        assert list(found) == list(values)
        for name, value in values.items():
            assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
            np.testing.assert_array_equal(found[name], value)


def test_equal_values_are_written_to_equal_bytes() -> None:
    assert written({"x": np.arange(5)}) == written({"x": np.arange(5)})


def test_what_npz_does_not_know_is_written_in_its_nearest_form() -> None:
    values = {
        "text": np.array(["a", "bcd"], dtype=object),
        "brain": np.ones(3, ml_dtypes.bfloat16),
        "parts": [np.zeros(2), np.ones(1)],
        "nothing": None,
    }
    found = read_arrays(io.BytesIO(written(values)))
    assert list(found) == ["text", "brain", "parts/0", "parts/1"]
    assert found["text"].tolist() == ["a", "bcd"]
    np.testing.assert_array_equal(found["brain"].view(ml_dtypes.bfloat16), values["brain"])


@pytest.mark.parametrize("compress", [np.savez, np.savez_compressed])
def test_files_of_numpy_are_read_in_any_order_of_bytes_and_axes(compress: Any) -> None:
    file = io.BytesIO()
    values = {"big": np.arange(6, dtype=">f4").reshape(2, 3), "fortran": np.asfortranarray(np.arange(6).reshape(2, 3))}
    compress(file, **values)
    found = read_arrays(file)
    for name, value in values.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype.isnative
        assert found[name].flags.c_contiguous


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as found:
        for name, data in members.items():
            found.writestr(f"{name}.npy", data)
    return file.getvalue()


def twice() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as found:
        found.writestr("x.npy", npy(np.ones(2)))
        with pytest.warns(UserWarning, match="Duplicate"):
            found.writestr("x.npy", npy(np.ones(2)))
    return file.getvalue()


def damaged() -> bytes:
    data = bytearray(archive(x=npy(np.arange(100))))
    data[300] ^= 1
    return bytes(data)


def no_width() -> bytes:
    """A million texts of no characters, which take no bytes here and four million as numpy makes them."""
    data = npy(np.zeros(0, "<i4")).replace(b"<i4", b"<U0").replace(b"(0,), }      ", b"(9999999,), }")
    assert b"(9999999,)" in data
    return archive(x=data)


def pickled() -> bytes:
    return archive(x=npy(np.array([{"a": 1}], dtype=object)))


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "text": (lambda: b"hello", "no .npz file"),
    "empty": (lambda: b"", "no .npz file"),
    "damaged": (damaged, "cut short or damaged"),
    "pickle": (lambda: archive(x=pickle.dumps([1])), "'x' of the inputs has no header"),
    "objects": (pickled, "'x' of the inputs has an element type"),
    "fields": (lambda: archive(x=npy(np.zeros(2, [("a", "<i4")]))), "'x' of the inputs has an element type"),
    "no width": (no_width, "'x' of the inputs has an element type"),
    "bomb": (lambda: archive(x=npy(np.zeros(2)).replace(b"(2,)", b"(9**9**9,)")), "'x' of the inputs has no header"),
    "short": (lambda: archive(x=npy(np.zeros(2)).replace(b"(2,),", b"(2**40,)")), "'x' of the inputs"),
    "large": (
        lambda: archive(x=npy(np.zeros(2)).replace(b"(2,), ", b"(99,),")),
        "has another size than its shape says",
    ),
    "negative": (lambda: archive(x=npy(np.zeros(2)).replace(b"(2,), ", b"(-2,),")), "'x' of the inputs"),
    "twice": (twice, "stands in it twice"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_file_of_tensors_is_refused_by_name(case: str) -> None:
    make, names = BAD[case]
    with pytest.raises(RequestError) as caught:
        read_arrays(io.BytesIO(make()))
    assert caught.value.code == "invalid_inputs"
    assert names in caught.value.message


def test_no_more_is_unpacked_than_is_allowed() -> None:
    file = io.BytesIO()
    np.savez_compressed(file, x=np.zeros(1 << 16))
    assert len(file.getvalue()) < 4096
    with pytest.raises(LimitError) as caught:
        read_arrays(file, limit_bytes=1 << 16)
    assert caught.value.code == "inputs_too_large"
    many = archive(**{f"x{number}": b"" for number in range(5000)})
    with pytest.raises(LimitError, match="too many tensors"):
        read_arrays(io.BytesIO(many))
