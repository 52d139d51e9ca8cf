"""Which cases of a matrix each of the three test targets takes."""

from __future__ import annotations

import pytest
from _pytest.nodes import Item

from tests.matrices import Extent, rank, select


class Case(Item):
    """A collected test without a body."""

    def runtest(self) -> None:
        """Do nothing."""


def collected(request: pytest.FixtureRequest) -> list[pytest.Item]:
    """Ten cases of a matrix, two marked `full`, and four tests outside it."""

    def case(name: str, *marks: pytest.MarkDecorator) -> pytest.Item:
        made = Case.from_parent(request.session, name=name, nodeid=name)
        for mark in marks:
            made.add_marker(mark)
        return made

    matrix = pytest.mark.matrix(first=2, rest=3)
    tried = case("test_tried", pytest.mark.tries)
    cases = [case(f"test_case[{n}]", matrix, *[pytest.mark.full] * (n > 7)) for n in range(10)]
    return [*cases, case("test_full", pytest.mark.full), case("test_slow", pytest.mark.slow), case("test_plain"), tried]


def names(request: pytest.FixtureRequest, extent: Extent) -> list[str]:
    """The names of what a run takes; what it leaves is the rest, each once."""
    items = collected(request)
    taken, left = select(items, extent)
    assert sorted(item.name for item in (*taken, *left)) == sorted(item.name for item in items)
    return [item.name for item in taken]


def test_the_first_cases_and_the_rest_are_the_best_ranked_and_none_twice(request: pytest.FixtureRequest) -> None:
    ranked = sorted((f"test_case[{n}]" for n in range(8)), key=rank)
    assert set(names(request, "first")) == {*ranked[:2], "test_plain", "test_tried"}
    assert set(names(request, "rest")) == {*ranked[2:5], "test_slow", "test_tried"}


def test_all_takes_what_is_slow_too(request: pytest.FixtureRequest) -> None:
    assert len(names(request, "all")) == 14
