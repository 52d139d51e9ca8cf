"""Random quantised graphs compiled and run on every chip, against the exact integer reference (IMPORT-9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import pytest

from compiler.compile import Compilation, compile_model
from compiler.frontend import integer_factors, integers
from compiler.frontend.exact_moves import Integers, attributes_on_integers
from compiler.ops import packed, quantised
from compiler.ops.base import Array, Call
from compiler.options import parse_options
from compiler.profile import builtin_names, builtin_profile
from compiler.simulator.run import run_executable
from tests.quantised.graphs import QuantisedGraph, quantised_graph
from tests.quantised.reference import run

_GRAPHS: Final = 2000
_OF_FOUR_BITS: Final = 500
# Floats differ by the order of their sums: relative to the largest of the tensor, or to 1 if that is smaller.
_ROUNDING: Final = 1e-5
BY_RULES: Final = {"fusion": "rules"}


def _cases(count: int) -> list[Any]:
    """Every seed once; the chips take turns."""
    chips = builtin_names()
    return [
        pytest.param(seed, chips[seed % len(chips)], id=f"{seed}-{chips[seed % len(chips)]}") for seed in range(count)
    ]


def compiled(graph: QuantisedGraph, chip: str, **options: str) -> Compilation:
    """The graph's model, compiled by rules."""
    return compile_model(
        graph.model.SerializeToString(deterministic=True), builtin_profile(chip), parse_options({**BY_RULES, **options})
    )


def differences(graph: QuantisedGraph, found: Mapping[str, Any]) -> dict[str, float]:
    """What the outputs differ by where it is more than they may: integers at all, floats beyond rounding."""
    result = {}
    for name, expected in run(graph.model, graph.inputs).items():
        got = np.asarray(found[name])
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), name
        error = float(np.abs(got.astype(np.float64) - expected.astype(np.float64)).max(initial=0))
        is_integer = expected.dtype.kind in "iu"
        allowed = 0 if is_integer else _ROUNDING * max(1, float(np.abs(expected).max(initial=0)))
        if not error <= allowed:
            result[name] = error
    return result


@pytest.mark.matrix(first=5, rest=15)
@pytest.mark.parametrize(("seed", "chip"), _cases(_GRAPHS))
def test_a_random_graph_has_the_values_of_the_reference(seed: int, chip: str) -> None:
    """Bit-equal integers, with nothing degraded (which fails a test), and the compiler's own check passes."""
    _check(quantised_graph(seed), chip)


@pytest.mark.matrix(first=3, rest=8)
@pytest.mark.parametrize(("seed", "chip"), _cases(_OF_FOUR_BITS))
def test_a_random_graph_with_weights_of_4_bits_has_the_values_of_the_reference(seed: int, chip: str) -> None:
    _check(quantised_graph(seed, four_bits=True), chip)


def _check(graph: QuantisedGraph, chip: str) -> None:
    compilation = compiled(graph, chip)
    assert compilation.report.values_checked
    assert [output for output in compilation.report.values.outputs if not output.holds] == []
    assert compilation.executable is not None
    assert differences(graph, run_executable(compilation.executable, graph.inputs)) == {}, graph.ops


# Errors that the graphs must find, by what they put in the place of a right part.


def _half_up(patch: pytest.MonkeyPatch) -> None:
    right = quantised.rounded
    patch.setattr(quantised, "rounded", lambda call, steps: right(call, np.floor(steps + 0.5)))


def _no_data_zero(patch: pytest.MonkeyPatch) -> None:
    right = quantised.QuantisedProduct._zeros
    patch.setattr(quantised.QuantisedProduct, "_zeros", staticmethod(lambda call: (0, right(call)[1])))


def _no_weight_zero(patch: pytest.MonkeyPatch) -> None:
    right = quantised.QuantisedProduct._zeros
    patch.setattr(quantised.QuantisedProduct, "_zeros", staticmethod(lambda call: (right(call)[0], 0)))


def _no_result_zero(patch: pytest.MonkeyPatch) -> None:
    right = quantised.rounded
    patch.setattr(quantised, "rounded", lambda call, steps: right(call, steps - call.integer("result_zero", 0)))


def _no_saturation(patch: pytest.MonkeyPatch) -> None:
    def wrapped(call: Call, steps: Array) -> Array:
        moved = np.rint(steps) + call.integer("result_zero", 0)
        return np.asarray(moved.astype(np.int64).astype(call.result.dtype))

    patch.setattr(quantised, "rounded", wrapped)


def _any_bias_in_units_of_the_sum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(integer_factors, "_SAME", float("inf"))


def _pads_of_floats(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        integers, "attributes_on_integers", lambda op, data: attributes_on_integers(op, data) and op.attributes
    )


def _joined_across_zero_points(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Integers, "meaning", property(lambda self: (self.dtype, self.scale, 0, self.scale_name, self.zero_name))
    )


def _scale_of_the_next_channel(patch: pytest.MonkeyPatch) -> None:
    right = quantised.QuantisedProduct._scaled

    def turned(self: Any, call: Call, sums: Array, others: Any) -> Array:
        bias, scales = (*others, None, None)[:2]
        return np.asarray(right(self, call, sums, (bias, None if scales is None else np.roll(scales, 1))))

    patch.setattr(quantised.QuantisedProduct, "_scaled", turned)


def _halves_of_bytes_swapped(patch: pytest.MonkeyPatch) -> None:
    def turned(layout: Sequence[int], stored: Any) -> Array:
        return packed.whole_weight(layout, stored << 4 | stored >> 4)

    patch.setattr(quantised, "whole_weight", turned)


_OF_KERNELS: Final = (
    _half_up,
    _no_data_zero,
    _no_weight_zero,
    _no_result_zero,
    _no_saturation,
    _scale_of_the_next_channel,
    _halves_of_bytes_swapped,
)
_MUTATED: Final = 30


@cache
def _right(seed: int) -> tuple[QuantisedGraph, Compilation]:
    graph = quantised_graph(seed)
    return graph, compiled(graph, "edge4", verify="none")


def _wrong(seed: int) -> bool:
    graph, compilation = _right(seed)
    assert compilation.executable is not None
    return differences(graph, run_executable(compilation.executable, graph.inputs)) != {}


@pytest.mark.matrix(first=0, rest=3)
@pytest.mark.parametrize("mutant", _OF_KERNELS)
def test_an_error_in_a_kernel_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fault in a kernel changes the values of at least one of the first graphs, which are right without it."""
    found = []
    for seed in range(_MUTATED):
        assert not _wrong(seed)
        with monkeypatch.context() as patch:
            mutant(patch)
            found += [seed] if _wrong(seed) else []
        if found:
            break
    assert found


@pytest.mark.matrix(first=0, rest=2)
@pytest.mark.parametrize(
    ("mutant", "op"),
    [(_any_bias_in_units_of_the_sum, "Conv"), (_pads_of_floats, "Pad"), (_joined_across_zero_points, "Concat")],
)
def test_an_error_in_what_becomes_integers_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(10 * _MUTATED):
        graph = quantised_graph(seed)
        if op not in " ".join(graph.ops):
            continue
        with monkeypatch.context() as patch:
            mutant(patch)
            executable = compiled(graph, "edge4", verify="none").executable
        assert executable is not None
        if differences(graph, run_executable(executable, graph.inputs)):
            assert not _wrong(seed)
            return
    pytest.fail("no graph found it")
