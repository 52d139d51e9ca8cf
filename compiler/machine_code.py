"""Functions in machine code: loops over numbers that neither numpy nor Python is quick at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Any:
    """The function in machine code, kept from one process to the next where some folder can be written.

    Other threads go on while it runs. What it calls has to be in its own file: a cache of machine code does not see
    that another file has changed.
    """
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:
        return numba.njit(nogil=True, error_model="numpy")(function)
