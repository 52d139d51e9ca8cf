"""Files whose digests are right and whose contents are not: whoever means harm makes them so (API-7, PROG-4)."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.simulations import listings
from app.simulations.simulate import simulate
from compiler.errors import TesseraError
from compiler.program.encoding.container import read_container
from compiler.program.executable import read
from compiler.program.timing.trace import trace_of
from tests.compiler.program.test_executable import resealed
from tests.matrices import tries
from tests.models import Model
from tests.service.executables import executable, file_of

Path = tuple[str | int, ...]
REMOVED = "removed"
VALUES: tuple[Any, ...] = (
    None,
    0,
    -1,
    7,
    2**63,
    1.5,
    True,
    "",
    "x",
    "float64",
    "string",
    [],
    ["x"],
    [1],
    [-1],
    {},
    {"a": 1},
    REMOVED,
)


@cache
def mixed() -> bytes:
    """A segment of the chip and one of the host."""
    model = Model()
    found = model.relu(model.conv(model.input([1, 3, 8, 8], "x"), 3, 4))
    model.output(model.node("Sin", [model.conv(found, 4, 4)]))
    model.output(model.node("Det", [found]))
    return file_of(executable(model))


@cache
def parts(section: str) -> Any:
    container = read_container(memoryview(mixed()))
    return json.loads(bytes(container.section(section, *([0] if section == "program" else []))))


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from paths(inner, (*path, name))


def altered(section: str, path: Path, value: Any) -> bytes:
    """The file with one value of a section replaced, and all digests right."""
    root = copy.deepcopy(parts(section))
    target = root
    for name in path[:-1]:
        target = target[name]
    if value == REMOVED:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    text = json.dumps(root, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return resealed(mixed(), lambda name, _, content: text if name == section else content)


def use(data: bytes) -> None:
    """Everything that the service does with a file from outside."""
    found = read(data)
    list(listings.lines(found, listings.SHORT))
    list(trace_of(found, limit=100))
    simulate(data, "0" * 64, given=None, seed=1)


def test_the_file_itself_is_fine() -> None:
    use(mixed())


@given(st.data())
@tries(first=50, rest=150)
def test_any_altered_value_is_used_or_refused_by_name(data: st.DataObject) -> None:
    section = data.draw(st.sampled_from(["manifest", "program"]))
    path = data.draw(st.sampled_from(sorted(paths(parts(section)), key=repr)))
    with suppress(TesseraError):  # any other error fails
        use(altered(section, path, data.draw(st.sampled_from(VALUES))))


@pytest.mark.parametrize(
    ("section", "path", "value"),
    [
        ("manifest", ("inputs",), []),
        ("manifest", ("inputs", 0, "shape"), [-1]),
        ("manifest", ("outputs", 0, "tensor"), ""),
        ("manifest", ("segments", 1, "nodes", 0, "inputs"), []),
        ("manifest", ("segments", 1, "nodes", 0, "outputs"), []),
        ("manifest", ("segments", 1, "nodes", 0, "opsets", 0, 1), 2**63),
        ("manifest", ("segments", 1, "outputs"), []),
        ("program", ("queues", 0, "engine"), ""),
        ("program", ("tables", 0, "operand_shapes"), []),
        ("program", ("tables", 0, "operand_shapes", 1, 0), 0),
        ("program", ("tables", 0, "shape"), []),
    ],
)
def test_what_was_another_error_is_refused_by_name(section: str, path: Path, value: Any) -> None:
    """KeyError, ValueError, IndexError and ZeroDivisionError, which the service called its own fault."""
    with pytest.raises(TesseraError):
        use(altered(section, path, value))
