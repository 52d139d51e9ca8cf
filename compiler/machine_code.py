"""Compiles functions to machine code (numba): loops over numbers that neither numpy nor Python is quick at.

The one place that says where machine code is stored. It is compiled when Tessera is set up (`python -m
compiler.kernels`) and loaded from then on; see `_Stored` for the folders.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from inspect import getfile
from typing import Any, Self, get_type_hints

import numba
import numpy as np
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, InTreeCacheLocator, NullCache
from numba.core.dispatcher import Dispatcher
from numpy.typing import NDArray


def compiled(signature: Any = None, *, allocates: bool = True) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: the function in machine code for arguments of these types, loaded or else compiled at once.

    `signature`: numba's text for it, or `types_of`. Arguments of other types work too, but compile the function again
    when they first come. A function without a signature can be called by other compiled functions only, as a part of
    their code. Stored machine code is used until a file changes that has the function, or one that it calls. Other
    threads go on while a function runs. Without `allocates` it makes no arrays, and none of those that it is given is
    counted as in use: where arrays come in named tuples, counting took nine tenths of the time.
    """

    def compile_now(function: Callable[..., Any]) -> Any:
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": allocates}
        dispatcher: Any = numba.njit(**options)(function)
        if signature is not None and not config.DISABLE_JIT:  # type: ignore[attr-defined]
            dispatcher._cache = _Stored(function)
            dispatcher.compile(signature)
        return dispatcher

    return compile_now


def types_of(*arguments: Any) -> Any:
    """The signature of a function of these arguments: `int`, arrays of one dimension, or named tuples of them.

    Arrays are of `np.int64` or of `np.bool_`; fields of a named tuple are what they are annotated as.
    """
    return tuple(_type_of(one) for one in arguments)


def _type_of(argument: Any) -> Any:
    plain = {
        int: numba.types.int64,
        NDArray[np.int64]: numba.types.int64[::1],
        NDArray[np.bool_]: numba.types.boolean[::1],
    }
    if argument in plain:
        return plain[argument]
    fields = [plain[hint] for hint in get_type_hints(argument).values()]
    return numba.types.BaseTuple.from_types(fields, argument)


class _Stored(NullCache):
    """The stored machine code of one function.

    It is written to the first of these folders that can be written: the one that NUMBA_CACHE_DIR names, `__pycache__`
    beside the source file, numba's folder in the user's cache. It is also read from `__pycache__` where that cannot be
    written: a read-only installation brings its machine code along. Without any folder each process compiles anew.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._own: FunctionCache | None = None
        with suppress(RuntimeError):  # numba's word for: no folder can be written
            self._own = _StampedCache(function)
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


class _StampedCache(FunctionCache):
    """numba's, which knows when the function's file changes; this one knows it of the files of all that it calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stored: Any = self._cache_file
        stored._source_stamp = _stamp_of(function)
        # told before anything is unpickled: of an older version it may name types that are no more
        # code with and code without checked indices are told apart too
        stored._version = f"{stored._version} {stored._source_stamp} {config.BOUNDSCHECK}"  # type: ignore[attr-defined]


def _stamp_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Digests of this file, and of those that have a function and the compiled functions that it calls."""
    met, waiting = {function}, [function]
    while waiting:
        one = waiting.pop()
        called = (one.__globals__.get(name) for name in one.__code__.co_names)
        new = {found.py_func for found in called if isinstance(found, Dispatcher)} - met
        met |= new
        waiting += new
    files = sorted({__file__, *(getfile(one) for one in met)})
    return tuple(str(InTreeCacheLocator(function, file).get_source_stamp()) for file in files)


class _InstalledLocator(InTreeCacheLocator):
    """`__pycache__` beside the source file, whether or not it can be written."""

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Self:
        """The place for a function; numba's own locator refuses folders that it cannot write."""
        return cls(py_func, py_file)


class _InstalledFiles(CompileResultCacheImpl):
    _locator_classes = (_InstalledLocator,)  # type: ignore[assignment]


class _InstalledCache(_StampedCache):
    _impl_class = _InstalledFiles  # type: ignore[assignment]
