"""The built-in profiles carry the figures of PROF-3."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.errors import RequestError
from compiler.profile import builtin_names, builtin_profile
from tests.profiles import profile_values

KIB, MIB, GIB = 1024, 1024**2, 1024**3


def lanes(k: int, c: int, ox: int = 1, oy: int = 1, *, blocks: int = 1) -> dict[str, int]:
    """An array's lanes as a profile has them, of so many rows and columns of blocks."""
    return {"k": k, "c": c, "ox": ox, "oy": oy, "block_rows": blocks, "block_columns": blocks}


def memory(capacity_bytes: int, read: float, write: float, **more: Any) -> dict[str, Any]:
    """A memory as a profile has it, by default without a rate and a weight part of its own."""
    ports = {"weight_bytes": None, "bytes_per_cycle": None, "ports": "shared", "access_bytes": 1}
    return {"capacity_bytes": capacity_bytes, "read_pj_per_byte": read, "write_pj_per_byte": write, **ports, **more}


def buffer(capacity_bytes: int, read: float, write: float) -> dict[str, Any]:
    """A buffer of the matrix unit as a profile has it."""
    return {"capacity_bytes": capacity_bytes, "read_pj_per_byte": read, "write_pj_per_byte": write}


# Path -> value, for every figure of the table and of the text below it.
FIGURES: dict[str, dict[str, Any]] = {
    "cluster4x4": {
        "clock_hz": 1e9,
        "chips": 1,
        "clusters_per_chip": 4,
        "cores_per_cluster": 4,
        "dram.capacity_bytes": 16 * GIB,
        "dram.bandwidth_bytes_per_s": 102.4e9,
        "dram.read_pj_per_byte": 80,
        "dram.write_pj_per_byte": 80,
        "dram.startup_ns": 200,
        "dram.multicast": False,
        "sram.capacity_bytes": 2 * MIB,
        "sram.read_pj_per_byte": 1.6,
        "sram.write_pj_per_byte": 1.6,
        "sram.weight_bytes": None,
        "nram.capacity_bytes": 512 * KIB,
        "nram.read_pj_per_byte": 0.4,
        "nram.write_pj_per_byte": 0.4,
        "wram.capacity_bytes": MIB,
        "wram.read_pj_per_byte": 0.5,
        "wram.write_pj_per_byte": 0.5,
        "matrix.arrays.float32": lanes(16, 16),
        "matrix.arrays.float16": lanes(16, 32),
        "matrix.arrays.int8": lanes(32, 32),
        "matrix.pj_per_mac": {"float32": 1.2, "float16": 0.4, "int8": 0.06},
        "vector.lanes": 64,
        "vector.pj_per_operation": 0.1,
        "engines.gdma.bytes_per_cycle": 64,
        "engines.gdma.startup_ns": 200,
        "engines.iodma.bytes_per_cycle": 16,
        "engines.iodma.startup_ns": 200,
        "engines.mvdma.bytes_per_cycle": 64,
        "engines.mvdma.startup_ns": 20,
        "engines.cdma.bytes_per_cycle": 32,
        "engines.cdma.startup_ns": 20,
        "engines.bus.bytes_per_cycle": 128,
        "engines.bus.startup_ns": 20,
        "engines.link": None,
        "engines.shared": (),
        "weights.mode": "streamed",
        "weights.compression": 1.0,
        "limits.program_bytes": 4 * MIB,
        "limits.weight_bytes": None,
        "limits.macs": None,
        "host_link_bytes_per_s": 16e9,
        "chip_link_bytes_per_s": None,
        "line_bytes": 64,
        "static_w": 1,
    },
    "edge4": {
        "clock_hz": 800e6,
        "chips": 1,
        "clusters_per_chip": 1,
        "cores_per_cluster": 4,
        "dram.capacity_bytes": 4 * GIB,
        "dram.bandwidth_bytes_per_s": 12.8e9,
        "dram.read_pj_per_byte": 40,
        "dram.write_pj_per_byte": 40,
        "dram.startup_ns": 150,
        "dram.multicast": False,
        "sram": None,
        "nram.capacity_bytes": 256 * KIB,
        "nram.read_pj_per_byte": 0.35,
        "nram.write_pj_per_byte": 0.35,
        "nram.weight_bytes": None,
        "wram": None,
        "matrix.arrays.float32": lanes(8, 8),
        "matrix.arrays.float16": lanes(8, 16),
        "matrix.arrays.int8": lanes(16, 16),
        "matrix.pj_per_mac": {"float32": 1.2, "float16": 0.4, "int8": 0.06},
        "vector.lanes": 16,
        "vector.pj_per_operation": 0.1,
        "engines.iodma.bytes_per_cycle": 8,
        "engines.iodma.startup_ns": 150,
        "engines.link.topology": "ring",
        "engines.link.bytes_per_cycle": 16,
        "engines.link.hop_cycles": 1,
        "engines.link.pj_per_byte_hop": 1.0,
        "engines.gdma": None,
        "engines.mvdma": None,
        "engines.cdma": None,
        "engines.bus": None,
        "weights.mode": "streamed",
        "weights.compression": 1.0,
        "limits.program_bytes": MIB,
        "limits.weight_bytes": None,
        "limits.macs": None,
        "host_link_bytes_per_s": 2e9,
        "chip_link_bytes_per_s": None,
        "line_bytes": 32,
        "static_w": 0.2,
    },
    "manycore2x64": {
        "clock_hz": 1e9,
        "chips": 2,
        "clusters_per_chip": 1,
        "cores_per_cluster": 64,
        "dram.capacity_bytes": 8 * GIB,
        "dram.bandwidth_bytes_per_s": 25.6e9,
        "dram.read_pj_per_byte": 60,
        "dram.write_pj_per_byte": 60,
        "dram.startup_ns": 200,
        "dram.multicast": False,
        "sram": None,
        "nram.capacity_bytes": 512 * KIB,
        "nram.read_pj_per_byte": 0.4,
        "nram.write_pj_per_byte": 0.4,
        "nram.weight_bytes": None,
        "wram": None,
        "matrix.arrays.float32": lanes(8, 8),
        "matrix.arrays.float16": lanes(8, 16),
        "matrix.arrays.int8": lanes(16, 16),
        "matrix.pj_per_mac": {"float32": 1.2, "float16": 0.4, "int8": 0.06},
        "vector.lanes": 16,
        "vector.pj_per_operation": 0.1,
        "engines.iodma.bytes_per_cycle": 4,
        "engines.iodma.startup_ns": 200,
        "engines.link.topology": "mesh",
        "engines.link.bytes_per_cycle": 8,
        "engines.link.hop_cycles": 1,
        "engines.link.pj_per_byte_hop": 1.0,
        "engines.gdma": None,
        "engines.mvdma": None,
        "engines.cdma": None,
        "engines.bus": None,
        "weights.mode": "stationary",
        "weights.compression": 1.0,
        "limits.program_bytes": None,
        "limits.program_bytes_per_core": 64 * KIB,
        "limits.weight_bytes": None,
        "limits.macs": None,
        "host_link_bytes_per_s": 8e9,
        "chip_link_bytes_per_s": 8e9,
        "line_bytes": 64,
        "static_w": 2,
    },
    "polar4x4": {
        "clock_hz": 1e9,
        "chips": 1,
        "clusters_per_chip": 1,
        "cores_per_cluster": 16,
        "dram.capacity_bytes": 16 * GIB,
        "dram.bandwidth_bytes_per_s": 16e9,  # 16 bytes per cycle
        "dram.read_pj_per_byte": 60,
        "dram.write_pj_per_byte": 60,
        "dram.startup_ns": 0,
        "dram.multicast": True,
        "dram.ports": "mesh-sides",
        "sram": None,
        "nram": memory(MIB, 1.0537, 1.8722),
        "wram": None,
        "matrix.arrays": {"int8": lanes(32, 32, blocks=4)},
        "matrix.pj_per_mac": {"int8": 0.018},
        "matrix.accumulator_bytes": None,
        "matrix.buffers.input": buffer(8 * KIB, 0.3885, 0.3293),
        "matrix.buffers.weight": buffer(8 * 4 * KIB, 0.3053, 0.2471),  # 4 KiB for each of a block's eight lanes
        "matrix.buffers.output": buffer(4 * 2 * KIB, 0.6416 / 4, 0.5672 / 4),  # the source counts 1 byte for a sum
        "matrix.buffers.result": buffer(28 * KIB, 0.6119, 0.7919),
        "vector.lanes": 64,
        "vector.pj_per_operation": 0.0873,
        "engines.iodma": {"bytes_per_cycle": 24, "startup_ns": 0},
        "engines.link": {"topology": "mesh", "bytes_per_cycle": 24, "hop_cycles": 0, "pj_per_byte_hop": 5.6},
        "engines.gdma": None,
        "engines.mvdma": None,
        "engines.cdma": None,
        "engines.bus": None,
        "weights": {"mode": "streamed", "compression": 1.0},
        "limits": dict.fromkeys(("program_bytes", "program_bytes_per_core", "weight_bytes", "macs", "commands")),
        "host_link_bytes_per_s": None,
        "chip_link_bytes_per_s": None,
        "line_bytes": 64,
        "static_w": 0,
    },
    "metaproto-df": {
        "clock_hz": 1e9,
        "chips": 1,
        "clusters_per_chip": 1,
        "cores_per_cluster": 1,
        "dram.capacity_bytes": 16 * GIB,
        "dram.bandwidth_bytes_per_s": 8e9,  # 8 bytes per cycle
        "dram.read_pj_per_byte": 87.5,
        "dram.write_pj_per_byte": 93.75,
        "dram.startup_ns": 0,
        "dram.multicast": False,
        "dram.ports": "every-core",
        # energies are stated per access of the ports' width; to divide by a power of two loses nothing
        "sram": memory(
            MIB, 208.08 / 128, 189.2 / 128, weight_bytes=MIB, bytes_per_cycle=128, ports="separate", access_bytes=8
        ),
        "nram": memory(64 * KIB, 26.56 / 64, 30.8 / 64, bytes_per_cycle=64, ports="separate", access_bytes=8),
        "wram": memory(32 * KIB, 17.2 / 64, 28.4 / 64, bytes_per_cycle=64, ports="separate", access_bytes=8),
        "matrix.arrays": {"int8": lanes(32, 2, 4, 4)},
        "matrix.pj_per_mac": {"int8": 0.04},
        "matrix.accumulator_bytes": 2,
        "matrix.buffers.input": None,
        "matrix.buffers.weight": buffer(32 * 2, 0.01, 0.01),  # 1 byte, 0.01 pJ, shared along OX and OY
        "matrix.buffers.output": buffer(32 * 4 * 4 * 2, 0.02 / 2, 0.02 / 2),  # 2 bytes for each K, OX, OY lane
        "vector.lanes": 64,
        "vector.pj_per_operation": 0.1,
        "engines.gdma": {"bytes_per_cycle": 8, "startup_ns": 0},
        "engines.mvdma": {"bytes_per_cycle": 64, "startup_ns": 0},
        "engines.iodma": None,
        "engines.cdma": None,
        "engines.bus": None,
        "engines.link": None,
        "weights": {"mode": "streamed", "compression": 1.0},
        "limits": dict.fromkeys(("program_bytes", "program_bytes_per_core", "weight_bytes", "macs", "commands")),
        "host_link_bytes_per_s": None,
        "chip_link_bytes_per_s": None,
        "line_bytes": 64,
        "static_w": 0,
    },
}


def value_at(values: Any, path: str) -> Any:
    """The value at a dotted path."""
    for part in path.split("."):
        values = values[part]
    return values


@pytest.mark.matrix(first=66, rest=66)
@pytest.mark.parametrize(("name", "path"), [(name, path) for name in FIGURES for path in FIGURES[name]])
def test_built_in_figures_are_those_of_the_specification(name: str, path: str) -> None:
    """PROF-3."""
    assert value_at(profile_values(name), path) == FIGURES[name][path]


def test_built_in_profiles_are_known_by_name() -> None:
    assert set(FIGURES) == set(builtin_names())
    assert all(builtin_profile(name).name == name for name in builtin_names())


@pytest.mark.parametrize("name", ["nowhere", "../secrets", "", "cluster4x4.yaml", "a\nb"])
def test_an_unknown_profile_is_refused_with_those_that_exist(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        builtin_profile(name)
    assert caught.value.code == "unknown_profile"
    assert "cluster4x4" in str(caught.value.hint)
    assert "\n" not in str(caught.value)


def test_edge_cores_hold_weights_beside_activations() -> None:
    """PROF-2: without WRAM weights share NRAM."""
    edge, cluster = builtin_profile("edge4"), builtin_profile("cluster4x4")
    assert edge.weights_share_activations
    assert edge.weight_memory_bytes == 256 * KIB
    assert not cluster.weights_share_activations
    assert cluster.weight_memory_bytes == MIB
    assert (edge.cores, cluster.cores) == (4, 16)
    assert cluster.dram_bytes_per_cycle == pytest.approx(102.4)


@pytest.mark.parametrize("name", ["cluster4x4", "edge4", "manycore2x64"])
def test_profiles_that_state_no_ports_and_buffers_have_shared_ports_and_free_registers(name: str) -> None:
    """PROF-2: what a profile says nothing of means what it meant before the field existed."""
    values = profile_values(name)
    assert values["dram"]["ports"] == "every-core"
    assert values["matrix"]["buffers"] == dict.fromkeys(("weight", "output", "input", "result"))
    assert values["matrix"]["accumulator_bytes"] is None
    for level in ("sram", "nram", "wram"):
        stated = values[level]
        assert stated is None or (stated["ports"], stated["access_bytes"]) == ("shared", 1)
    assert all((array["ox"], array["oy"]) == (1, 1) for array in values["matrix"]["arrays"].values())


def test_what_a_profile_leaves_out_of_its_source_is_said_in_its_description() -> None:
    """PROF-3: `polar4x4` has four arrangements of an array's blocks, its source six."""
    assert "two arrangements" in builtin_profile("polar4x4").description
