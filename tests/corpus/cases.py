"""All cases of the corpus, theme by theme."""

from __future__ import annotations

from typing import Final

from tests.corpus import (
    bombs,
    branches,
    bytes_,
    counts,
    dims,
    external,
    functions,
    loops,
    names,
    operands,
    scale,
    shapes,
    structure,
    tars,
    tensors,
    versions,
    zips,
)
from tests.corpus.case import Case

CASES: Final[tuple[Case, ...]] = (
    *bytes_.CASES,
    *versions.CASES,
    *structure.CASES,
    *names.CASES,
    *operands.CASES,
    *tensors.CASES,
    *dims.CASES,
    *shapes.CASES,
    *functions.CASES,
    *branches.CASES,
    *loops.CASES,
    *external.CASES,
    *zips.CASES,
    *tars.CASES,
    *bombs.CASES,
    *counts.CASES,
    *scale.CASES,
)
