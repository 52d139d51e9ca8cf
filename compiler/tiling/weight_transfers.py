"""How many transfers bring the weights of an op that stay in the cores: an engine prepares one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from compiler.cost.rates import reads_are_shared
from compiler.ops.op_facts import OpFacts
from compiler.profile.schema import Profile

Number = TypeVar("Number", float, NDArray[np.float64])


def weights_of(op: OpFacts) -> tuple[float, float]:
    """How many weights of an op are shared out with its output channels, and how many are not."""
    channel = op.channel_axis
    follow = {
        o.tensor: channel is not None and any(its.axis == channel and its.is_identity for its in o.access)
        for o in op.operands
        if o.constant
    }
    return float(sum(follow.values())), float(len(follow) - sum(follow.values()))


def brought_alone(profile: Profile, units_apart: bool, cores_apart: bool) -> bool:
    """Whether cores load weights by their own IODMA: where no two units, and no two cores of a unit, need the same."""
    return not profile.units.are_cores and profile.engines.iodma is not None and units_apart and cores_apart


def transfers(own: Number, common: Number, cores: Number, sharing: Number, apart: Number, direct: Number) -> Number:
    """Transfers of one engine for `own` weights that are shared out with the channels, and for `common` ones.

    Each of `cores` gets its channels by a transfer of its own (1 where cores do not share these out). Of the units that
    need the same, `sharing` of them, each brings a part, and hands it to the others. 1 or 0: where units share out the
    channels (`apart`) each brings its own; where cores' own engines bring weights from DRAM (`direct`) all do so at the
    same time, while the unit's engine brings what all of them need.
    """
    together = common / sharing
    by_unit = own * cores / (apart + (1 - apart) * sharing) + together
    by_cores: Number = np.maximum(own, together)
    return direct * by_cores + (1 - direct) * by_unit


def transfers_of(
    ops: Sequence[OpFacts],
    profile: Profile,
    cores: NDArray[np.int64],
    cores_apart: NDArray[np.bool_],
    units: NDArray[np.int64],
    units_apart: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """The same for each op under some configurations: shape (ops, configurations).

    `cores` of a unit; where they share out the channels, and where `units` do.
    """
    own, common = np.array([weights_of(op) for op in ops]).T[:, :, None]
    direct = np.zeros(len(units), dtype=np.bool_)
    if brought_alone(profile, units_apart=True, cores_apart=True):
        direct = (cores_apart | (cores == 1)) & (units_apart | (units == 1))
    sharing = units if reads_are_shared(profile) else np.ones_like(units)
    split = np.where(cores_apart, cores, 1), sharing, units_apart, direct
    return transfers(own, common, *(column.astype(np.float64) for column in split))
