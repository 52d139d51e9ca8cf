"""API-2: the log of a supervised process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from app.supervisor import child
from app.supervisor.child import Child
from tests.service.harness import until


def started(log: Path, program: str) -> Child:
    found = Child(name="talker", program=[sys.executable, "-u", "-c", program], log_path=log, environment=os.environ)
    found.start()
    return found


def test_a_log_goes_on_after_it_could_not_be_written(tmp_path: Path) -> None:
    """After a full disk nothing was logged until the process was started again."""
    log, said = tmp_path / "talker.log", tmp_path / "said"
    log.symlink_to("/dev/full")
    program = (
        f"import time, pathlib\nwhile True: print('x' * 60_000); pathlib.Path({str(said)!r}).touch(); time.sleep(0.1)"
    )
    talker = started(log, program)
    until(said.exists, "more than a pipe holds to be said")
    log.unlink()  # there is space again
    until(lambda: log.exists() and log.stat().st_size, "the log")
    talker.wait(0)


def test_a_log_keeps_one_predecessor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_LOG_BYTES", 1000)
    log = tmp_path / "talker.log"
    talker = started(log, "import time\nfor n in range(30): print(n, '-' * 90); time.sleep(0.01)")
    until(lambda: not talker.running(), "its end")
    talker.wait(5)
    before = log.with_suffix(".1.log")
    until(lambda: log.read_text().split("\n")[-2].startswith("29 "), "the last line")
    assert log.stat().st_size <= 1000
    assert before.stat().st_size <= 1000
