"""Libraries from elsewhere whose key says less than their header are refused: all owners read what a key names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

import pytest

from compiler.compile import compile_shapes
from compiler.errors import RequestError
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph, Op, Tensor
from compiler.options import parse_options
from compiler.profile import builtin_profile, profile_digest
from compiler.shapes.canonical_routine import CanonicalRoutine, canonical_routine
from compiler.shapes.extents import Range
from compiler.shapes.rebuild_units import rebuilt
from compiler.shapes.shared_libraries import Candidate, library_values
from compiler.shapes.size_class import Sized
from compiler.shapes.unit_encoding import decode_library
from compiler.unit_key import LibraryFor
from tests.models import Model

PROFILE = builtin_profile("edge4")


@pytest.fixture(scope="module")
def routine() -> CanonicalRoutine:
    model = Model()
    x = model.input([1, 4, "h", "w"], "x")
    model.output(model.relu(model.conv(x, 4, 4, 3)))
    dims = {name: {"min": 1, "max": 24} for name in ("h", "w")}
    made = compile_shapes(ModelSource.from_bytes(model.data()), PROFILE, parse_options({"dims": dims}))
    ranges = {name: Range(low=1, high=24) for name in dims}
    return canonical_routine(made.graph, range(len(made.graph.ops)), ranges)


def values_of(routine: CanonicalRoutine, sized: Sized, profile: str | None = None) -> tuple[str, dict[str, bytes]]:
    """The key and the values that somebody makes of a size, under the routine's signature."""
    about = LibraryFor(
        signature=routine.signature,
        size=sized.text,
        profile=profile_digest(PROFILE) if profile is None else profile,
        resident_bytes=0,
    )
    candidate = Candidate(sized=sized, about=about)
    return candidate.key, library_values(candidate, PROFILE)


def other_tensors(graph: Graph, change: Callable[[Tensor], Tensor]) -> Graph:
    return replace(graph, tensors=MappingProxyType({name: change(tensor) for name, tensor in graph.tensors.items()}))


def other_ops(graph: Graph, change: Callable[[Op], Op]) -> Graph:
    return replace(graph, ops=tuple(change(op) for op in graph.ops))


def shorter(tensor: Tensor) -> Tensor:
    varying = dict(tensor.symbols)
    return replace(tensor, shape=tuple(8 if axis in varying else extent for axis, extent in enumerate(tensor.shape)))


def from_behind(tensor: Tensor) -> Tensor:
    return replace(tensor, symbols=((-1, tensor.symbols[-1][1]), *tensor.symbols) if tensor.symbols else ())


def larger(tensor: Tensor) -> Tensor:
    constant = tensor.constant
    if constant is None:
        return tensor
    return replace(tensor, constant=replace(constant, shape=tuple(2 * extent for extent in constant.shape)))


def twice(op: Op) -> Op:
    return replace(op, attributes=(*((name, value) for name, value in op.attributes), *op.attributes[:1]))


LIES: dict[str, Callable[[Graph], Graph]] = {
    "extents that expressions do not give": lambda graph: other_tensors(graph, shorter),
    "an axis from behind": lambda graph: other_tensors(graph, from_behind),
    "a constant of another shape": lambda graph: other_tensors(graph, larger),
    "an attribute twice": lambda graph: other_ops(graph, twice),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("size", [0, 1], ids=["class", "own"])
def test_a_graph_that_its_signature_does_not_describe_is_refused(
    routine: CanonicalRoutine, lie: str, size: int
) -> None:
    sized = routine.size_classes[size]
    key, sound = values_of(routine, sized)
    assert rebuilt(decode_library(sound[key]), PROFILE) == sound
    other, values = values_of(routine, replace(sized, graph=LIES[lie](sized.graph)))
    assert (other == key, values == sound) == (True, False)
    with pytest.raises(RequestError, match="does not know"):
        rebuilt(decode_library(values[key]), PROFILE)


def test_a_class_has_the_same_minima_whatever_a_header_says(routine: CanonicalRoutine) -> None:
    sized = routine.size_classes[0]
    key, sound = values_of(routine, sized)
    ranges = {name: Range(low=one.high, high=one.high) for name, one in sized.ranges.items()}
    other, values = values_of(routine, replace(sized, ranges=MappingProxyType(ranges)))
    assert (other == key, values == sound) == (True, False)
    assert rebuilt(decode_library(values[key]), PROFILE) == sound


def test_a_library_for_another_profile_is_refused(routine: CanonicalRoutine) -> None:
    key, values = values_of(routine, routine.size_classes[0], profile="mine")
    with pytest.raises(RequestError, match="does not know"):
        rebuilt(decode_library(values[key]), PROFILE)


def test_one_value_and_a_list_of_it_are_different_attributes(routine: CanonicalRoutine) -> None:
    """A signature that could not tell them apart would let one stand for the other."""

    def listed(op: Op) -> Op:
        return replace(
            op, attributes=tuple((name, (one,) if isinstance(one, int) else one) for name, one in op.attributes)
        )

    changed = other_ops(routine.graph, listed)
    assert changed != routine.graph
    again = canonical_routine(changed, range(len(changed.ops)), routine.ranges, routine.in_place)
    assert again.signature != routine.signature
