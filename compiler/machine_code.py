"""Compiles functions to machine code (numba): loops over numbers that neither numpy nor Python is quick at.

The one place that says where machine code is stored. It is compiled when Tessera is set up (`python -m
compiler.kernels`) and loaded from then on; see `_Stored` for the folders.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import numba
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, InTreeCacheLocator, NullCache


def compiled(signature: str | None = None) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: the function in machine code for arguments of these types, loaded or else compiled at once.

    Arguments of other types work too, but compile the function again when they first come. A function without a
    signature can be called by functions of its own file only, as a part of their code. Whatever a function calls has to
    be in its own file: stored machine code is used until that file changes. Other threads go on while a function runs.
    """

    def compile_now(function: Callable[..., Any]) -> Any:
        dispatcher: Any = numba.njit(nogil=True, error_model="numpy")(function)
        if signature is not None and not config.DISABLE_JIT:  # type: ignore[attr-defined]
            dispatcher._cache = _Stored(function)
            dispatcher.compile(signature)
        return dispatcher

    return compile_now


class _Stored(NullCache):
    """The stored machine code of one function.

    It is written to the first of these folders that can be written: the one that NUMBA_CACHE_DIR names, `__pycache__`
    beside the source file, numba's folder in the user's cache. It is also read from `__pycache__` where that cannot be
    written: a read-only installation brings its machine code along. Without any folder each process compiles anew.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._own: FunctionCache | None = None
        with suppress(RuntimeError):  # numba's word for: no folder can be written
            self._own = FunctionCache(function)
        self._installed = _InstalledCache(function)

    @property
    def cache_path(self) -> Any:
        """The folder that is written."""
        return self._installed.cache_path if self._own is None else self._own.cache_path

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The machine code for these types and this processor, or None."""
        for cache in (self._own, self._installed):
            found = None if cache is None else cache.load_overload(sig, target_context)
            if found is not None:
                return found
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store it; a full disk is no reason to fail."""
        if self._own is not None:
            with suppress(OSError):
                self._own.save_overload(sig, data)


class _InstalledLocator(InTreeCacheLocator):
    """`__pycache__` beside the source file, whether or not it can be written."""

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Self:
        """The place for a function; numba's own locator refuses folders that it cannot write."""
        return cls(py_func, py_file)


class _InstalledFiles(CompileResultCacheImpl):
    _locator_classes = (_InstalledLocator,)  # type: ignore[assignment]


class _InstalledCache(FunctionCache):
    _impl_class = _InstalledFiles
