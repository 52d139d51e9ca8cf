"""API-2: which child counts as hung."""

from __future__ import annotations

from app.supervisor.hung import Silence, is_worker
from tests.app.test_leases import Clock

API, BROKER, WORKER = 11, 12, 13
ALL = (API, BROKER, WORKER)


def rounds(silence: Silence, clock: Clock, seconds: int, silent: dict[int, bool | None]) -> list[tuple[float, int]]:
    """One question a second to all children; when which one was found, from now."""
    begun, found = clock.now, []
    for _ in range(seconds):
        clock.now += 1
        pid = silence.look({pid: silent.get(pid, True) for pid in ALL})
        if pid is not None:
            found.append((clock.now - begun, pid))
    return found


def test_a_child_that_answered_and_is_silent_for_its_patience_is_found() -> None:
    clock = Clock()
    silence = Silence(30, clock)
    assert rounds(silence, clock, 100, {}) == []
    assert rounds(silence, clock, 29, {API: False}) == []
    assert rounds(silence, clock, 1, {}) == []  # it answered in time
    assert rounds(silence, clock, 30, {API: False}) == [(30, API)]


def test_a_child_that_never_answered_has_longer_for_its_start() -> None:
    clock = Clock()
    assert rounds(Silence(30, clock), clock, 121, {API: False}) == [(121, API)]


def test_several_silent_children_are_found_one_after_the_other() -> None:
    clock = Clock()
    silence = Silence(30, clock)
    rounds(silence, clock, 2, {})
    assert rounds(silence, clock, 90, dict.fromkeys(ALL, False)) == [(30, API), (60, API), (90, API)]
    silence = Silence(30, clock)
    rounds(silence, clock, 2, {})
    assert rounds(silence, clock, 30, {API: False, WORKER: False}) == [(30, API)]
    assert rounds(silence, clock, 30, {WORKER: False}) == [(30, WORKER)]


def test_a_worker_is_not_silent_while_the_broker_cannot_say() -> None:
    clock = Clock()
    silence = Silence(30, clock)
    rounds(silence, clock, 2, {})
    assert rounds(silence, clock, 29, {WORKER: False}) == []
    assert rounds(silence, clock, 100, {WORKER: None}) == []
    assert rounds(silence, clock, 1, {WORKER: False}) == [(1, WORKER)]


def test_a_machine_that_was_suspended_ends_nothing() -> None:
    clock = Clock()
    silence = Silence(30, clock)
    rounds(silence, clock, 2, {})
    for _ in range(10):
        clock.now += 3600
        assert silence.look(dict.fromkeys(ALL, False)) is None
    assert rounds(silence, clock, 29, dict.fromkeys(ALL, False)) == []


def test_a_worker_is_known_by_the_process_in_its_name() -> None:
    assert is_worker("my-host-13-abcd", 13)
    assert not is_worker("my-host-113-abcd", 13)
    assert not is_worker("my-13-host-12-abcd", 13)
