"""The limit on the threads of numerical libraries."""

from __future__ import annotations

import pytest
import threadpoolctl

from compiler.threads import one_thread


def test_limiting_threads_walks_over_the_libraries_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk can wait for ever for a thread that loads a library meanwhile."""
    with one_thread():
        pass
    walks = []
    walk = threadpoolctl.ThreadpoolController._load_libraries

    def counted(self: threadpoolctl.ThreadpoolController) -> None:
        walks.append(self)
        walk(self)

    monkeypatch.setattr(threadpoolctl.ThreadpoolController, "_load_libraries", counted)
    for _ in range(3):
        with one_thread():
            pass
    assert walks == []
