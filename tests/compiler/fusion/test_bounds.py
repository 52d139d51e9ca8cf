"""Floor, reference and roofline (SPEC 5.1) against independent recomputation."""

from __future__ import annotations

from math import ceil, prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from compiler.fusion.bounds import (
    Needed,
    dram_reference_bytes,
    needed_of,
    needed_positions,
    roofline_cycles,
    union_bytes,
)
from compiler.ops.op_facts import GraphFacts, graph_facts
from compiler.profile import builtin_profile
from tests.compiler.brute import floor_of
from tests.models import Model, whole_segment
from tests.strategies import models

Mask = NDArray[np.bool_]
STREAMED = builtin_profile("edge4")
STATIONARY = builtin_profile("manycore2x64")


@given(st.data())
def test_a_union_is_the_number_of_positions_in_any_of_the_sets(data: st.DataObject) -> None:
    """Of ranges and of sets with gaps, against masks of elements."""
    shape = (7, 5)

    def needed(extent: int) -> Needed:
        if data.draw(st.booleans()):
            return np.array(data.draw(st.lists(st.booleans(), min_size=extent, max_size=extent)))
        begin = data.draw(st.integers(0, extent))
        return begin, data.draw(st.integers(begin, extent))

    parts = [tuple(map(needed, shape)) for _ in range(data.draw(st.integers(1, 4)))]

    def mask(one: Needed, extent: int) -> Mask:
        return one if isinstance(one, np.ndarray) else (one[0] <= np.arange(extent)) & (np.arange(extent) < one[1])

    whole = np.zeros(shape, dtype=np.bool_)
    axes = [np.zeros(extent, dtype=np.bool_) for extent in shape]
    for rows, columns in parts:
        whole |= np.outer(mask(rows, 7), mask(columns, 5))
        axes = [one | mask(each, len(one)) for one, each in zip(axes, (rows, columns), strict=True)]
    model = Model()
    model.output(model.relu(model.input(list(shape), "x")))
    facts = graph_facts(model.graph())
    assert union_bytes(facts, "x", parts) == 4 * np.count_nonzero(whole)
    for found, expected in zip(needed_of(facts, "x", parts), axes, strict=True):
        assert mask(found, len(expected)).tolist() == expected.tolist()


def brute_floor(facts: GraphFacts, *, by_axis: bool) -> int:
    """Floor by masks of elements, op by op.

    With `by_axis` what an op has to make is completed to a product of positions per axis (one box-shaped iteration
    space), as any plan does; without, each element counts for itself.
    """
    graph = facts.graph
    masks: dict[str, Mask] = {}

    def mark(name: str, mask: Mask) -> None:
        masks[name] = masks.get(name, np.zeros_like(mask)) | mask

    for name in graph.outputs:
        if name in graph.producer:
            mark(name, np.ones(facts.tensors[name].shape, dtype=np.bool_))
    for op in reversed(facts.ops):
        made = masks.get(op.output)
        if made is None or not made.any():
            continue
        if by_axis:
            full = np.ones_like(made)
            for axis in range(made.ndim):
                others = tuple(a for a in range(made.ndim) if a != axis)
                along = [1] * made.ndim
                along[axis] = -1
                full &= made.any(axis=others).reshape(along)
            made = full
        for operand in op.operands:
            shape = facts.tensors[operand.tensor].shape
            need = np.zeros(shape, dtype=np.bool_)
            for element in np.argwhere(made):
                box = tuple(
                    slice(0, extent)
                    if m.axis is None
                    else slice(*m.project_one(int(element[m.axis]), int(element[m.axis]) + 1, extent))
                    for m, extent in zip(operand.access, shape, strict=True)
                )
                need[box] = True
            mark(operand.tensor, need)
    total = sum(
        int(mask.sum()) * facts.tensors[name].element_bytes
        for name, mask in masks.items()
        if name not in graph.producer
    )
    return total + sum(
        prod(facts.tensors[name].shape) * facts.tensors[name].element_bytes
        for name in graph.outputs
        if name in graph.producer
    )


@settings(max_examples=60)
@given(models(max_ops=6, max_extent=7, batches=(1,)))
def test_floor_equals_brute_force_over_elements(model: Model) -> None:
    """SPEC 5.1: what the outputs need of inputs and weights once, plus the outputs once."""
    facts = model.facts()
    floor = floor_of(facts)
    assert brute_floor(facts, by_axis=False) <= floor == brute_floor(facts, by_axis=True)


def test_floor_of_one_convolution_is_input_weights_and_output() -> None:
    model = Model()
    model.output(model.conv(model.input([1, 3, 8, 8]), 3, 4))
    assert floor_of(model.facts()) == 4 * (3 * 64 + 4 * 3 * 9 + 4 * 64)


def test_floor_leaves_out_rows_that_a_stride_skips() -> None:
    model = Model()
    model.output(model.conv(model.input([1, 1, 9, 9]), 1, 1, 1, stride=3))
    assert floor_of(model.facts()) == 4 * (9 + 1 + 9)


def test_floor_leaves_out_what_a_slice_drops() -> None:
    model = Model()
    x = model.input([1, 4, 8, 8])
    model.output(model.node("Slice", [x, model.ints(0), model.ints(2), model.ints(2)]))
    assert floor_of(model.facts()) == 2 * 4 * (4 * 2 * 8)


def test_floor_counts_parts_that_two_readers_share_once() -> None:
    model = Model()
    x = model.input([1, 1, 8, 4])
    for begin, end in ((0, 5), (3, 8)):
        part = model.node("Slice", [x, model.ints(begin), model.ints(end), model.ints(2)])
        model.output(model.relu(part))
    assert floor_of(model.facts()) == 4 * (8 * 4 + 2 * 5 * 4)


def test_floor_counts_a_shared_weight_once() -> None:
    model = Model()
    x, w = model.input([1, 4, 4, 4]), model.weight(4, 4, 1, 1)
    model.output(model.node("Conv", [model.node("Conv", [x, w]), w]))
    assert floor_of(model.facts()) == 4 * (64 + 16 + 64)


def test_reference_is_the_sum_over_layers_with_their_activations() -> None:
    """SPEC 5.1: the groups of `none`, capacity ignored, each input, weight and output once."""
    model = Model()
    x = model.input([1, 3, 8, 8])
    x = model.relu(model.conv(x, 3, 4))
    model.output(model.relu(model.conv(x, 4, 5)))
    facts = model.facts()
    first = 3 * 64 + 4 * 3 * 9 + 4 * 64
    second = 4 * 64 + 5 * 4 * 9 + 5 * 64
    assert dram_reference_bytes(facts, (whole_segment(facts),), STREAMED) == 4 * (first + second)


@settings(max_examples=60)
@given(models())
def test_reference_is_at_least_the_floor(model: Model) -> None:
    facts = model.facts()
    assert floor_of(facts) <= dram_reference_bytes(facts, (whole_segment(facts),), STREAMED)


def test_stationary_weights_count_neither_in_the_floor_nor_in_the_reference() -> None:
    """SPEC 5.1: they are loaded before the first inference."""
    model = Model()
    x = model.relu(model.conv(model.input([1, 3, 8, 8]), 3, 4))
    model.output(model.conv(x, 4, 5))
    facts = model.facts()
    weights = 4 * (4 * 3 * 9 + 5 * 4 * 9)
    floors = [floor_of(facts, profile) for profile in (STREAMED, STATIONARY)]
    references = [dram_reference_bytes(facts, (whole_segment(facts),), profile) for profile in (STREAMED, STATIONARY)]
    assert floors[0] - floors[1] == references[0] - references[1] == weights


def test_what_passes_between_chip_and_host_counts_once_in_the_floor() -> None:
    """SPEC 5.1, IMPORT-6: a host's result is an input of the chip, what it reads an output."""
    model = Model()
    x = model.relu(model.input([1, 4, 6, 6]))
    model.output(model.relu(model.node("Det", [x])))
    facts = model.facts()
    assert [op.kind for op in facts.ops] == ["Relu", "Host", "Relu"]
    assert floor_of(facts) == 4 * (144 + 144 + 4 + 4)


def test_roofline_is_the_larger_of_traffic_and_multiplications() -> None:
    model = Model()
    model.output(model.conv(model.input([1, 64, 32, 32]), 64, 64))
    facts, profile = model.facts(), builtin_profile("edge4")
    needed = needed_positions(facts)
    macs = 64 * 64 * 9 * 32 * 32
    assert roofline_cycles(facts, needed, 0, profile) == ceil(macs / 64 / 4)
    # 12.8 GB/s at 800 MHz are 16 bytes per cycle
    assert roofline_cycles(facts, needed, 10**9, profile) == 10**9 // 16


def test_roofline_leaves_out_products_that_no_output_needs() -> None:
    model = Model()
    x = model.conv(model.input([1, 64, 32, 32]), 64, 64)
    model.output(model.node("Slice", [x, model.ints(0), model.ints(8), model.ints(2)]))
    facts, profile = model.facts(), builtin_profile("edge4")
    assert roofline_cycles(facts, needed_positions(facts), 0, profile) == 64 * 64 * 9 * 8 * 32 // 64 // 4
