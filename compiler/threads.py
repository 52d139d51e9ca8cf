"""How many threads numerical libraries use: one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

import numpy as np  # noqa: F401  (its libraries are to be found)
from threadpoolctl import ThreadpoolController

# The numerical libraries of the process, looked for once. Looking takes a lock of the dynamic loader and asks for
# symbols, which takes another one: where a thread of some library loads one meanwhile, both may wait for ever.
_LIBRARIES: Final = ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """A context in which the matrix products of numpy run on one thread, in the whole process.

    A program is thousands of small products: handing these to other threads costs more than they take, and where
    several compilations run side by side, each with a thread per core, waiting threads take the cores away (ten times
    slower on two cores). The limit is the process's: contexts that overlap in several threads may leave it at one.
    """
    limited: AbstractContextManager[object] = _LIBRARIES.limit(limits=1, user_api="blas")
    return limited
