"""Attributes that are worked out when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801 - reads as the decorator that it is
    """As `functools.cached_property`, without its lock.

    Python 3.12 has dropped the lock; up to then it takes as long as what most of the attributes of a tiling work out.
    """

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self._work_out, self.__doc__ = work_out, work_out.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> T | Self:
        if instance is None:
            return self
        found = instance.__dict__[self._name] = self._work_out(instance)
        return found
