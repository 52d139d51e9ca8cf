"""What the report says of simulated time and energy, on the networks of the onnx package (SIM-2, SIM-3).

The whole matrix (networks, chips, strategies) is marked `full`; one small network on every chip always runs.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from compiler.compile import Compilation, compile_model
from compiler.options import parse_options
from compiler.profile import Profile, builtin_profile
from compiler.profile.load import profile_from_values
from compiler.program.timing.occupancy import MAX_RECTANGLES
from compiler.program.timing.usage import SLICES
from compiler.report.execution import ProgramReport
from tests.models import LIGHT_NAMES, Model, light_source
from tests.profiles import profile_values

# plans are chosen by simulation, in samples too
pytestmark = pytest.mark.chosen

PROFILES = ("cluster4x4", "edge4", "manycore2x64", "polar4x4", "metaproto-df")
# These have no matrix array for float32: planned with every tensor in one byte.
OF_BYTES = ("polar4x4", "metaproto-df")
FUSIONS = ("none", "rules", "search")
LIGHTEST = ("squeezenet", "shufflenet", "bvlc_alexnet", "zfnet512")


@cache
def compiled(name: str, profile: str, fusion: str) -> Compilation:
    """A network's compilation, once per test process."""
    options = {"fusion": fusion, "verify": "none"} | ({"precision": "int8"} if profile in OF_BYTES else {})
    return compile_model(light_source(name), builtin_profile(profile), parse_options(options))


CASES = [
    pytest.param(name, profile, fusion, marks=() if name in LIGHTEST else pytest.mark.full)
    for name in LIGHT_NAMES
    for profile in PROFILES
    for fusion in FUSIONS
    # with borders of tiles larger than what is left of its small memories, fused plans there may have no program
    if profile != "metaproto-df" or fusion == "none"
]


@pytest.mark.matrix(first=0, rest=2)
@pytest.mark.parametrize(("name", "profile", "fusion"), CASES)
def test_no_program_is_faster_than_its_roofline_and_all_time_is_accounted_for(
    name: str, profile: str, fusion: str
) -> None:
    compilation = compiled(name, profile, fusion)
    hardware, report = builtin_profile(profile), compilation.report
    assert report.programs
    for program in report.programs:
        assert_consistent(program, hardware)
    simulated_s = sum(program.simulated_cycles for program in report.programs) / hardware.clock_hz
    totals = report.totals
    assert totals.simulated_latency_s == pytest.approx(simulated_s, rel=1e-4)
    assert totals.simulated_latency_s is not None
    assert totals.simulated_latency_s >= totals.latency_bound_s
    assert totals.simulated_energy_j == pytest.approx(
        sum(sum(program.energy_by_level.values()) for program in report.programs)
    )
    stream = report.stream
    assert stream is not None
    assert stream.latency_s >= totals.simulated_latency_s * (1 - 1e-9)
    assert stream.interval_s >= max(stream.busy_s.values()) * (1 - 1e-9)
    assert stream.images_per_s == pytest.approx(totals.images / stream.interval_s)


def assert_consistent(program: ProgramReport, profile: Profile) -> None:
    """Time at or above the roof, and figures that add up."""
    simulated, point = program.simulated_cycles, program.roofline.program
    assert simulated >= point.bound_cycles - 1
    for group in program.roofline.groups:
        assert group.cycles >= group.bound_cycles - 1
    assert sum(group.dram_bytes for group in program.roofline.groups) == pytest.approx(point.dram_bytes, abs=100)
    for engine in program.engines:
        assert sum(engine.cycles.values()) == pytest.approx(simulated, abs=len(engine.cycles))
        assert engine.busiest_cycles <= simulated
    cores = next(engine for engine in program.engines if engine.engine == "core")
    assert sum(program.stalls.values()) == sum(cores.cycles.values()) - cores.cycles.get("work", 0)
    usage = program.usage
    assert sum(usage.bytes["dram"]) == pytest.approx(point.dram_bytes, abs=SLICES)
    for name, sizes in usage.bytes.items():
        assert len(sizes) == SLICES
        assert max(sizes) <= usage.bytes_per_cycle[name] * usage.slice_cycles + 1
    assert max(usage.array) <= 1
    assert max(usage.vector) <= 1
    moved = program.moved["dram"]
    assert moved.written_bytes == program.dram_write_bytes
    assert moved.read_bytes == program.dram_read_bytes + program.table_read_bytes
    assert program.energy_by_level["dram"] == pytest.approx(
        1e-12
        * (moved.read_bytes * profile.dram.read_pj_per_byte + moved.written_bytes * profile.dram.write_pj_per_byte)
    )
    for held in program.held:
        assert len(held.held) <= MAX_RECTANGLES
        assert max(held.held_bytes) <= program.peaks[held.level].used_bytes


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("profile", PROFILES)
def test_simulated_energy_of_arithmetic_is_the_plan_s(profile: str) -> None:
    """Layer by layer nothing is computed twice: products and operations cost what the plan says."""
    (program,) = compiled("squeezenet", profile, "none").report.programs
    planned = compiled("squeezenet", profile, "none").report.totals.energy_by_level
    for level in ("mac", "vector"):
        assert program.energy_by_level[level] == pytest.approx(planned[level], rel=1e-3)
    assert program.energy_by_level["dram"] == pytest.approx(planned["dram"], rel=0.02)


def two_convolutions() -> bytes:
    model = Model()
    x = model.conv(model.input([1, 8, 16, 16], "x"), 8, 16, name="first")
    model.output(model.conv(x, 16, 8, name="second"))
    return model.data()


def chained(**values: Any) -> Compilation:
    """Two convolutions, each a segment on a chip of its own."""
    profile = profile_from_values(profile_values("manycore2x64") | values)
    options = parse_options({"verify": "none", "partition": ["first"], "merge": "none", "chips": "one-each"})
    return compile_model(two_convolutions(), profile, options)


def test_two_chips_and_the_links_between_them_are_a_pipeline() -> None:
    """x in over the host link, the tensor between over the chip link, the result out over the host link."""
    report = chained(host_link_bytes_per_s=2e9, chip_link_bytes_per_s=4e9).report
    first, second = (program.simulated_cycles * 1e-9 for program in report.programs)
    stream = report.stream
    assert stream is not None
    sizes = {
        "host to chip 0": 8 * 256 * 4 / 2e9,
        "chip 0 to chip 1": 16 * 256 * 4 / 4e9,
        "chip 1 to host": 8 * 256 * 4 / 2e9,
    }
    assert stream.busy_s == pytest.approx({**sizes, "chip 0": first, "chip 1": second}, rel=1e-3)
    assert stream.latency_s == pytest.approx(sum(sizes.values()) + first + second, rel=1e-3)
    assert stream.interval_s == pytest.approx(max(stream.busy_s.values()), rel=1e-9)
    assert stream.busy_s[stream.bound_by] == max(stream.busy_s.values())
    assert stream.segments_begin_s["s1"] == pytest.approx(
        sizes["host to chip 0"] + first + sizes["chip 0 to chip 1"], rel=1e-3
    )


def test_links_without_a_rate_take_no_time() -> None:
    report = chained(host_link_bytes_per_s=None, chip_link_bytes_per_s=None).report
    assert report.stream is not None
    assert report.stream.latency_s == pytest.approx(report.totals.simulated_latency_s)


@pytest.mark.matrix(first=0, rest=2)
@pytest.mark.parametrize("profile", PROFILES)
def test_the_report_stays_small(profile: str) -> None:
    """However many commands: engines by name, slices and maps of fixed size."""
    for program in compiled("squeezenet", profile, "none").report.programs:
        assert len(json.dumps([str(part) for part in (program.engines, program.usage, program.held)])) < 150_000
