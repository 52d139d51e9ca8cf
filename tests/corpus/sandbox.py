"""Compilations in child processes with bounded memory and time, so that a crash, a bomb or a hang is a result.

One server process imports the compiler once; each request forks it. The fork lowers its own limits, compiles,
answers through a pipe and ends; the server reports what the fork answered or how it died, and what it used.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Literal, Self

import msgspec

from tests.corpus.case import Accept, Case, Reject

MEMORY_BYTES = 2**30
# Guards against what never ends; no verdict depends on how fast the machine is.
CPU_SECONDS = 1_800
WALL_SECONDS = 3_600
MESSAGE_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a compilation ended.

    `raised` is an exception that is no verdict, `died` a process that ended without an answer. `cpu_s` is the time
    of the compilation alone, `peak_bytes` the largest resident size of the process.
    """

    ended: Literal["accepted", "rejected", "raised", "died"]
    error_type: str = ""
    code: str = ""
    message: str = ""
    flaws: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    cpu_s: float = 0.0
    peak_bytes: int = 0
    stderr: str = ""


class Sandbox:
    """The server process, started on entry and ended on exit."""

    def __init__(self, *, cpu_seconds: int = CPU_SECONDS, wall_seconds: int = WALL_SECONDS) -> None:
        self._limits = {"cpu_seconds": cpu_seconds, "wall_seconds": wall_seconds}

    def __enter__(self) -> Self:
        # one thread, since the server forks; large blocks go back at once, so that the server does not grow
        settings = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": f"{2**20}"}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.corpus.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **settings},
            cwd=Path(__file__).parents[2],
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait()

    def compile(self, data: bytes, options: Mapping[str, object] = MappingProxyType({})) -> Outcome:
        """Compile a file in a fork of the server."""
        return self._ask({"action": "compile", "options": dict(options), **self._limits}, data)

    def probe(self, behaviour: str, *, cpu_seconds: int = CPU_SECONDS, wall_seconds: int = WALL_SECONDS) -> Outcome:
        """Let a fork misbehave on purpose: see `server.PROBES`."""
        return self._ask({"action": behaviour, "cpu_seconds": cpu_seconds, "wall_seconds": wall_seconds}, b"")

    def _ask(self, request: Mapping[str, object], data: bytes) -> Outcome:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        head = json.dumps({**request, "size": len(data)})
        self._server.stdin.write(head.encode() + b"\n" + data)
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        if not answer:
            raise RuntimeError("the sandbox's server ended")
        return msgspec.json.decode(answer, type=Outcome)


def objections(case: Case, outcome: Outcome) -> list[str]:
    """What is wrong with an outcome; empty if it is the verdict that the case expects."""
    found = list(outcome.flaws)
    expected = case.expected
    said = f"{outcome.code}: {outcome.message}" if outcome.code else f"{outcome.error_type} {outcome.message}".strip()
    if outcome.ended in ("raised", "died"):
        found.append(f"{outcome.ended} instead of a verdict: {said} {outcome.stderr[-300:]}".rstrip())
    elif outcome.ended == "accepted":
        if isinstance(expected, Reject):
            found.append(f"accepted, but should be refused with one of {', '.join(sorted(expected.codes))}")
        elif isinstance(expected, Accept):
            found += [f"node {name!r} is not on the host" for name in expected.host if name not in outcome.host]
    elif isinstance(expected, Accept):
        found.append(f"refused, but should compile: {said}")
    else:
        if outcome.code not in expected.codes:
            found.append(f"refused with another code than {', '.join(sorted(expected.codes))}: {said}")
        if isinstance(expected, Reject):
            found += [
                f"the message does not mention {m!r}: {said}" for m in expected.mentions if m not in outcome.message
            ]
    if outcome.peak_bytes > MEMORY_BYTES:
        found.append(f"took {outcome.peak_bytes >> 20} MiB at its peak")
    if outcome.stderr:
        found.append(f"wrote to the error stream: {outcome.stderr[-300:]!r}")
    return found
