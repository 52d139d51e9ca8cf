"""Machine code: all of it is compiled when Tessera is set up, and loaded from then on."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler.kernels  # noqa: F401 - what set-up does, so that each test finds the machine code
from compiler.compile import compile_model
from compiler.frontend.source import ModelSource
from compiler.options import Options
from compiler.profile import builtin_profile
from tests.service.harness import conv_chain

# plans are chosen by simulation, in samples too
pytestmark = pytest.mark.chosen

ROOT = Path(__file__).parents[2]


def kernels() -> dict[str, Any]:
    """The functions that are stored as machine code, by name."""
    modules = [module for name, module in sys.modules.items() if name in imported()]
    return {
        f"{module.__name__}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if getattr(value, "stats", None) and value.stats.cache_path
    }


def imported() -> set[str]:
    """The modules that `compiler.kernels` imports."""
    tree = ast.parse((ROOT / "compiler" / "kernels.py").read_bytes())
    return {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}


AFTER_SET_UP = {name: list(kernel.signatures) for name, kernel in kernels().items()}


def test_set_up_compiles_every_module_of_machine_code() -> None:
    users = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "compiler").rglob("*.py")
        if "from compiler.machine_code import" in path.read_text()
    }
    assert users == imported()
    assert all(len(signatures) == 1 for signatures in AFTER_SET_UP.values())


def test_a_compilation_compiles_nothing_that_set_up_has_not_compiled() -> None:
    before = {name: list(kernel.signatures) for name, kernel in kernels().items()}
    source = ModelSource.from_bytes(conv_chain(4))
    compile_model(source, builtin_profile("edge4"), Options(verify="none"))
    assert {name: list(kernel.signatures) for name, kernel in kernels().items()} == before


def test_arguments_of_other_types_compile_a_function_again() -> None:
    kernel = kernels()["compiler.shapes.kernels.whole_pieces"]
    extents, last = np.array([3, 2], np.int32), np.array([-1, -1, 1, 0, 1, 0], np.int32)
    assert kernel(extents, last, 5).tolist() == kernel.py_func(extents, last, 5).tolist() == [1, 1]


# Nothing can be written where numba tries whether it can be.
READ_ONLY = """
import json, tempfile

def refuse(*_, **__):
    raise PermissionError("read-only")

tempfile.TemporaryFile = refuse
from tests.compiler.test_kernels import kernels

stats = [kernel.stats for kernel in kernels().values()]
compiled = sum(sum(one.cache_misses.values()) for one in stats)
loaded = [one.cache_path for one in stats if one.cache_hits]
print(json.dumps([compiled, loaded]))
"""


@pytest.mark.slow
def test_a_read_only_installation_loads_the_machine_code_beside_its_sources(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "compiler", tmp_path / "compiler")
    answer = subprocess.run(
        [sys.executable, "-c", READ_ONLY],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    compiled, loaded = json.loads(answer.stdout)
    assert (compiled, len(loaded)) == (0, len(kernels()))
    assert all(Path(folder).is_relative_to(tmp_path) for folder in loaded)


# Machine code reads whatever lies beyond an array's end; plain Python raises IndexError.
PLAIN = """
from compiler.compile import compile_model
from compiler.frontend.source import ModelSource
from compiler.options import Options
from compiler.profile import builtin_profile
from tests.service.harness import conv_chain

for name in ("edge4", "cluster4x4"):
    compile_model(ModelSource.from_bytes(conv_chain(4)), builtin_profile(name), Options(degraded="error"))
"""


def test_a_compilation_reads_nothing_beyond_an_array() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "1"}
    # hashes and counts overflow on purpose, which numpy warns of
    command = [sys.executable, "-W", "ignore:overflow encountered:RuntimeWarning", "-c", PLAIN]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
