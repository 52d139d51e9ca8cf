"""Address tables in programs: they are loaded, they are proved, and what calls read is found through them (ADDR-5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from compiler.address.build import build_table
from compiler.address.unit import unit_read, words_of
from compiler.ir.layout import DEFAULT_LAYOUT, Layout
from compiler.ops.base import Window
from compiler.program.errors import ProgramError
from compiler.program.loops.proof import prove
from compiler.program.program import ADDRESSES, Addresses, Level, Opcode, Program, Role
from compiler.simulator.values import Chip
from compiler.tiling.exact import figures_of
from compiler.tiling.loads import table_reads
from compiler.tiling.tile import HaloMode, Order, Spread
from compiler.tiling.tiled import TiledGroup
from tests.compiler.program.builder import changed
from tests.compiler.program.lowered import Lowered, Network, chip, group, lower, pair, run
from tests.models import Model

RECOMPUTE, CACHED, EXCHANGE = HaloMode.RECOMPUTE, HaloMode.CACHED, HaloMode.EXCHANGE


def windows(layout: Layout = DEFAULT_LAYOUT, **attributes: Any) -> Network:
    """Convolutions of all kinds and poolings, one after another."""
    model = Model()
    x = model.input([2, 4, 13, 11], "x")
    x = model.conv(x, 4, 8, **attributes)
    x = model.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = model.conv(x, 8, 8, group=8)
    x = model.conv(x, 8, 8, group=2, dilation=2)
    model.output(model.node("AveragePool", [x], kernel_shape=[2, 2], strides=[1, 1]))
    return Network(model, layout=layout)


def tilings(network: Network) -> list[TiledGroup]:
    """One of each kind of lowering, with and without kept halos."""
    flat, nested = chip(cores=2), chip(clusters=2, cores=2, sram=1 << 16, wram=1 << 14)
    two: dict[str, Any] = {"units": 2, "spread": Spread.BANDS}
    cores: dict[str, Any] = {"cores": 2, "core_spread": Spread.BANDS}
    return [
        group(network, flat, {"H": 2}),
        group(network, flat, {"H": 2, "W": 3}, CACHED),
        group(network, flat, {"H": 1}, EXCHANGE, **two),
        group(network, nested, {"H": 3, "W": 2}, CACHED, order=Order.BREADTH_FIRST, **cores),
        group(network, nested, {"H": 4}, RECOMPUTE, {"H": 2}, **cores),
        group(network, nested, {"H": 4}, CACHED, {"H": 1, "W": 3}, **cores),
    ]


def bound_tables(program: Program) -> list[set[int]]:
    """Of each call the address tables that it binds."""
    operands = program.bindings["operand"]
    ranges = [(int(call["first"]), int(call["first"] + call["count"])) for call in program.calls]
    return [{ADDRESSES - int(n) for n in operands[a:b] if n <= ADDRESSES} for a, b in ranges]


def kinds(program: Program) -> list[str]:
    """Of each call the op that it computes."""
    return [program.units[program.tables[call["table"]].unit].kind for call in program.calls]


@pytest.mark.parametrize("number", range(6))
def test_every_call_of_a_window_finds_its_input_through_tables(number: int) -> None:
    """ADDR-5: in every kind of lowering, and with values as the reference has them."""
    network = windows()
    found = run(network, tilings(network)[number])
    program = found.expanded
    assert set(kinds(program)) == {"Conv", "MaxPool", "AveragePool"}
    assert all(bound_tables(program)), "a call without address tables"
    # tables are shared: fewer than there are calls, each loaded and each where its cores can read it
    assert 0 < len(program.addresses) < len(program.calls)
    used = set().union(*bound_tables(program))
    assert all(found.loaded_bytes(program.regions[program.addresses[n].region].name) for n in used)
    places = {program.places[b["place"]].level for b in program.bindings if b["operand"] <= ADDRESSES}
    assert places == {Level.WRAM if number > 2 else Level.NRAM}


@pytest.mark.matrix(first=4, rest=4)
@pytest.mark.parametrize("layout", ["NCHW", "CNHW"])
@pytest.mark.parametrize("number", range(6))
def test_tables_of_other_layouts_have_offsets_of_channels(layout: Layout, number: int) -> None:
    """ADDR-2, ADDR-5: every call reads through them, with the same transfers but for tables, and the same values."""
    network, other = windows(layout), windows()
    tiling, usual = tilings(network)[number], tilings(other)[number]
    found, expected = run(network, tiling), lower(other, usual)
    program = found.expanded
    assert all(bound_tables(program)), "a call without address tables"
    # 4 or 8 channels: none has more, so a block is all of them
    assert {addresses.table.taps[1] for addresses in program.addresses} == {4, 8}
    assert {addresses.table.taps[1] for addresses in expected.expanded.addresses} == {1}
    for opcode in (Opcode.LOAD, Opcode.STORE):
        tables = (found.table_bytes, expected.table_bytes) if opcode is Opcode.LOAD else (0, 0)
        assert found.dram_bytes(opcode) - tables[0] == expected.dram_bytes(opcode) - tables[1]
    assert found.table_bytes > expected.table_bytes


@pytest.mark.parametrize(
    ("layout", "data", "weight"),
    [
        ("NHWC", (0, 2, 3, 1), (0, 2, 3, 1)),
        ("NCHW", (0, 1, 2, 3), (0, 1, 2, 3)),
        ("CNHW", (1, 0, 2, 3), (0, 1, 2, 3)),
    ],
)
def test_weights_are_packed_in_the_order_of_offsets(
    layout: Layout, data: tuple[int, ...], weight: tuple[int, ...]
) -> None:
    """ADDR-1: the same index serves an operand and its weight; maps in DRAM lie in the layout, too."""
    model = Model()
    x = model.input([2, 3, 6, 5], "x")
    model.output(model.conv(x, 3, 4))
    network = Network(model, layout=layout)
    program = lower(network, group(network, chip(), {"H": 2}, CACHED)).expanded
    orders = {region.role: region.order for region in program.regions if region.role is not Role.ADDRESSES}
    assert orders == {Role.INPUT: data, Role.OUTPUT: data, Role.WEIGHT: weight}
    for addresses in program.addresses:
        table = addresses.table
        assert [axis for axis in table.tap_axes if table.taps[axis] > 1] == [
            axis for axis in weight if axis and table.taps[axis] > 1
        ]


def test_a_table_of_another_distance_of_channels_is_refused() -> None:
    model = Model()
    x = model.input([1, 2, 6, 6], "x")
    model.output(model.conv(x, 2, 3))
    network = Network(model, layout="NCHW")
    program = lower(network, group(network, chip(), {"H": 2}, CACHED)).expanded
    table = program.addresses[0].table
    steps = (0, table.tap_steps[1] + 4, *table.tap_steps[2:])
    read = unit_read(
        Window((3, 3), (1, 1), (1, 1), (1, 1)), table.positions, 2, (1 << 12, *steps[1:]), table.element_bytes
    )
    other = build_table(read)
    assert (other.size_bytes, other.taps) == (table.size_bytes, table.taps)
    addresses = (replace(program.addresses[0], table=other), *program.addresses[1:])
    assert refusal(replace(program, addresses=addresses)).violation == "addresses"


def test_strided_windows_and_narrow_elements_are_read_through_tables_too() -> None:
    network = windows(stride=2, dilation=2)
    program = run(network, group(network, chip(), {"H": 2}, CACHED)).expanded
    assert all(bound_tables(program))


def test_windows_of_one_tap_and_stride_one_need_none() -> None:
    model = Model()
    x = model.input([1, 4, 6, 6], "x")
    model.output(model.conv(model.conv(x, 4, 8, kernel=1), 8, 4, kernel=1, stride=2))
    network = Network(model)
    program = run(network, group(network, chip(), {})).expanded
    assert [bool(tables) for tables in bound_tables(program)] == [False, True]


def test_a_core_that_counts_by_strides_has_no_tables() -> None:
    network = pair()
    tiling = group(network, replace_addressing(chip()), {"H": 3}, CACHED)
    program = run(network, tiling).expanded
    assert not program.addresses
    assert not any(bound_tables(program))
    assert not table_reads(tiling)
    assert not any(tiling.table_bytes)


def replace_addressing(profile: Any) -> Any:
    """The profile with address generators."""
    return msgspec.structs.replace(profile, addressing="strides")


def test_tables_count_with_the_weights() -> None:
    """ADDR-5: in FUSE-10 to 17 and in what a core holds."""
    network, profile = pair(), chip(wram=4096)
    with_tables = group(network, profile, {"H": 3}, CACHED)
    without = group(network, replace_addressing(profile), {"H": 3}, CACHED)
    sizes = np.array(with_tables.table_bytes)
    # blocks of 12 rows of 6 and nine taps; the second reads its tile and what waits of it
    assert sizes.tolist() == [2 * 4 * (72 + 9)] * 2
    a, b = figures_of(with_tables), figures_of(without)
    assert np.array_equal(a.core_weights - b.core_weights, sizes)
    assert a.needed_weights - b.needed_weights == sizes.sum()
    assert sum(table_reads(with_tables).values()) == sizes.sum()


# --- the proof --------------------------------------------------------------------------------------------------------


def small() -> Lowered:
    """One convolution through an address table."""
    model = Model()
    x = model.input([1, 2, 6, 6], "x")
    model.output(model.conv(x, 2, 3))
    network = Network(model)
    return lower(network, group(network, chip(), {"H": 2}, CACHED))


def table_bindings(program: Program) -> list[int]:
    return np.flatnonzero(program.bindings["operand"] <= ADDRESSES).tolist()


def refusal(program: Program) -> ProgramError:
    with pytest.raises(ProgramError) as found:
        prove(program)
    return found.value


def test_a_table_for_other_strides_is_refused() -> None:
    program = small().expanded
    table = program.addresses[0].table
    other = build_table(
        unit_read(Window((3, 3), (1, 1), (1, 1), (1, 1)), table.positions, 2, (1 << 12, 4, 256, 8), table.element_bytes)
    )
    assert other.size_bytes == table.size_bytes
    addresses = tuple(Addresses(region=a.region, table=other) for a in program.addresses)
    error = refusal(replace(program, addresses=addresses))
    assert error.violation == "addresses"
    assert error.command is not None


def test_a_table_that_was_not_loaded_is_refused() -> None:
    found = small()
    program = found.expanded
    name = program.regions[program.addresses[0].region].name
    (load, *_) = found.loads_of(name)
    error = refusal(changed(program, commands=(load, "opcode", int(Opcode.BARRIER))))
    assert error.violation == "unwritten"


@pytest.mark.parametrize(
    ("field", "value", "violation"),
    [
        ("operand", ADDRESSES - 7, "binding"),
        ("lengths", 3, "addresses"),
        ("strides", 8, "addresses"),
        ("starts", 1, "addresses"),
    ],
)
def test_tables_that_are_not_there_or_bound_in_part_are_refused(field: str, value: int, violation: str) -> None:
    program = small().expanded
    rows = program.bindings.copy()
    row = table_bindings(program)[0]
    if field == "operand":
        rows[field][row] = value
    else:
        rows[field][row, 0] = value
    assert refusal(replace(program, bindings=rows)).violation == violation


def test_regions_of_tables_are_those_that_the_tables_name() -> None:
    program = small().expanded
    assert refusal(replace(program, addresses=())).violation in ("addresses", "binding")
    twice = (*program.addresses, program.addresses[0])
    assert refusal(replace(program, addresses=twice)).violation == "addresses"
    weight = next(i for i, region in enumerate(program.regions) if region.role is Role.WEIGHT)
    wrong = (replace(program.addresses[0], region=weight), *program.addresses[1:])
    assert refusal(replace(program, addresses=wrong)).violation == "addresses"


def test_an_op_without_a_window_binds_no_tables() -> None:
    model = Model()
    x = model.input([1, 2, 6, 6], "x")
    model.output(model.node("Relu", [model.conv(x, 2, 3)]))
    network = Network(model)
    program = lower(network, group(network, chip(), {})).expanded
    relu = next(i for i, kind in enumerate(kinds(program)) if kind == "Relu")
    calls, bindings = program.calls.copy(), program.bindings
    first, count = int(calls["first"][relu]), int(calls["count"][relu])
    rows = np.concatenate([bindings, bindings[first : first + count], bindings[table_bindings(program)[:1]]])
    calls["first"][relu], calls["count"][relu] = len(bindings), count + 1
    error = refusal(replace(program, calls=calls, bindings=rows))
    assert error.violation == "addresses"
    assert "window" in str(error)


# --- the simulator ----------------------------------------------------------------------------------------------------


def test_what_lies_where_the_table_should_is_looked_at() -> None:
    """SIM-1: a table is read from its memory; another one there is named, not followed."""
    found = small()
    program = found.expanded
    for word in (0, 5, -1):
        chip_ = Chip(program)
        chip_.write("x", found.network.values["x"])
        for region in program.regions:
            if region.role is Role.WEIGHT:
                chip_.write(region.name, found.network.constant(region.name))
        load_addresses = chip_._load_addresses

        def spoiled(word: int = word, chip_: Chip = chip_, load: Any = load_addresses) -> None:
            load()
            region = program.regions[program.addresses[0].region]
            chip_._view(region)[word] += 4

        chip_._load_addresses = spoiled  # type: ignore[method-assign]
        with pytest.raises(ProgramError) as error:
            chip_.run()
        assert error.value.violation == "addresses"
        assert error.value.command is not None


def test_the_words_of_a_table_are_its_bases_and_offsets() -> None:
    table = small().expanded.addresses[0].table
    words = words_of(table)
    # a row of 6 positions, 8 bytes apart (2 channels of float32), 6 rows; 9 taps
    assert len(words) == 36 + 9
    assert words[:7].tolist() == [0, 8, 16, 24, 32, 40, 48]
    assert words[36:40].tolist() == [0, 8, 16, 48]


def test_operands_that_are_too_many_to_be_held_at_once_are_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    network = windows()
    monkeypatch.setattr("compiler.simulator.calls._LARGEST_MET_BYTES", 4096)
    run(network, tilings(network)[0])


def test_slices_of_weights_beside_large_tables_are_of_whole_channels() -> None:
    """FUSE-10: slices of what slices in time leave of the channels: a channel is not cut."""
    model = Model()
    model.output(model.conv(model.input([1, 4, 16, 16], "x"), 4, 8))
    network = Network(model)
    profile = chip(sram=1 << 15, wram=2048)
    tiling = group(network, profile, {"C": 2}, order=Order.BREADTH_FIRST, channel_slices=4)
    (weights,) = tiling.weights
    assert weights.table_bytes > 2048 // 2
    assert weights.slices <= 2
    assert run(network, tiling).expanded.addresses
