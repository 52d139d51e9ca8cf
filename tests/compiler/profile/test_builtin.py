"""The built-in profiles carry the figures of PROF-3."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.errors import RequestError
from compiler.profile import builtin_names, builtin_profile
from tests.profiles import profile_values

KIB, MIB, GIB = 1024, 1024**2, 1024**3

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
        "matrix.arrays.float32": {"k": 16, "c": 16},
        "matrix.arrays.float16": {"k": 16, "c": 32},
        "matrix.arrays.int8": {"k": 32, "c": 32},
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
        "matrix.arrays.float32": {"k": 8, "c": 8},
        "matrix.arrays.float16": {"k": 8, "c": 16},
        "matrix.arrays.int8": {"k": 16, "c": 16},
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
        "matrix.arrays.float32": {"k": 8, "c": 8},
        "matrix.arrays.float16": {"k": 8, "c": 16},
        "matrix.arrays.int8": {"k": 16, "c": 16},
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
}


def value_at(values: Any, path: str) -> Any:
    """The value at a dotted path."""
    for part in path.split("."):
        values = values[part]
    return values


@pytest.mark.parametrize(("name", "path"), [(name, path) for name in FIGURES for path in FIGURES[name]])
def test_built_in_figures_are_those_of_the_specification(name: str, path: str) -> None:
    """PROF-3."""
    assert value_at(profile_values(name), path) == FIGURES[name][path]


def test_built_in_profiles_are_known_by_name() -> None:
    assert set(FIGURES) <= set(builtin_names())
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
