"""Executables of one segment whose commands loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from compiler.profile.load import builtin_profile
from compiler.profile.schema import Profile
from compiler.program.encoding.blob import Blob
from compiler.program.encoding.records import with_identifier
from compiler.program.executable import ChipSegment, Executable, Value, Weight
from compiler.program.program import Program, Region, Role, Rows
from tests.compiler.program.loops.groups import LoweredGroup
from tests.compiler.program.loops.samples import sample


def executable_of(program: Program, profile: Profile, weights: Mapping[str, Rows] | None = None) -> Executable:
    """An executable whose inputs and outputs are those of its program; `weights` by name, as elements."""
    # programs that tests build have units without digests
    units = tuple(with_identifier(unit) for unit in program.units)
    program = replace(program, units=units)
    return Executable(
        compiler_version="0.0.0",
        profile=profile,
        model_name="group",
        model_digest="11" * 32,
        options_digest="22" * 32,
        inputs=_values(program, Role.INPUT),
        outputs=_values(program, Role.OUTPUT),
        segments=(
            ChipSegment(
                id="s0",
                chip=0,
                program=program,
                weights=tuple(
                    Weight(region=number, data=_blob(region, (weights or {})[region.name]))
                    for number, region in enumerate(program.regions)
                    if region.role is Role.WEIGHT
                ),
            ),
        ),
    )


def sample_executable() -> Executable:
    """The sample of two nests, with its input x and its output z."""
    return executable_of(sample(), builtin_profile("edge4"))


def group_executable(group: LoweredGroup) -> Executable:
    """A group with its weights."""
    regions = group.program.regions
    weights = {r.name: group.network.constant(r.name) for r in regions if r.role is Role.WEIGHT}
    return executable_of(group.program, group.profile, weights)


def _values(program: Program, role: Role) -> tuple[Value, ...]:
    return tuple(
        Value(name=region.name, tensor=region.name, dtype=region.dtype, shape=region.shape)
        for region in program.regions
        if region.role is role
    )


def _blob(region: Region, values: Rows) -> Blob:
    """A weight's bytes as they lie in its region."""
    data = np.zeros(region.size_bytes, dtype=np.uint8)
    np.ndarray(region.shape, values.dtype, data, 0, region.strides)[...] = values
    return Blob.of(data.tobytes())
