"""How many threads numerical libraries use: one."""

from __future__ import annotations

from contextlib import AbstractContextManager

from threadpoolctl import threadpool_limits


def one_thread() -> AbstractContextManager[object]:
    """A context in which the matrix products of numpy run on one thread, in the whole process.

    A program is thousands of small products: handing these to other threads costs more than they take, and where
    several compilations run side by side, each with a thread per core, waiting threads take the cores away (ten times
    slower on two cores). The limit is the process's: contexts that overlap in several threads may leave it at one.
    """
    limited: AbstractContextManager[object] = threadpool_limits(limits=1, user_api="blas")
    return limited
