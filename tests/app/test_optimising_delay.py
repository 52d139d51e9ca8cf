"""SHAPE-7: what keeps background work out of the way of answers: the pace of optimising, packages opened beforehand."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import redis

from app.settings import Settings
from app.store import document_store
from app.tables.open_packages import OpenPackages
from app.tables.opener import NEWEST_KEY, PackageOpener
from app.tables.optimising_delay import HELD_S, QUIET_S, Pace
from tests.app.test_tables import package_bytes


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_without_requests_tables_are_due_at_once() -> None:
    assert Pace(clock=Clock()).due()


def test_tables_wait_for_a_pause() -> None:
    clock = Clock()
    pace = Pace(clock=clock)
    for _ in range(5):
        pace.asked()
        assert not pace.due()
        clock.now_s += 0.6 * QUIET_S
    assert not pace.due()
    clock.now_s += 0.6 * QUIET_S
    assert pace.due()
    pace.asked()
    assert not pace.due()


def test_tables_do_not_wait_for_a_pause_that_never_comes() -> None:
    clock = Clock()
    pace = Pace(clock=clock)
    found = []
    for _ in range(40):
        pace.asked()
        found.append(pace.due())
        clock.now_s += 0.6 * QUIET_S
    first = found.index(True)
    assert HELD_S <= first * 0.6 * QUIET_S < HELD_S + QUIET_S
    assert all(found[first:])  # what is held back for long is not held back again before there was a pause
    clock.now_s += QUIET_S
    assert pace.due()
    pace.asked()
    assert not pace.due()


def opened_digests(packages: OpenPackages) -> set[str]:
    return set(packages._open)


def test_the_newest_packages_are_opened_once_and_the_rest_are_left(
    client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = document_store(Settings(data_dir=tmp_path).store_dir)
    digest = store.put(package_bytes(8))
    packages = OpenPackages(store, 2)
    opener = PackageOpener(client, packages, 0.01)
    opener.open_newest()
    assert opened_digests(packages) == set()
    # of what is no digest, what the store does not have and what is no package nothing comes, and the rest is opened
    no_package = store.put(b"no package")
    for strange in ("../../etc/passwd", "0" * 64, no_package):
        client.delete(NEWEST_KEY)
        client.zadd(NEWEST_KEY, {strange: 2, digest: 1})
        opener.open_newest()
        assert opened_digests(packages) == {digest}
    strange = store.put(package_bytes(8, summed=("of no range",)))
    client.delete(NEWEST_KEY)
    client.zadd(NEWEST_KEY, {strange: 1, digest: 2})
    packages.close()
    opener = PackageOpener(client, packages, 0.01)
    opener.open_newest()  # the older one, opened first, has no tables
    assert opened_digests(packages) == {strange, digest}
    packages.close()
    opener.open_newest()
    assert opened_digests(packages) == set()  # neither is tried again
    client.zadd(NEWEST_KEY, {"1" * 64: 3, "2" * 64: 4})
    packages.close()
    opener.open_newest()
    assert opened_digests(packages) == set()  # it is not among the newest two any more
    client.delete(NEWEST_KEY)
    client.zadd(NEWEST_KEY, {digest: 5})
    opener.start()
    try:
        give_up_at = time.monotonic() + 20
        while not opened_digests(packages) and time.monotonic() < give_up_at:
            time.sleep(0.01)
        assert opened_digests(packages) == {digest}
        reads: list[str] = []
        monkeypatch.setattr(packages, "get", lambda wanted: reads.append(wanted))
        time.sleep(0.1)
        assert reads == []
    finally:
        opener.stop()
    packages.close()
