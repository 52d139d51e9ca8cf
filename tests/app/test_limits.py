"""Bounds of what runs in this process."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Mapping
from typing import Any

import pytest

from app.limits import bounded
from compiler.errors import InternalError, LimitError


def test_a_limit_that_runs_out_in_a_callback_of_the_collector_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the error of the first alarm is lost."""
    heard: list[str] = []
    unraisable: list[str] = []
    # pytest's own formats a traceback, in the middle of which the next alarm may ring
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: unraisable.append(type(lost.exc_value).__name__))

    def callback(phase: str, _info: Mapping[str, Any]) -> None:
        if phase == "start" and not heard:
            try:
                time.sleep(0.3)
            except LimitError:
                heard.append("lost")
                raise

    gc.callbacks.append(callback)
    try:
        with pytest.raises(LimitError) as caught:
            _collect_and_sleep()
    finally:
        gc.callbacks.remove(callback)
    assert heard == ["lost"]
    assert set(unraisable) == {"LimitError"}  # of a slow machine the second one, too, may be lost
    assert caught.value.code == "time_limit"


def _collect_and_sleep() -> None:
    with bounded(0.05, None):
        gc.collect()
        time.sleep(5)


@pytest.mark.parametrize("error", [SystemError("a call returned with an error set"), InternalError("a pass failed")])
def test_what_a_library_makes_of_the_alarm_is_the_limit(error: Exception) -> None:
    with pytest.raises(LimitError) as caught:
        _late(error)
    assert caught.value.code == "time_limit"


def _late(error: Exception) -> None:
    with bounded(0.05, None):
        try:
            time.sleep(5)
        except LimitError as alarm:
            raise error from alarm


def test_an_error_before_the_limit_stays_itself() -> None:
    with pytest.raises(InternalError), bounded(60, None):
        raise InternalError("a pass failed")
