"""Which cases of the large matrices a run takes: `--matrices first | rest | all` (pytest's own option for `make`).

A matrix is one check over many cases: files of the corpus, networks times chips, tests of the ONNX backend suite. Its
tests carry `pytest.mark.matrix(first=N, rest=M)`. Cases are ranked by a hash of their name under a fixed seed, so the
choice is the same everywhere and stays when cases are added: `make test` runs the first N, `make test-sample` the M
after these, `make test-all` all. What carries `slow` (whole processes or networks, for many seconds) is run by
`make test-sample` too, and by `make test` not; what carries `full` (minutes of one case, or many seconds where quicker
cases show much of it) by `make test-all` alone.
A property that takes long is decorated with `tries`: both run it, `make test` with fewer examples.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, Literal

import hypothesis
import pytest

Extent = Literal["first", "rest", "all"]
SEED: Final = 22
# The profile of Hypothesis that `make test` has.
FEWER: Final = "fewer"


def add_option(parser: pytest.Parser) -> None:
    """Add `--matrices`; without it every collected test runs."""
    parser.addoption(
        "--matrices",
        choices=("first", "rest", "all"),
        default="all",
        help="cases of large matrices: the first few and quick tests; the sampled rest and slow ones; everything",
    )


def tries(first: int, rest: int) -> Callable[[Any], Any]:
    """How many examples a property tries: `first` in `make test`, otherwise `rest`."""
    count = first if hypothesis.settings.get_current_profile_name() == FEWER else rest
    return lambda test: pytest.mark.tries(hypothesis.settings(max_examples=count)(test))


def rank(name: str) -> bytes:
    """The place of a case among those of its matrix."""
    return hashlib.sha256(f"{SEED} {name}".encode()).digest()


def select(items: list[pytest.Item], extent: Extent) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The items that a run of this extent takes, and those it leaves, both in their order."""
    if extent == "all":
        return items, []
    matrices: dict[str, list[pytest.Item]] = defaultdict(list)
    taken: set[str] = set()
    for item in items:
        if item.get_closest_marker("full") is not None:
            continue
        marker = item.get_closest_marker("matrix")
        if marker is not None:
            matrices[marker.kwargs.get("name", item.nodeid.partition("[")[0])].append(item)
        elif item.get_closest_marker("tries") or (item.get_closest_marker("slow") is not None) == (extent == "rest"):
            taken.add(item.nodeid)
    for cases in matrices.values():
        marker = cases[0].get_closest_marker("matrix")
        assert marker is not None
        first, rest = marker.kwargs["first"], marker.kwargs["rest"]
        ranked = sorted(cases, key=lambda item: rank(item.nodeid))
        chosen = ranked[:first] if extent == "first" else ranked[first : first + rest]
        taken.update(item.nodeid for item in chosen)
    return [item for item in items if item.nodeid in taken], [item for item in items if item.nodeid not in taken]
