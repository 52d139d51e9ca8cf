"""Options as words `key=value` of a command line."""

from __future__ import annotations

import json
from collections.abc import Iterable

from compiler.errors import RequestError, printable
from compiler.option_descriptions import DESCRIPTIONS
from compiler.options import Options, parse_options


def parse_assignments(assignments: Iterable[str]) -> Options:
    """Options from `key=value` words; a value is JSON where it parses as such, else text; dots go into objects.

    Sizes and times may have units, such as 4GiB. Raises RequestError for an option that is given two values.
    """
    values: dict[str, object] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator or not key:
            raise RequestError(
                f"{printable(assignment, 80)!r} is not of the form key=value",
                code="invalid_option",
                actual=printable(assignment, 80),
                limit="key=value",
                hint=_hint_of_word(assignment.strip("= ")),
            )
        try:
            value: object = json.loads(text)
        except (ValueError, RecursionError):
            value = _amount(key, text)
        # a dimension's name may hold dots itself
        *parents, leaf = key.split(".", 1) if key.startswith("dims.") else key.split(".")
        target = values
        for parent in parents:
            inner = target.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise _set_twice(key, inner, value)
            target = inner
        _add(target, leaf, value, key)
    return parse_options(values)


def _add(target: dict[str, object], name: str, value: object, path: str) -> None:
    """Adds what a word says to what others said; an object adds to an object, as words with dots do."""
    known = target.setdefault(name, value)
    if known is value or known == value:
        return
    if not isinstance(known, dict) or not isinstance(value, dict):
        raise _set_twice(path, known, value)
    target[name] = merged = dict(known)
    for key, entry in value.items():
        _add(merged, key, entry, f"{path}.{key}")


def _set_twice(path: str, first: object, second: object) -> RequestError:
    return RequestError(
        f"option {printable(path, 80)} is given two values",
        code="invalid_option",
        actual=printable(f"{json.dumps(first)} and {json.dumps(second)}", 160),
        limit="one value",
        hint="Leave out one of them",
    )


def _amount(key: str, text: str) -> object:
    """The number of an amount with a unit, where the option is a size or a time; else the text."""
    unit = DESCRIPTIONS[key].unit if key in DESCRIPTIONS else ""
    if not unit:
        return text
    from compiler.profile.quantities import quantity  # with it all of the profile, which few options need

    return quantity(text, unit)


def _hint_of_word(word: str) -> str:
    if word in DESCRIPTIONS:
        return f"Give {DESCRIPTIONS[word].values}, such as --set {DESCRIPTIONS[word].example}"
    return "Such as --set objective=energy; `tessera options` lists the options"
