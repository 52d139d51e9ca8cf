"""What the house style asks of the code as a whole."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

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


def imports_of(path: Path) -> list[str]:
    """The modules that a file imports, wherever in it."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found.extend(f"{module}.{alias.name}" if module == "compiler" else module for alias in node.names)
    return found


def stage_of(path: Path) -> str:
    """The sub-package or module directly under compiler/ that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_compiler_imports_no_service_and_does_no_io(path: Path) -> None:
    roots = {name.partition(".")[0] for name in imports_of(path)}
    assert not roots & set(FOREIGN)
    # the runner alone times passes, which is no part of any result
    assert not roots & set(OUTSIDE) - ({"time"} if path.name == "pipeline.py" else set())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_from_later_stages_to_earlier_ones(path: Path) -> None:
    mine = stage_of(path)
    if mine == "__init__":
        assert imports_of(path) == []
        return
    for name in imports_of(path):
        if name.startswith("compiler."):
            assert ORDER.index(name.split(".")[1]) <= ORDER.index(mine), f"{mine} imports {name}"


def test_every_part_of_the_compiler_has_its_place_in_the_order() -> None:
    assert {stage_of(path) for path in FILES} - {"__init__"} == set(ORDER)


MODULES = sorted(module.name for module in pkgutil.walk_packages([str(ROOT)], "compiler."))


@pytest.mark.parametrize("name", MODULES)
def test_no_module_keeps_mutable_state(name: str) -> None:
    """HOUSE_STYLE 5; caches on functions are state too."""
    module = importlib.import_module(name)
    scopes = {name: vars(module)}
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
            assert not isinstance(value, dict | list | set | bytearray), f"{scope}.{label} is mutable"
            assert not isinstance(value, np.ndarray) or not value.flags.writeable, f"{scope}.{label} is mutable"
            assert not hasattr(value, "cache_info"), f"{scope}.{label} caches"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_known_by_the_number_of_its_object(path: Path) -> None:
    """Numbers of objects are used again, and differ from run to run: keys say what they are about."""
    names = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Name)]
    assert not [name.lineno for name in names if name.id == "id" and isinstance(name.ctx, ast.Load)]


RULE = re.compile(r"\b(?:FUSE|TILE|PART|IMPORT|PROF|ADDR|SHAPE|PROG|SIM)-[A-Z]?\d+\b|\bFUSE-[ABNR]\b")


def test_every_rule_that_the_code_cites_is_cited_by_a_test() -> None:
    """SPEC: code that implements a rule cites its id; tests carry it too."""
    cited = {rule for path in FILES for rule in RULE.findall(path.read_text(encoding="utf-8"))}
    tests = {
        rule for path in Path(__file__).parent.rglob("*.py") for rule in RULE.findall(path.read_text(encoding="utf-8"))
    }
    assert cited - tests == set()
    assert {f"FUSE-{number}" for number in range(1, 21)} <= cited


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_readable(path: Path) -> None:
    """HOUSE_STYLE 11: above 500 lines there is a reason in the commit."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 520
