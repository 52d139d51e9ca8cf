"""The collector of cycles is paused for a while, and then as it was."""

from __future__ import annotations

import gc
import weakref

import pytest

from compiler.garbage import collect_new, collection_paused


def test_the_collector_runs_again_after_a_pause() -> None:
    with collection_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_runs_again_after_a_failure() -> None:
    with pytest.raises(ValueError, match="failed"), collection_paused():
        raise ValueError("failed")
    assert gc.isenabled()


def test_a_pause_inside_a_pause_does_not_end_it() -> None:
    with collection_paused():
        with collection_paused():
            pass
        assert not gc.isenabled()


class _Node:
    """Something that knows itself."""

    def __init__(self) -> None:
        self.own = self


def test_cycles_that_are_new_are_freed_inside_a_pause() -> None:
    with collection_paused():
        node = _Node()
        known = weakref.ref(node)
        del node
        assert known() is not None
        collect_new()
        assert known() is None
