"""The process behind `Sandbox`: reads requests from standard input, forks for each, writes what became of the fork."""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from compiler.compile import compile_model
from compiler.errors import InternalError, TesseraError
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.report.plan import plan_json, report_json
from tests.corpus.build import small_file
from tests.corpus.sandbox import MEMORY_BYTES, MESSAGE_CHARACTERS

_PROFILE: Final = "cluster4x4"
_KEPT_BYTES: Final = 4_096


def _compile(data: bytes, options: Mapping[str, object]) -> dict[str, object]:
    """Compile, and hold the answer or the refusal against what every one of them owes its reader."""
    profile = builtin_profile(_PROFILE)
    begin = time.process_time()
    try:
        # a verdict is the compiler's own: hostile values may end ONNX Runtime's process, as in a killed worker's child
        compilation = compile_model(data, profile, parse_options({"verify": "none"} | dict(options)))
        documents = plan_json(compilation.plan), report_json(compilation.report)
    except TesseraError as error:
        spent = time.process_time() - begin
        ended = "raised" if isinstance(error, InternalError) else "rejected"
        return {
            "ended": ended,
            "cpu_s": spent,
            "error_type": type(error).__name__,
            "code": error.code,
            "message": str(error),
            "flaws": _flaws(error),
        }
    spent = time.process_time() - begin
    for document in documents:
        json.loads(document)
    host = [node for part in compilation.plan.segments if part.kind == "host" for node in part.nodes]
    return {"ended": "accepted", "cpu_s": spent, "host": [name for name in host if len(name) < 200]}


def _flaws(error: TesseraError) -> list[str]:
    """What a refusal lacks: one bounded printable line, and a form that JSON carries."""
    text = str(error)
    flaws = []
    if not text.isprintable():
        flaws.append(f"the message holds characters that are not printable: {text[:200]!r}")
    if len(text) >= MESSAGE_CHARACTERS:
        flaws.append(f"the message has {len(text)} characters")
    try:
        json.dumps(error.to_dict(), allow_nan=False).encode()
        json.dumps(error.to_dict(), ensure_ascii=False).encode()
    except (TypeError, ValueError) as cause:
        flaws.append(f"the error's form is no JSON: {cause}")
    return flaws


def _hang(*_: object) -> dict[str, object]:
    while True:
        pass


def _sleep(*_: object) -> dict[str, object]:
    time.sleep(3_600)
    return {}


def _allocate(*_: object) -> dict[str, object]:
    return {"ended": "accepted", "host": [f"{len(block)}" for block in [b"\1" * 2**20 for _ in range(2_000)]]}


def _stay_large(*_: object) -> dict[str, object]:
    block = b"\1" * (MEMORY_BYTES * 3 // 4)
    return {"ended": "accepted", "message": str(len(block))}


def _crash(*_: object) -> dict[str, object]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def _raise(*_: object) -> dict[str, object]:
    raise ZeroDivisionError("on purpose")


def _write(*_: object) -> dict[str, object]:
    print("Traceback (most recent call last):", file=sys.stderr, flush=True)
    return {"ended": "accepted"}


class _FlawedError(TesseraError):
    """A refusal that breaks every promise of its form."""

    def __str__(self) -> str:
        return "\x1b[31m\n" * MESSAGE_CHARACTERS

    def to_dict(self) -> dict[str, object]:
        return {"actual": b"bytes"}


def _flawed(*_: object) -> dict[str, object]:
    return {"ended": "rejected", "flaws": _flaws(_FlawedError("flawed"))}


PROBES: Final[Mapping[str, Callable[..., dict[str, object]]]] = MappingProxyType(
    {
        "hang": _hang,
        "sleep": _sleep,
        "allocate": _allocate,
        "stay-large": _stay_large,
        "crash": _crash,
        "raise": _raise,
        "write": _write,
        "flawed": _flawed,
    }
)


def _answer(request: Mapping[str, Any], data: bytes) -> dict[str, object]:
    """The fork's answer; whatever is raised becomes one."""
    try:
        if request["action"] == "compile":
            return _compile(data, request["options"])
        return PROBES[request["action"]]()
    except BaseException as error:  # noqa: BLE001 - that nothing escapes is the point
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
        return {"ended": "raised", "error_type": type(error).__name__, "message": f"{str(error)[:500]}{where}"}


def _fork(request: Mapping[str, Any], data: bytes) -> dict[str, object]:
    """Fork, wait for the answer, and add what the fork used."""
    reading, writing = os.pipe()
    errors = os.memfd_create("errors")
    address_space = _address_space() + MEMORY_BYTES
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_seconds"], request["cpu_seconds"] + 5))
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(_answer(request, data)).encode())
        os._exit(0)
    os.close(writing)
    text = _read(reading, child, request["wall_seconds"])
    _, status, used = os.wait4(child, 0)
    stderr = os.pread(errors, _KEPT_BYTES, 0).decode("utf-8", "replace")
    os.close(errors)
    answer: dict[str, object] = {"cpu_s": used.ru_utime + used.ru_stime}
    if text and os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
        answer.update(json.loads(text))
    elif os.WIFSIGNALED(status):
        answer.update(ended="died", error_type=signal.Signals(os.WTERMSIG(status)).name)
    else:
        answer.update(ended="died", error_type=f"exit status {os.WEXITSTATUS(status)}")
    return {**answer, "peak_bytes": used.ru_maxrss * 1024, "stderr": stderr}


def _read(pipe: int, child: int, wall_seconds: float) -> bytes:
    """What the fork writes until it ends; the fork is killed when the time is up."""
    deadline = time.monotonic() + wall_seconds
    out = bytearray()
    with os.fdopen(pipe, "rb", buffering=0) as stream:
        while True:
            ready, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                os.kill(child, signal.SIGKILL)
                return bytes(out)
            block = stream.read(2**16)
            if not block:
                return bytes(out)
            out += block


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def main() -> int:
    """Serve until standard input ends."""
    compile_model(small_file(), builtin_profile(_PROFILE))  # imports and schema tables that come with the first use
    gc.freeze()
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while line := requests.readline():
        request = json.loads(line)
        data = requests.read(request["size"])
        answers.write(json.dumps(_fork(request, data)).encode() + b"\n")
        answers.flush()
        del data
    return 0


if __name__ == "__main__":
    sys.exit(main())
