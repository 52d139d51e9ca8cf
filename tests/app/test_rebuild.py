"""Pushed libraries are built again in a process with limits; what it refuses says what to do next (SHAPE-1, API-4)."""

from __future__ import annotations

import hashlib
import json
import struct
from threading import BoundedSemaphore

import pytest

from app.errors import UnavailableError
from app.units import rebuild
from compiler.errors import LimitError, RequestError
from compiler.profile import builtin_profile
from compiler.unit_key import UNIT_FORMAT

PROFILE = builtin_profile("edge4")


def library(**changes: object) -> bytes:
    """A library value of a graph that is none, its checksum right."""
    header = {"signature": "s", "size": "", "profile": "p", "resident_bytes": 0, "dtype": "float32", "units": []}
    text = json.dumps({**header, "graph": {"ops": [["Relu"]]}, **changes}).encode()
    return struct.pack("<4sHI32s", b"TSRL", UNIT_FORMAT, len(text), hashlib.sha256(text).digest()) + text


def test_one_library_is_built_at_a_time() -> None:
    makers = BoundedSemaphore(1)
    with makers, pytest.raises(UnavailableError) as caught:
        rebuild.rebuilt_bundle(library(), PROFILE, makers)
    assert (caught.value.code, bool(caught.value.hint)) == ("busy", True)


def test_a_refusal_of_the_process_arrives_whole_and_makes_room() -> None:
    makers = BoundedSemaphore(1)
    for _ in range(2):
        with pytest.raises(RequestError) as caught:
            rebuild.rebuilt_bundle(library(), PROFILE, makers)
        assert (caught.value.code, caught.value.actual) == ("invalid_units", "KeyError: 'tensors'")
        assert caught.value.hint == "Push units that the same version of Tessera made"


def test_a_library_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/sh")
    monkeypatch.setattr(rebuild, "_ARGUMENTS", ("-c", "kill -ALRM $$"))
    with pytest.raises(LimitError) as caught:
        rebuild.rebuilt_bundle(library(), PROFILE, BoundedSemaphore(1))
    assert (caught.value.code, "Compile a model" in str(caught.value.hint)) == ("time_limit", True)
