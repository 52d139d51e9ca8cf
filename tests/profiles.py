"""Small hardware profiles for tests, and the plain values of built-in ones to be changed."""

from __future__ import annotations

from typing import Any

import msgspec

from compiler.profile import builtin_profile
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile


def small_profile(
    *,
    nram_bytes: int,
    wram_bytes: int | None = None,
    sram_bytes: int | None = None,
    clusters: int = 1,
    cores: int = 1,
    bandwidth_bytes_per_s: float = 1e10,
    lanes: int = 8,
    addressing: str = "strides",
) -> Profile:
    """An accelerator that has little of everything; with `sram_bytes` its cores are fed through an SRAM.

    Its units count addresses by strides, so that figures can be checked by hand.
    """
    values = profile_values("edge4")
    values["name"] = "small"
    values["addressing"] = addressing
    values["clusters_per_chip"] = clusters
    values["cores_per_cluster"] = cores
    values["dram"]["bandwidth_bytes_per_s"] = bandwidth_bytes_per_s
    values["nram"]["capacity_bytes"] = nram_bytes
    values["vector"]["lanes"] = lanes
    if wram_bytes is not None:
        values["wram"] = {"capacity_bytes": wram_bytes, "read_pj_per_byte": 0.5, "write_pj_per_byte": 0.5}
    if sram_bytes is not None:
        values["sram"] = {"capacity_bytes": sram_bytes, "read_pj_per_byte": 1.6, "write_pj_per_byte": 1.6}
        values["engines"] = {
            "gdma": {"bytes_per_cycle": 64},
            "mvdma": {"bytes_per_cycle": 64},
            "cdma": {"bytes_per_cycle": 32},
        }
    return profile_from_values(values)


def profile_values(name: str) -> dict[str, Any]:
    """A built-in profile as plain values, to be changed."""
    values: dict[str, Any] = msgspec.to_builtins(builtin_profile(name))
    return values


def changed_profile(name: str, **changes: Any) -> Profile:
    """A built-in profile with other fields; `engines__link` is field `link` of `engines`."""
    values = profile_values(name)
    for path, value in changes.items():
        inside = values
        *folders, field = path.split("__")
        for folder in folders:
            inside = inside[folder]
        inside[field] = value
    return profile_from_values(values)
