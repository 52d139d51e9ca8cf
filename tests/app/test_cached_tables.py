"""Lists of cached tables: how much one request looks at (SHAPE-1, API-3)."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from app.context import Context
from app.models import service as models
from app.models.schemas import ModelPage
from app.tables import cached
from app.tables.schemas import CachedTablePage


class Models:
    """Thirty models, each of which takes 0.2 s to look at."""

    def __init__(self) -> None:
        self.now = 0.0

    def listed(self, _: Context, cursor: str | None, limit: int) -> ModelPage:
        """A page of one, whose cursor counts."""
        assert limit == 1
        self.now += 0.2
        number = int(cursor or 0) + 1
        return ModelPage(items=[], next_cursor=None if number == 30 else str(number))


class Nothing:
    """A context of nobody."""

    answer_counts = cast(Any, None)

    def send(self) -> None:
        """There are no counts."""


@pytest.mark.parametrize(("cursor", "limit", "following"), [(None, 20, "3"), ("3", 2, "5"), ("28", 20, None)])
def test_a_page_ends_when_its_time_is_up(
    monkeypatch: pytest.MonkeyPatch, cursor: str | None, limit: int, following: str | None
) -> None:
    """All packages of 20 models were opened for one request."""
    known, context = Models(), Nothing()
    context.answer_counts = context
    monkeypatch.setattr(models, "listed", known.listed)
    monkeypatch.setattr(time, "monotonic", lambda: known.now)
    page = cached.cached_tables(cast(Context, context), ["x:1x2"], None, None, cursor, limit)
    assert page == CachedTablePage(items=[], next_cursor=following)
