"""A short sample of `make chaos`, of the faults that need only Python (issue 24)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.__main__ import embedded
from tests.chaos.work import plan

pytestmark = [pytest.mark.service, pytest.mark.slow]


def test_kills_freezes_and_damaged_blobs_lose_change_and_repeat_nothing(tmp_path: Path) -> None:
    ledger = embedded(tmp_path, plan(24, 14), 16, 24, preload=False)
    assert ledger.violations == {}
    assert len(ledger.accepted) >= 14
    assert sum(count for name, count in ledger.counts.items() if name.startswith("fault: ")) == 16
