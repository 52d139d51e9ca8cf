"""The whole of `make stack` with a few jobs, where this machine permits it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.stack.compose import ROOT
from tests.stack.hosts import namespaces
from tests.stack.stack import missing_programs

pytestmark = pytest.mark.service


@pytest.mark.slow
def test_hosts_may_be_lost_and_no_job_is_lost_or_done_otherwise(tmp_path: Path) -> None:
    if missing := missing_programs():
        pytest.skip(f"no {', '.join(missing)}")
    try:
        namespaces()
    except PermissionError as error:
        pytest.skip(str(error))
    words = [sys.executable, "-m", "tests.stack", "--jobs", "4", "--folder", str(tmp_path / "stack")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ratio" in done.stdout
    assert done.stdout.rstrip().endswith("HOLDS")
