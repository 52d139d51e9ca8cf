"""API-5: a lease ends by the clock of who watches it."""

from __future__ import annotations

from dataclasses import dataclass

from app.jobs.leases import LeaseWatch


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_lease_is_silent_when_its_sign_of_life_is_the_same_for_its_time() -> None:
    clock = Clock()
    watch = LeaseWatch(4.0, clock)
    for second in range(5):
        assert watch.silent() == []
        watch.look({"dead": 7.0, "alive": float(second)})
        clock.now += 1
    assert watch.silent() == [("dead", 7.0, 4.0)]
    watch.look({"alive": 9.0})
    assert watch.silent() == []


def test_a_watcher_that_was_held_up_gives_workers_time_for_a_sign_of_life() -> None:
    clock = Clock()
    watch = LeaseWatch(4.0, clock)
    watch.look({"suspended": 1.0})
    clock.now += 3600
    watch.look({"suspended": 1.0})
    assert watch.silent() == []
    watch.look({"suspended": 2.0})
    for _ in range(3):
        clock.now += 3600
        watch.look({"suspended": 2.0})
    assert watch.silent() == []
    clock.now += 3600
    watch.look({"suspended": 2.0})
    assert watch.silent() == [("suspended", 2.0, 4.0)]
