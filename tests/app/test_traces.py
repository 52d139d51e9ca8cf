"""Traces are made in a process of their own, so many at a time, and its end gives its place back (SIM-4, API-4)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from threading import BoundedSemaphore

import pytest

from app.errors import UnavailableError
from app.simulations import traces
from app.store import document_store
from compiler.compile import compile_model
from compiler.errors import InternalError, LimitError
from compiler.profile import builtin_profile
from compiler.program.executable import read, write
from compiler.program.timing.trace import trace_of
from tests.compiler.planning import BY_RULES
from tests.models import Model


def executable() -> bytes:
    """A convolution for edge4."""
    model = Model()
    model.output(model.conv(model.input([1, 3, 16, 16], "x"), 3, 8))
    found = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).executable
    assert found is not None
    return b"".join(write(found))


def test_a_trace_made_apart_is_the_same(tmp_path: Path) -> None:
    data = executable()
    store = document_store(tmp_path)
    found = traces.pieces(store, store.put(data), 100, 30, BoundedSemaphore(1))
    assert b"".join(found) == b"".join(trace_of(read(data), limit=100))


@pytest.mark.slow
def test_places_are_given_back_when_a_trace_has_been_read_given_up_or_failed(tmp_path: Path) -> None:
    store, makers = document_store(tmp_path), BoundedSemaphore(1)
    digest = store.put(executable())
    held = traces.pieces(store, digest, 100, 30, makers)
    with pytest.raises(UnavailableError, match="too many traces"):
        traces.pieces(store, digest, 100, 30, makers)
    list(held)
    given_up = traces.pieces(store, digest, 100, 30, makers)
    next(given_up)
    given_up.close()
    with pytest.raises(InternalError, match="missing"):
        traces.pieces(store, "0" * 64, 100, 30, makers)
    with pytest.raises(LimitError):
        traces.pieces(store, store.put(b"nothing of ours"), 100, 30, makers)
    assert makers.acquire(blocking=False)


def test_what_ended_a_trace_is_named() -> None:
    error = traces._error(b"", -signal.SIGALRM, 3)
    assert (error.code, error.limit) == ("time_limit", "3 s")
    told = traces._error(b'noise\n{"code": "memory_limit", "message": "too large"}\n', 1, 3)
    assert (told.code, told.message) == ("memory_limit", "too large")


def test_a_trace_that_is_not_made_to_its_end_does_not_look_whole(tmp_path: Path) -> None:
    """The time ends while pieces are read: the reader is told, by an error in the middle."""
    script = "import signal, sys; sys.stdout.write('x' * 99); sys.stdout.flush(); signal.raise_signal(signal.SIGALRM)"
    seen: list[bytes] = []
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as child:
        rest = map(seen.append, traces._rest(child, 30))
        with pytest.raises(LimitError) as caught:
            list(rest)
    assert b"".join(seen) == b"x" * 99
    assert caught.value.code == "time_limit"
