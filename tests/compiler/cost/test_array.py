"""What ops cost inside a core: array cycles, loop orders, registers and ports, worked out by hand (PROF-2, N-2)."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import pytest

from compiler.cost.array import (
    CoreUse,
    CoreWork,
    Dataflow,
    ElementSizes,
    Lanes,
    arrangements,
    core_use,
    register_energy_pj,
    work_on_box,
)
from compiler.cost.levels import LevelBytes
from compiler.errors import ModelError
from compiler.ops.op_facts import OpFacts, graph_facts
from compiler.profile import builtin_profile
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from compiler.units import ceil_div
from tests.models import Model, import_graph
from tests.networks import fsrcnn
from tests.profiles import profile_values

CLUSTER, META = builtin_profile("cluster4x4"), builtin_profile("metaproto-df")


def conv(channels: int, filters: int, *, kernel: int = 3, group: int = 1, extent: int = 8) -> OpFacts:
    """A convolution on a square map, padded."""
    model = Model()
    model.output(model.conv(model.input([1, channels, extent, extent]), channels, filters, kernel, group=group))
    (op,) = model.facts().ops
    return op


def used(
    op: OpFacts, profile: Profile, filters: int, *, size: int = 4, steps: int = 64, positions: int = 64, pieces: int = 1
) -> CoreUse:
    """What the op takes of one core for a whole 8×8 map, unless other positions are given."""
    sizes = ElementSizes(input=size, weight=size, output=size, operands=1)
    work = CoreWork(steps=(steps,), positions=positions, channels=filters, pieces=pieces)
    return core_use(op, work, sizes, profile)


def test_full_arrays_take_one_cycle_per_array_of_products() -> None:
    """16×16 float32: 64 pixels × 9 taps × 2 × 2 array passes."""
    assert used(conv(32, 32), CLUSTER, 32).cycles == 64 * 9 * 2 * 2


def test_channels_that_do_not_fill_the_array_take_whole_passes() -> None:
    assert used(conv(17, 33), CLUSTER, 33).cycles == 64 * 9 * 2 * 3


def test_grouped_convolutions_pass_the_array_once_per_group() -> None:
    assert used(conv(32, 32, group=2), CLUSTER, 32).cycles == 2 * 64 * 9


def test_depthwise_convolutions_run_on_the_vector_lanes_where_that_is_faster() -> None:
    """2 operations per product on 64 lanes, against one lane of the array per channel."""
    use = used(conv(32, 32, group=32), CLUSTER, 32)
    assert (use.dataflow, use.cycles) == (Dataflow.VECTOR, 2 * 9 * 64 * 32 // 64)


def test_no_elements_take_no_cycles() -> None:
    model = Model()
    model.output(model.relu(model.input([1, 4])))
    (op,) = model.facts().ops
    assert used(op, CLUSTER, 1, positions=0).cycles == 0
    assert used(op, CLUSTER, 1, positions=65).cycles == 2


def test_a_type_without_an_array_is_refused_by_name() -> None:
    values = profile_values("edge4")
    del values["matrix"]["arrays"]["float32"]
    with pytest.raises(ModelError) as caught:
        used(conv(4, 4), profile_from_values(values), 4)
    assert caught.value.code == "no_array_for_dtype"
    assert "A what-if such as precision=int8 gives a plan" in str(caught.value.hint)


# --- metaproto-df: 32 output channels × 2 input channels × 4 columns × 4 rows, int8 ---------------------------------


def test_the_layers_of_fsrcnn_take_the_published_array_cycles() -> None:
    """N-2: 18,294,204 cycles by array utilisation alone, whole maps: ⌈K/32⌉ · ⌈C/2⌉ · taps · ⌈W/4⌉ · ⌈H/4⌉."""
    facts = graph_facts(import_graph(fsrcnn().SerializeToString()))
    cycles = []
    for op in facts.ops:
        int8 = replace(op, dtype="int8")
        _, filters, height, width = facts.tensors[op.output].shape
        steps = ceil_div(width, 4) * ceil_div(height, 4)
        cycles.append(used(int8, META, filters, size=1, steps=steps, positions=height * width).array_cycles)
    # 970×550 in 5×5 from 1 channel: 2 · 1 · 25 · 243 · 138; then 28 · 33,534 for 56 → 12 channels of 1×1
    assert cycles[0] == 2 * 1 * 25 * 243 * 138
    assert cycles[1] == 1 * 28 * 1 * 243 * 138
    assert sum(cycles) == 18_294_204


def int8_use(dataflow: Dataflow | None = None, *, positions: int = 64, pieces: int = 1, **changes: Any) -> CoreUse:
    """A 3×3 convolution of 4 to 32 channels on 8×8 (4 steps); with weights made cheap or dear for a loop order."""
    values = profile_values("metaproto-df")
    for name, change in changes.items():
        values[name] |= change
    if dataflow is Dataflow.OUTPUT_STATIONARY:
        values["wram"] |= {"read_pj_per_byte": 0.0}
    if dataflow is Dataflow.WEIGHT_STATIONARY:
        values["wram"] |= {"read_pj_per_byte": 1e6}
    op = replace(conv(4, 32), dtype="int8")
    steps = positions // 16
    return used(op, profile_from_values(values), 32, size=1, steps=steps, positions=positions, pieces=pieces)


def test_output_stationary_loads_all_weights_for_each_step() -> None:
    """The 1,024 bytes of the output register hold one step's 32·4·4 sums of 2 bytes, so 4 steps load 4 times.

    32 filters × 4 × 9 = 1,152 weights; each product of a weight lane reads the register, 4 steps of 1,152 bytes.
    Sums: 64 · 32 results, each added to once per 2 input channels and tap: 2 · 9 · 2 bytes, read and written.
    """
    use = int8_use(Dataflow.OUTPUT_STATIONARY)
    assert use.dataflow is Dataflow.OUTPUT_STATIONARY
    assert use.array_cycles == 4 * 2 * 9
    assert use.weight_bytes == 4 * 1_152
    assert use.partial_bytes == 0
    assert use.weight_register == LevelBytes(read=4 * 1_152, written=4 * 1_152)
    assert use.output_register == LevelBytes(read=64 * 32 * 18 * 2, written=64 * 32 * 18 * 2)
    assert use.output_bytes == 64 * 32


def test_weight_stationary_passes_partial_sums_through_the_memory() -> None:
    """The 64 bytes of the weight register hold one of 18 loads: 17 times the 64·32 sums of 2 bytes go out and in."""
    use = int8_use(Dataflow.WEIGHT_STATIONARY)
    assert use.dataflow is Dataflow.WEIGHT_STATIONARY
    assert use.weight_bytes == 1_152
    assert use.partial_bytes == 17 * 64 * 32 * 2
    assert use.weight_register == LevelBytes(read=4 * 1_152, written=1_152)


def test_every_operand_is_read_once_per_pass_over_output_channels() -> None:
    """64 positions × 4 channels × 9 taps, one pass of 32 filters; 2·4·4 bytes of a step are whole accesses of 8."""
    assert int8_use().input_bytes == 64 * 4 * 9


def test_the_cheaper_loop_order_is_taken() -> None:
    """At 0.26875 pJ, 3 · 1,152 more weight bytes cost less than 2 · 69,632 bytes of partial sums."""
    assert int8_use().dataflow is Dataflow.OUTPUT_STATIONARY


def test_weights_come_again_for_every_piece() -> None:
    assert int8_use(Dataflow.WEIGHT_STATIONARY, pieces=3).weight_bytes == 3 * 1_152


def test_ports_are_kept_for_whole_accesses() -> None:
    """72 array cycles read 2·4·4 = 32 bytes each from a port of 64: 72 cycles. Results: 2,048 bytes, 32 cycles.

    Weights, output-stationary: 4 · 1,152 bytes through 64 per cycle are 72 cycles. A port of 16 keeps reading twice
    as long; shared ports add both.
    """
    use = int8_use()
    assert (use.read_port_cycles, use.write_port_cycles, use.weight_port_cycles) == (72, 32, 72)
    narrow = int8_use(nram={"bytes_per_cycle": 16})
    assert (narrow.read_port_cycles, narrow.write_port_cycles) == (144, 128)
    both = int8_use(nram={"ports": "shared"})
    assert (both.read_port_cycles, both.write_port_cycles) == (104, 104)


def test_pieces_smaller_than_an_access_cost_a_whole_one() -> None:
    """PROF-2: 3 filters and 1 channel give steps of 3 weight bytes; accesses of 8 make 8/3 of 27 · 4 bytes."""
    op = replace(conv(1, 3), dtype="int8")
    use = used(op, META, 3, size=1, steps=4, positions=64)
    assert use.dataflow is Dataflow.OUTPUT_STATIONARY
    assert use.weight_bytes == 27 * 4 * 8 // 3


def test_array_cycles_are_no_fewer_than_products_over_lanes() -> None:
    """Utilisation is at most 1, for channels and maps of any size."""
    lanes = prod((32, 2, 4, 4))
    for channels, filters, extent in ((1, 1, 3), (5, 33, 7), (64, 64, 16), (3, 48, 5)):
        op = replace(conv(channels, filters, extent=extent), dtype="int8")
        steps = ceil_div(extent, 4) ** 2
        use = used(op, META, filters, size=1, steps=steps, positions=extent**2)
        if use.dataflow is not Dataflow.VECTOR:
            assert use.array_cycles * lanes >= op.total_macs


# --- polar4x4: 4×4 blocks of 8 output × 8 input channels, their rows on input channels or rows, their columns on output
# channels or columns ------------------------------------------------------------------------------------------------


def on_box(op: OpFacts, box: tuple[int, int, int], **changes: Any) -> CoreUse:
    """What an int8 product takes of a core of polar4x4 for a box of its result: channels, rows, columns."""
    values = profile_values("polar4x4")
    for name, change in changes.items():
        values["matrix"][name] |= change
    profile = profile_from_values(values)
    op = replace(op, dtype="int8")
    work = work_on_box(op, ("N", "C", "H", "W"), (1, *box), profile)
    return core_use(op, work, ElementSizes(input=1, weight=1, output=1, operands=1), profile)


def test_an_array_of_one_block_has_one_arrangement() -> None:
    (lanes,) = arrangements(META.matrix.arrays["int8"])
    assert lanes == Lanes(k=32, c=2, ox=4, oy=4)


def test_blocks_without_input_channels_work_on_other_rows() -> None:
    """3 input channels fill one row of blocks: with rows of blocks on rows of the map, 28 rows are 7 steps, not 28.

    7×7 taps · 2 passes of 32 of 64 output channels · 28 columns · 7.
    """
    assert on_box(conv(3, 64, kernel=7, extent=28), (64, 28, 28)).array_cycles == 49 * 2 * 28 * 7


def test_blocks_without_output_channels_work_on_other_columns() -> None:
    """64 inputs are 2 passes of 32; 16 of 16 outputs are 2 passes of 8, each on 4 columns at once."""
    assert on_box(conv(64, 16, kernel=1, extent=8), (16, 8, 8)).array_cycles == 2 * 2 * 8 * 2


def test_blocks_stay_on_channels_where_a_box_has_one_position() -> None:
    """1 position: 8 passes of 32 inputs · 4 passes of 32 outputs."""
    assert on_box(conv(256, 128, kernel=1, extent=1), (128, 1, 1)).array_cycles == 8 * 4


def test_every_block_keeps_sums_of_eight_products_and_inputs_of_its_own() -> None:
    """1×1, 64 to 64 channels on 7×28: as many accesses as SET's own model counts, 0.2781 pJ for each product.

    Sums of 4 bytes: 64·196 results by 2 passes of 4 blocks over 64 inputs, then 4 read once more for each result.
    Inputs: 64·196 by 8 passes of 8 of 64 output channels, brought to one column of blocks that works on all.
    """
    use = on_box(conv(64, 64, kernel=1, extent=28), (64, 7, 28))
    assert use.array_cycles == 784
    results = 64 * 7 * 28
    assert use.output_register == LevelBytes(read=results * (2 * 4 + 4) * 4, written=results * 2 * 4 * 4)
    assert use.result_register == LevelBytes(read=results, written=results)
    assert use.input_register == LevelBytes(read=results * 8, written=results)
    # four columns of blocks work on other columns of the map with the same weights, 49 positions each
    assert use.weight_register == LevelBytes(read=4 * 64 * 64, written=4 * 64 * 64)
    assert register_energy_pj(use, builtin_profile("polar4x4")) / (64 * 64 * 196) == pytest.approx(0.2781, abs=5e-5)


def test_weights_that_stay_in_their_buffer_are_read_from_memory_once() -> None:
    """3×3, 64 to 64 channels on 56×56: tiles of at most 64 positions for each lane, and all weights stay."""
    use = on_box(conv(64, 64, extent=56), (64, 56, 56))
    assert use.weight_bytes == 64 * 64 * 9
    assert use.partial_bytes == 0


def test_weights_without_room_in_their_buffer_come_again_or_sums_pass_the_memory() -> None:
    """One weight for each lane: of 2 · 9 steps that a sum takes none stays."""
    small = {"weight": {"capacity_bytes": 64, "read_pj_per_byte": 0.3053, "write_pj_per_byte": 0.2471}}
    use = on_box(conv(64, 64, extent=56), (64, 56, 56), buffers=small)
    assert use.weight_bytes > 64 * 64 * 9 or use.partial_bytes > 0
