"""API-3: listings of executables are made in bounded number (issue 24)."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from threading import BoundedSemaphore

import pytest

from app.errors import UnavailableError
from app.simulations.listings import AT_ONCE, SHORT, pieces
from app.store import document_store
from tests.service.executables import executable, file_of
from tests.service.models import network


def test_no_more_listings_are_made_at_once_than_have_room_in_memory(tmp_path: Path) -> None:
    """24 at once took the API to 690 MB."""
    store, makers = document_store(tmp_path), BoundedSemaphore(AT_ONCE)
    digest = store.keep(file_of(executable(network())))
    with ExitStack() as readers:
        for _ in range(AT_ONCE):
            next(readers.enter_context(closing(pieces(store, digest, SHORT, makers))))
        with pytest.raises(UnavailableError) as refused:
            pieces(store, digest, SHORT, makers)
        assert (refused.value.code, refused.value.limit) == ("busy", AT_ONCE)
    with closing(pieces(store, digest, SHORT, makers)) as again:
        assert next(again).startswith(b"segment s0")
