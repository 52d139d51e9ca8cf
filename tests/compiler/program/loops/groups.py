"""Programs of random groups and of MC-CNN, as they are lowered: all loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx

from compiler.errors import LimitError
from compiler.frontend.patterns import RecognisePatterns
from compiler.frontend.precision import SetPrecision
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.fuse import FuseSegments
from compiler.ops.op_facts import graph_facts
from compiler.options import parse_options
from compiler.partition.attention import FuseAttention
from compiler.profile.load import builtin_profile
from compiler.profile.schema import Profile
from compiler.program.decode import Decoders
from compiler.program.lower import handed_out
from compiler.program.program import Program
from compiler.program.segment import PlannedGroup
from compiler.program.steps.segment import SegmentSteps
from compiler.tiling.memory import memory_of
from compiler.tiling.placement import Placement
from compiler.tiling.tile import HaloMode, Order, Spread
from compiler.tiling.tiled import TiledGroup
from tests.bench.prices import pinned
from tests.compiler.program.lowered import Network, chip, fits, group, tiling_of
from tests.models import Model, import_graph, partition_of
from tests.networks import _chain as chain

# Of so many iterations loops should be jumped over (issue 26).
LONG: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredGroup:
    """A group's network, its chip, and its program."""

    network: Network
    profile: Profile
    program: Program


METAPROTO: Final = builtin_profile("metaproto-df")


def random_group(seed: int) -> tuple[Network, TiledGroup] | None:
    """A group of one to three ops with small tiles on one to four cores; None where the plan does not fit."""
    random = np.random.default_rng(seed)

    def pick(*values: Any) -> Any:
        return values[int(random.integers(len(values)))]

    model = Model(seed=seed)
    channels, height, width = pick(1, 2, 3, 4), int(random.integers(24, 97)), int(random.integers(6, 33))
    x = model.input([1, channels, height, width], "x")
    for _ in range(pick(1, 2, 2, 3)):
        kind = pick("conv", "conv", "conv", "relu", "pool")
        kernel, stride = pick(1, 2, 3, 3), pick(1, 1, 1, 2)
        if min(height, width) < 6 or kind == "relu":
            x = model.relu(x)
        elif kind == "pool":
            x = model.pool(x, 2, 2)
            height, width = (height - 2) // 2 + 1, (width - 2) // 2 + 1
        else:
            pad, filters = pick(0, kernel // 2), pick(2, 4, 8)
            x = model.conv(x, channels, filters, kernel, stride=stride, pad=pad, bias=pick(True, False))
            channels = filters
            height, width = ((e + 2 * pad - kernel) // stride + 1 for e in (height, width))
    model.output(x)
    network = Network(model, seed=seed)
    cores = pick(1, 2, 2, 4)
    spread = Spread.SINGLE if cores == 1 else pick(Spread.BANDS, Spread.BANDS, Spread.CHANNELS)
    tile = {"H": pick(1, 2, 3, 4), "W": pick(width, width, -(-width // 2), -(-width // 3))}
    changes: dict[str, Any] = {"units": cores, "spread": spread, "double_buffered": pick(True, True, False)}
    changes["placement"] = pick(Placement.BANDS, Placement.BANDS, Placement.BLOCKS, Placement.BAND_COLUMNS)
    if pick(0, 0, 1):
        changes["walk"] = ("W", "H")
    mode = pick(HaloMode.RECOMPUTE, HaloMode.CACHED, HaloMode.CACHED, HaloMode.EXCHANGE)
    found = group(network, chip(cores=cores, nram=pick(1 << 14, 1 << 16)), tile, mode, **changes)
    return (network, found) if fits(found) else None


def random_clusters(seed: int) -> tuple[Network, TiledGroup] | None:
    """A group of one to six ops on clusters with an SRAM, depth-first or breadth-first; None where it does not fit."""
    random = np.random.default_rng([seed, 1])

    def pick(*values: Any) -> Any:
        return values[int(random.integers(len(values)))]

    model = Model(seed=seed)
    channels, height, width = pick(1, 2, 3, 4), int(random.integers(24, 121)), int(random.integers(8, 33))
    x = model.input([1, channels, height, width], "x")
    for _ in range(pick(1, 2, 3)):
        kernel, filters = pick(1, 3, 3), pick(2, 4, 8)
        x = model.conv(x, channels, filters, kernel, pad=kernel // 2, bias=pick(True, False))
        channels = filters
        x = model.relu(x) if pick(True, False) else x
    model.output(x)
    network = Network(model, seed=seed)
    clusters, cores, order = pick(1, 2, 4), pick(1, 2, 4), pick(Order.DEPTH_FIRST, Order.BREADTH_FIRST)
    rows = pick(2, 4, 6)
    tile = {"H": rows, "W": pick(width, -(-width // 2))}
    core = {"H": pick(1, 2, rows), "W": pick(tile["W"], -(-tile["W"] // 2))} if order is Order.DEPTH_FIRST else None
    changes: dict[str, Any] = {
        "units": clusters,
        "spread": Spread.SINGLE if clusters == 1 else pick(Spread.BANDS, Spread.BANDS, Spread.CHANNELS),
        "cores": cores,
        "core_spread": Spread.SINGLE if cores == 1 else pick(Spread.BANDS, Spread.CHANNELS),
        "order": order,
        "double_buffered": pick(True, True, False),
        "weights_in_sram": pick(True, False),
    }
    mode = pick(HaloMode.RECOMPUTE, HaloMode.CACHED, HaloMode.CACHED, HaloMode.EXCHANGE)
    profile = chip(
        cores=cores,
        clusters=clusters,
        sram=pick(1 << 15, 1 << 18),
        sram_weights=pick(0, 0, 1 << 13),
        nram=pick(1 << 12, 1 << 14),
        wram=pick(0, 1 << 11),
        bus=pick(True, False),
    )
    found = group(network, profile, tile, mode, core, **changes)
    return (network, found) if fits(found) else None


class _Always:
    """One op for whatever can be one."""

    def price(self, groups: list[tuple[int, ...]]) -> float | None:
        return 0.0 if groups == [(0,)] else None


def fused_attention(network: Network) -> Network:
    """A network with one op for each of its attentions, whatever that costs."""
    graph = RecognisePatterns(source=network.source).run(network.facts.graph)
    candidates: Any = _Always()
    network.facts = graph_facts(FuseAttention(source=network.source, candidates=lambda _: candidates).run(graph))
    return network


def random_sums(seed: int) -> tuple[Network, TiledGroup] | None:
    """A product or an attention whose sums are made in many parts on one to four cores; None where it does not fit."""
    random = np.random.default_rng([seed, 2])

    def pick(*values: Any) -> Any:
        return values[int(random.integers(len(values)))]

    model = Model(opset=18, seed=seed)
    rows, depth = int(random.integers(20, 60)), int(random.integers(25, 70))
    if pick(True, False):
        x, filters = model.input([1, depth, rows, pick(1, 4)], "x"), pick(4, 8)
        x = model.conv(x, depth, filters, pick(1, 3), bias=pick(True, False))
        model.output(model.relu(x) if pick(True, False) else x)
        network = Network(model, seed=seed)
    else:
        heads = pick(1, 3)
        q, k, v = (model.input([heads, *its]) for its in ((rows, 4), (4, depth), (depth, pick(4, 6))))
        x = model.node("MatMul", [q, k])
        x = model.node("Add", [x, model.input(pick([rows, depth], [depth], [heads, 1, depth]))])
        model.output(model.node("MatMul", [model.node("Softmax", [x], axis=-1), v]))
        network = fused_attention(Network(model, seed=seed))
    cores = pick(1, 2, 4)
    changes: dict[str, Any] = {
        "units": cores,
        "spread": Spread.SINGLE if cores == 1 else Spread.BANDS,
        "double_buffered": pick(True, True, False),
        "input_slices": pick(depth // 2, depth // 3, depth // 5, depth),
    }
    found = group(network, chip(cores=cores, nram=pick(1 << 13, 1 << 16)), {"H": pick(2, 3, 4)}, **changes)
    return (network, found) if fits(found) else None


def sliced_concat(seed: int) -> tuple[Network, TiledGroup]:
    """A concat of two or three maps along channels that is made slice by slice; slices lie in one map each."""
    random = np.random.default_rng([seed, 3])
    model = Model(seed=seed)
    slices, width, maps = 24, int(random.integers(1, 4)), int(random.integers(2, 4))
    x = [model.input([1, slices // maps * width, 4, 4]) for _ in range(maps)]
    model.output(model.node("Concat", x, axis=1))
    network = Network(model, seed=seed)
    cores = int(random.integers(1, 3))
    changes: dict[str, Any] = {"units": cores, "spread": Spread.SINGLE if cores == 1 else Spread.BANDS}
    tile = {"C": width, "H": int(random.integers(1, 3))}
    return network, group(network, chip(cores=cores, nram=1 << 12), tile, channel_slices=slices, **changes)


def lowered_group(
    seed: int, made_by: Callable[[int], tuple[Network, TiledGroup] | None] = random_group
) -> LoweredGroup | None:
    """A random group's program; None where the group does not fit or is not lowered."""
    made = made_by(seed)
    if made is None:
        return None
    network, its = made
    planned = [PlannedGroup(name="g", ops=its.geometry.indices, tiling=tiling_of(its, memory_of(its)))]
    outputs = handed_out(network.facts, its.geometry.indices)
    decoders = Decoders(network.facts.graph, network.source)
    try:
        steps = SegmentSteps(network.facts, its.profile, "g", planned, outputs, decoders=decoders)
    except LimitError:
        return None
    program = steps.lowered(listed_max=0)
    return LoweredGroup(network=network, profile=its.profile, program=program)


def lowered_groups(count: int, first: int = 0) -> Iterator[LoweredGroup]:
    """So many random groups that fit."""
    seed = first
    while count:
        found = lowered_group(seed)
        seed += 1
        if found is not None:
            yield found
            count -= 1


def group_programs(count: int, first: int = 0) -> Iterator[Program]:
    """The programs of so many random groups."""
    return (found.program for found in lowered_groups(count, first))


def mc_cnn(width: int, height: int, tile: Mapping[str, int]) -> tuple[Program, Profile]:
    """MC-CNN (N-6) with a last map of these extents on metaproto-df, as one group under a pinned tile."""
    return pinned_group(chain("mc_cnn", 1, ((64, 3),) * 4, height, width), tile).lowered(listed_max=0), METAPROTO


def pinned_group(model: onnx.ModelProto, tile: Mapping[str, int]) -> SegmentSteps:
    """A chain in int8 on metaproto-df as one group under a pinned tile, halos cached."""
    schedule = pinned(model, dict(tile), {"H": "cached", "W": "cached"})
    options = parse_options({"schedule": schedule, "precision": "int8", "objective": "energy"})
    graph = SetPrecision(precision="int8").run(import_graph(model.SerializeToString()))
    compilers = SegmentCompilers(METAPROTO, options)
    fused = FuseSegments(options=options, compilers=compilers).run(partition_of(graph, METAPROTO, options))
    (found,) = fused.segments[0].groups
    planned = [PlannedGroup(name="g", ops=found.ops, tiling=found.choice.tiling)]
    return SegmentSteps(fused.facts, METAPROTO, "g", planned, handed_out(fused.facts, found.ops))
