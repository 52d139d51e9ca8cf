"""Real networks compiled, proved and run address for address, and compared with ONNX Runtime (SIM-1, PROG-4).

The matrix: exported and light networks, three chips, every fusion strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from compiler.compile import Compilation, compile_model
from compiler.errors import InternalError
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.simulator.compare import compare
from compiler.simulator.inputs import random_inputs
from compiler.simulator.run import run_executable
from tests.calibrate import calibrated
from tests.exported import exported_models
from tests.models import LIGHT_NAMES, import_graph

# plans are chosen by simulation, in samples too
pytestmark = pytest.mark.chosen

PROFILES = ("cluster4x4", "edge4", "manycore2x64")
FUSIONS = ("search", "rules", "none")
EXPORTED = {model.file: model for model in exported_models()}


def _is_large(file: str) -> bool:
    return EXPORTED[file].macs >= 10_000_000


def _cases(names: Iterable[str], large: Callable[[str], bool]) -> list[Any]:
    """Every network on every chip by every strategy; those that take minutes are marked `full`."""
    return [
        pytest.param(*case, marks=pytest.mark.full if large(case[0]) else (), id="-".join(case))
        for case in product(names, PROFILES, FUSIONS)
    ]


def _exported(file: str, profile: str, fusion: str) -> Compilation:
    model = EXPORTED[file]
    return compile_model(
        model.read(), builtin_profile(profile), parse_options({"dims": model.dims, "fusion": fusion, "verify": "none"})
    )


@pytest.mark.matrix(first=0, rest=2)
@pytest.mark.parametrize(("file", "profile", "fusion"), _cases(sorted(EXPORTED), _is_large))
def test_an_exported_network_runs_with_the_values_of_onnx_runtime(file: str, profile: str, fusion: str) -> None:
    model = EXPORTED[file]
    options = parse_options({"dims": model.dims, "fusion": fusion})
    compilation = compile_model(model.read(), builtin_profile(profile), options)
    assert compilation.report.values_checked
    # by the plain limits: none of these networks amplifies rounding
    assert all(output.holds and output.verdict == "plain" for output in compilation.report.values.outputs)
    assert compilation.executable is not None


@cache
def _calibrated(name: str) -> bytes:
    return calibrated(name)


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize(("name", "profile", "fusion"), _cases(LIGHT_NAMES, lambda name: name != "squeezenet"))
def test_a_light_network_with_meaningful_weights_runs_with_the_values_of_onnx_runtime(
    name: str, profile: str, fusion: str
) -> None:
    options = parse_options({"fusion": fusion})
    compilation = compile_model(_calibrated(name), builtin_profile(profile), options)
    values = compilation.report.values
    assert compilation.report.values_checked
    # inception_v1 amplifies rounding: its softmax is judged by what disturbances of that size make of the model, and
    # what groups hand to groups by the plain limits
    assert all(output.holds and output.verdict in ("plain", "widened") for output in values.outputs)
    if any(output.verdict == "widened" for output in values.outputs):
        assert values.between is not None
        assert values.between.holds
        assert values.between.verdict == "plain"


@pytest.mark.slow
def test_the_check_of_a_network_sees_another_input_and_one_disturbed_weight() -> None:
    """SIM-1: a check must be able to fail."""
    file = next(file for file in sorted(EXPORTED) if "keyword" in file)
    compilation = _exported(file, "edge4", "none")
    executable = compilation.executable
    assert executable is not None
    graph = import_graph(EXPORTED[file].read(), EXPORTED[file].dims)
    one, other = random_inputs(graph, 1), random_inputs(graph, 2)
    first = run_executable(executable, one)
    again = run_executable(executable, one)
    changed = run_executable(executable, other)
    for name, values in first.items():
        assert np.array_equal(values, again[name])
        assert not compare(name, changed[name], values).holds


def test_a_program_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value check names the output, the error and the limit; verify=none compiles without it."""
    model = EXPORTED[next(file for file in sorted(EXPORTED) if "keyword" in file)]

    def disturbed(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {name: values * np.float32(1.01) for name, values in run_executable(*args, **kwargs).items()}

    monkeypatch.setattr("compiler.simulator.value_check.run_executable", disturbed)
    with pytest.raises(InternalError, match="computes other values"):
        compile_model(model.read(), builtin_profile("edge4"), parse_options({"dims": model.dims, "fusion": "rules"}))
