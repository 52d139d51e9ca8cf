"""Children end within their limits, and say how."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

from tests.zoo.children import Limits, Outcome, run_all

LIMITS = Limits(cpu_s=1, memory_bytes=2**33)


def outcome_of(task: Any) -> Outcome:
    """What comes of one task."""
    ((_, outcome),) = run_all([("task", task)], LIMITS, workers=1)
    return outcome


def _spin() -> None:
    while True:
        pass


def _grow() -> int:
    return np.ones(2**34, np.int8).nbytes


def test_a_value_comes_back_with_the_time_it_took() -> None:
    outcome = outcome_of(lambda: {"answer": 42})
    assert (outcome.ended, outcome.value) == ("done", {"answer": 42})
    assert outcome.cpu_s >= 0


def test_an_exception_comes_back_as_its_message_and_trace() -> None:
    outcome = outcome_of(lambda: 1 // 0)
    assert outcome.ended == "failed"
    assert outcome.detail == "ZeroDivisionError: integer division or modulo by zero"
    assert "Traceback" in outcome.value


def test_a_task_without_end_is_killed_by_its_processor_time() -> None:
    outcome = outcome_of(_spin)
    assert outcome.ended == "time"
    assert 0.5 < outcome.cpu_s < 5


def test_a_task_that_takes_too_much_memory_ends_as_memory() -> None:
    assert outcome_of(_grow).ended == "memory"


def test_a_task_that_kills_its_process_is_said_to_have_died() -> None:
    outcome = outcome_of(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert (outcome.ended, outcome.detail) == ("died", "ended by SIGKILL")


def test_a_run_that_is_abandoned_ends_the_children_that_are_left() -> None:
    started: list[int] = []
    results = run_all([("quick", os.getpid), ("slow", lambda: time.sleep(600))], LIMITS, workers=2)
    for _, outcome in results:
        started.append(outcome.value)
        break
    before = time.monotonic()
    results.close()  # type: ignore[attr-defined]
    assert time.monotonic() - before < 60
    assert started[0] != os.getpid()
