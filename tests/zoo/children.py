"""Tasks in forked children that are killed when they take too long or too much; several side by side."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final, Literal

Ended = Literal["done", "failed", "time", "memory", "died"]
# Another process may hold the processor: this much more time than `cpu_s` may pass on the wall.
_WALL_PER_CPU: Final = 12
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one child may use: seconds of processor time, and bytes of address space."""

    cpu_s: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a child ended: `value` if it returned one, `detail` in words if it did not."""

    ended: Ended
    value: Any
    detail: str
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Child:
    name: str
    pid: int
    pipe: Connection
    ends_at: float


def run_all(
    tasks: Iterable[tuple[str, Callable[[], Any]]], limits: Limits, *, workers: int
) -> Iterator[tuple[str, Outcome]]:
    """Run named tasks, `workers` at a time, each in a child of its own; (name, outcome) in the order they end.

    What a task returns must be plain JSON.
    """
    waiting = iter(tasks)
    running: dict[Connection, _Child] = {}
    try:
        while True:
            while len(running) < workers and (task := next(waiting, None)) is not None:
                child = _start(*task, limits)
                running[child.pipe] = child
            if not running:
                return
            now = time.monotonic()
            soonest = min(child.ends_at for child in running.values())
            ready = wait(list(running), timeout=max(0.0, soonest - now))
            for child in list(running.values()):
                if child.pipe in ready or child.ends_at <= time.monotonic():
                    del running[child.pipe]
                    yield child.name, _finish(child, answered=child.pipe in ready)
    finally:
        for child in running.values():
            _finish(child, answered=False)


def _start(name: str, task: Callable[[], Any], limits: Limits) -> _Child:
    receiver, sender = Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        receiver.close()
        _work(task, limits, sender)
    sender.close()
    return _Child(name=name, pid=pid, pipe=receiver, ends_at=time.monotonic() + _WALL_PER_CPU * limits.cpu_s)


def _work(task: Callable[[], Any], limits: Limits, sender: Connection) -> None:
    """In the child: bound it, do the task, answer, and never return."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a killed parent leaves no orphan
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        answer = {"ended": "done", "value": task()}
    except MemoryError:
        answer = {"ended": "memory", "detail": "more memory than it may take"}
    except BaseException as error:  # noqa: BLE001 - whatever a model library raises is this task's result
        answer = {"ended": "failed", "detail": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    sender.send_bytes(json.dumps(answer).encode())
    os._exit(0)


def _finish(child: _Child, *, answered: bool) -> Outcome:
    """Take the child's answer, end it and all that it started, and say how it ended."""
    data = b""
    if answered:
        try:
            data = child.pipe.recv_bytes()
        except EOFError:
            data = b""
    else:
        _kill(child.pid)
    child.pipe.close()
    _, status, usage = os.wait4(child.pid, 0)
    cpu_s = usage.ru_utime + usage.ru_stime
    if data:
        answer = json.loads(data)
        detail = answer.get("detail", "")
        return Outcome(
            ended=answer["ended"], value=answer.get("value", answer.get("trace")), detail=detail, cpu_s=cpu_s
        )
    killer = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if not answered or killer == signal.SIGXCPU:
        return Outcome(ended="time", value=None, detail="more time than it may take", cpu_s=cpu_s)
    detail = f"ended by {signal.Signals(killer).name}" if killer else f"ended with status {status}"
    return Outcome(ended="died", value=None, detail=detail, cpu_s=cpu_s)


def _kill(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(pid, signal.SIGKILL)
