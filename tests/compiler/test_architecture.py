"""What the house style asks of the code as a whole."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import compiler

ROOT = Path(compiler.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# Earlier stages first: a module may import what stands before it here, and its own package.
ORDER = (
    "version",
    "unit_key",
    "errors",
    "garbage",
    "lazy",
    "host_bound",
    "threads",
    "machine_code",
    "units",
    "amounts",
    "rules",
    "linear_rules",
    "ir",
    "ops",
    "degraded",
    "address",
    "profile",
    "memory",
    "schedule",
    "option_descriptions",
    "options",
    "option_words",
    "frontend",
    "cost",
    "tiling",
    "partition",
    "fusion",
    "program",
    "cache_key",
    "shapes",
    "simulator",
    "kernels",
    "check_shapes",
    "report",
    "pipeline",
    "tied_dimensions",
    "default_ranges",
    "compile",
    "advise",
)
FOREIGN = ("app", "worker", "fastapi", "celery", "redis", "starlette", "pydantic", "httpx", "structlog", "kombu")
# What would let the compiler do I/O of its own.
OUTSIDE = (
    "socket",
    "subprocess",
    "urllib",
    "requests",
    "tempfile",
    "shutil",
    "os",
    "pathlib",
    "logging",
    "random",
    "time",
)


class Contents(NamedTuple):
    """Of a file: the modules that it imports, wherever in it, and the lines that read the name `id`."""

    imports: tuple[str, ...]
    id_lines: tuple[int, ...]


@cache
def contents_of(path: Path) -> Contents:
    """What a file has; parsed once for all tests, which takes most of their time."""
    imports: list[str] = []
    lines: list[int] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imports.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            imports.extend(f"{module}.{alias.name}" if module == "compiler" else module for alias in node.names)
        elif isinstance(node, ast.Name) and node.id == "id" and isinstance(node.ctx, ast.Load):
            lines.append(node.lineno)
    return Contents(tuple(imports), tuple(lines))


def stage_of(path: Path) -> str:
    """The sub-package or module directly under compiler/ that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_the_compiler_imports_no_service_and_does_no_io() -> None:
    found = []
    for path in FILES:
        # the runner alone times passes, which is no part of any result
        forbidden = {*FOREIGN, *OUTSIDE} - ({"time"} if path.name == "pipeline.py" else set())
        roots = {name.partition(".")[0] for name in contents_of(path).imports}
        found += [f"{path} imports {root}" for root in sorted(roots & forbidden)]
    assert not found


def test_imports_point_from_later_stages_to_earlier_ones() -> None:
    found = []
    for path in FILES:
        mine = stage_of(path)
        if mine == "__init__":
            assert contents_of(path).imports == ()
            continue
        stages = (name.split(".")[1] for name in contents_of(path).imports if name.startswith("compiler."))
        found += [f"{path} imports {stage}" for stage in stages if ORDER.index(stage) > ORDER.index(mine)]
    assert not found


def test_every_part_of_the_compiler_has_its_place_in_the_order() -> None:
    assert {stage_of(path) for path in FILES} - {"__init__"} == set(ORDER)


MODULES = sorted(module.name for module in pkgutil.walk_packages([str(ROOT)], "compiler."))


def test_no_module_keeps_mutable_state() -> None:
    """HOUSE_STYLE 5; caches on functions are state too."""
    assert len(MODULES) > 400
    assert not [found for name in MODULES for found in mutable_of(name)]


def mutable_of(name: str) -> list[str]:
    """What a module and its classes keep that can be changed."""
    module = importlib.import_module(name)
    scopes, found = {name: vars(module)}, []
    for label, value in vars(module).items():
        if isinstance(value, type) and value.__module__ == name:
            scopes[f"{name}.{label}"] = dict(vars(value))
    for scope, members in scopes.items():
        for label, value in members.items():
            # names of the language and of enumerations; PyYAML's tables of a loader, filled at import
            if label.startswith(("__", "yaml_")) or (label.startswith("_") and label.endswith("_")):
                continue
            # what a named tuple is given by the language
            if label == "_field_defaults" and "_fields" in members:
                continue
            is_array = isinstance(value, np.ndarray) and value.flags.writeable
            if is_array or isinstance(value, dict | list | set | bytearray):
                found.append(f"{scope}.{label} is mutable")
            if hasattr(value, "cache_info"):
                found.append(f"{scope}.{label} caches")
    return found


def test_nothing_is_known_by_the_number_of_its_object() -> None:
    """Numbers of objects are used again, and differ from run to run: keys say what they are about."""
    assert not {path: lines for path in FILES if (lines := contents_of(path).id_lines)}


RULE = re.compile(r"\b(?:FUSE|TILE|PART|IMPORT|PROF|ADDR|SHAPE|PROG|SIM)-[A-Z]?\d+\b|\bFUSE-[ABNR]\b")


def test_every_rule_that_the_code_cites_is_cited_by_a_test() -> None:
    """SPEC: code that implements a rule cites its id; tests carry it too."""
    cited = {rule for path in FILES for rule in RULE.findall(path.read_text(encoding="utf-8"))}
    tests = {
        rule for path in Path(__file__).parent.rglob("*.py") for rule in RULE.findall(path.read_text(encoding="utf-8"))
    }
    assert cited - tests == set()
    assert {f"FUSE-{number}" for number in range(1, 21)} <= cited


def test_files_stay_readable() -> None:
    """HOUSE_STYLE 11: above 500 lines there is a reason in the commit."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert not {path: count for path, count in lines.items() if count > 520}
