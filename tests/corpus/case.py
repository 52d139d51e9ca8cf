"""What a case of the corpus is: a file made by code, what it attacks, and the verdict that the compiler owes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Build = Callable[[], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """The file compiles; `host` are nodes that must lie in a host segment of the plan."""

    host: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """The file is refused with one of the codes, in a message that contains every one of `mentions`."""

    codes: frozenset[str]
    mentions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Either:
    """ONNX leaves it open: the file compiles, or is refused with one of the codes."""

    codes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A file, the options it is compiled with, and its verdict; `slow` ones run with the large matrices only."""

    name: str
    attacks: str
    build: Build
    expected: Accept | Reject | Either
    options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    slow: bool = False


def case(
    name: str,
    build: Build,
    expected: Accept | Reject | Either,
    attacks: str,
    *,
    options: Mapping[str, object] = MappingProxyType({}),
    slow: bool = False,
) -> Case:
    """A case in one line of a table."""
    return Case(name=name, attacks=attacks, build=build, expected=expected, options=options, slow=slow)


def reject(codes: str, *mentions: str) -> Reject:
    """A refusal with one of the codes, which are separated by spaces."""
    return Reject(codes=frozenset(codes.split()), mentions=mentions)


def either(codes: str) -> Either:
    """Compiles, or is refused with one of the codes, which are separated by spaces."""
    return Either(codes=frozenset(codes.split()))


def accept(*host: str) -> Accept:
    """Compiles, with the named nodes on the host."""
    return Accept(host=host)
