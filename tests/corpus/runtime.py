"""What ONNX Runtime makes of a file: asked in a process of its own, with bounded memory and time.

Feeds are made up from the declared inputs: free dimensions, numbers and ranks are tried until the model runs.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from multiprocessing.connection import Connection
from typing import Any, Final, Literal

MEMORY_BYTES: Final = 6 * 2**30
CPU_SECONDS: Final = 60
WALL_SECONDS: Final = 180
_EXTENTS: Final = (1, 2, 4, 64)
_NUMBERS: Final = (1, 0, 2)
# The axes of an input that is a number, or whose rank the model does not state: ONNX Runtime shows both alike.
_RANKS: Final = (0, 4, 2, 1, 3)
# One input made up takes at most so many elements.
_ELEMENTS: Final = 2**29
_NAMES: Final = {"float": "float32", "double": "float64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How far ONNX Runtime came with a file, and its words where that is not to the end."""

    came: Literal["refused", "loaded", "ran", "died"]
    words: str = ""


def ask(data: bytes, dims: Mapping[str, int]) -> Answer:
    """Let ONNX Runtime load and run a file; `dims` are the extents of named dimensions."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["onnxruntime"])
    reading, writing = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(data, dict(dims), writing))
    child.start()
    writing.close()
    found = Answer(came="died", words="it did not end in time")
    try:
        if reading.poll(WALL_SECONDS):
            found = reading.recv()
        else:
            child.kill()
    except EOFError:
        child.join()
        found = Answer(came="died", words=f"exit code {child.exitcode}")
    child.join()
    child.close()
    return found


def _answer(data: bytes, dims: Mapping[str, int], answers: Connection) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    answers.send(_asked(data, dims))


def _asked(data: bytes, dims: Mapping[str, int]) -> Answer:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - its errors have no base of their own
        return Answer(came="refused", words=_line(error))
    words = ""
    for feeds in _feeds(session, dims):
        try:
            session.run(None, feeds())
        except Exception as error:  # noqa: BLE001 - as above, and what making up inputs raises
            words = words or _line(error)
        else:
            return Answer(came="ran")
    return Answer(came="loaded", words=words)


def _feeds(session: Any, dims: Mapping[str, int]) -> Iterator[Any]:
    """Makers of inputs, the likeliest to run first."""
    for rank, extent, number in product(_RANKS, _EXTENTS, _NUMBERS):
        yield lambda rank=rank, extent=extent, number=number: {
            value.name: _made_up(value.type, value.shape, dims, rank, extent, number) for value in session.get_inputs()
        }


def _made_up(kind: str, shape: Any, dims: Mapping[str, int], rank: int, extent: int, number: int) -> Any:
    import numpy as np

    for prefix in ("seq(", "optional("):
        if kind.startswith(prefix):
            inner = _made_up(kind[len(prefix) : -1], shape, dims, rank, extent, number)
            return [inner] if prefix == "seq(" else inner
    declared = shape or [extent] * rank
    extents = [one if isinstance(one, int) and one >= 0 else dims.get(str(one), extent) for one in declared]
    if np.prod([float(one) for one in extents]) > _ELEMENTS:
        raise MemoryError(f"an input of extents {extents} is not made up")
    name = _NAMES.get(kind.removeprefix("tensor(")[:-1], kind.removeprefix("tensor(")[:-1])
    if name == "string":
        return np.full(extents, str(number), dtype=object)
    if name.startswith("float"):
        return np.random.default_rng(0).standard_normal(extents, dtype=np.float32).astype(name)
    return np.full(extents, number).astype(name)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[-200:]
