"""Random groups under random tilings, lowered, proved, run and compared with the reference (PROG-1, PROG-2, SIM-1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, prod
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from onnx import TensorProto

from compiler.cost.rates import units_are_connected
from compiler.errors import LimitError
from compiler.fusion.segment_graph import bits
from compiler.ir.graph import HOST
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from compiler.program.loops.proof import prove
from compiler.tiling.configurations import finer_configurations, simple_configurations
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.placement import Placement
from compiler.tiling.sizes import SizeTable
from compiler.tiling.tile import Configuration, HaloMode, Spread, WeightLoads
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.walk import dealt_axes
from tests.compiler.program.lowered import Network, fits, run
from tests.models import Model, whole_segment
from tests.profiles import profile_values
from tests.strategies import models

# Tiles of one case: more only take longer.
_TILES_MAX = 48
KINDS = ("image", "line", "volume", "matrix", "typed", "shared")


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """A small chip of any shape: with or without SRAM, parts for weights, engines that pass halos and broadcast."""
    values = profile_values("edge4")
    has_sram = draw(st.integers(0, 2)) > 0
    clusters = draw(st.sampled_from([2, 1, 4])) if has_sram else 1
    cores = draw(st.sampled_from([4, 2, 3, 1]))
    values["name"] = "small"
    values["clusters_per_chip"] = clusters
    values["cores_per_cluster"] = cores
    values["dram"]["multicast"] = draw(st.booleans())
    values["nram"]["capacity_bytes"] = draw(st.sampled_from([16384, 4096, 2048, 1024, 512, 65536]))
    values["matrix"]["arrays"] = {
        name: {"k": draw(st.sampled_from([1, 4])), "c": 4}
        for name in ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int32")
    }
    values["matrix"]["pj_per_mac"] = dict.fromkeys(values["matrix"]["arrays"], 1.0)
    engines: dict[str, Any] = {"iodma": {"bytes_per_cycle": 8}}
    if has_sram:
        if draw(st.integers(0, 3)) == 0:
            engines.clear()
        engines["gdma"] = {"bytes_per_cycle": 64}
        engines["mvdma"] = {"bytes_per_cycle": 64}
        if draw(st.integers(0, 3)):
            engines["cdma"] = {"bytes_per_cycle": 32}
        if draw(st.booleans()):
            engines["bus"] = {"bytes_per_cycle": 32}
        sram = {"capacity_bytes": draw(st.sampled_from([32768, 8192, 4096, 2048, 262144]))}
        values["sram"] = {**sram, "read_pj_per_byte": 1.6, "write_pj_per_byte": 1.6}
        if draw(st.integers(0, 3)) == 0:
            values["sram"]["weight_bytes"] = draw(st.sampled_from([512, 2048, 16384]))
    elif draw(st.integers(0, 3)):
        engines["link"] = {"topology": draw(st.sampled_from(["ring", "mesh"])), "bytes_per_cycle": 8}
    values["engines"] = engines
    home = draw(st.sampled_from(["shared", "wram", "part"]))
    size = draw(st.sampled_from([256, 512, 1024, 4096, 65536]))
    if home == "wram":
        values["wram"] = {"capacity_bytes": size, "read_pj_per_byte": 0.5, "write_pj_per_byte": 0.5}
    elif home == "part":
        values["nram"]["weight_bytes"] = size
    if draw(st.integers(0, 5)) == 0:
        values["weights"] = {"mode": "stationary", "compression": 1.0}
    return profile_from_values(values)


@st.composite
def networks(draw: st.DrawFn, kind: str | None = None) -> Network:
    """A small network: images, lines, volumes, matrices, element types other than float32, or weights read again."""
    kind = kind or draw(st.sampled_from(KINDS))
    if kind == "image":
        return Network(draw(models(max_ops=5, max_extent=9)))
    model = Model()
    if kind == "matrix":
        _matrices(draw, model)
    elif kind == "typed":
        _typed(draw, model)
    elif kind == "shared":
        _shared(draw, model)
    else:
        _convolutions(draw, model, 1 if kind == "line" else 3)
    return Network(model)


def _convolutions(draw: st.DrawFn, model: Model, rank: int) -> None:
    """Convolutions and poolings of lines or volumes: dilated, strided beyond their kernels, grouped, with branches."""
    n, c = draw(st.sampled_from([1, 1, 2])), draw(st.integers(1, 4))
    shape = [draw(st.integers(3, 7 if rank == 3 else 20)) for _ in range(rank)]
    x = model.input([n, c, *shape])
    taps = []
    for _ in range(draw(st.integers(1, 4))):
        kernel = [draw(st.integers(1, min(3, e))) for e in shape]
        stride = [draw(st.sampled_from([1, 1, 2, 4])) for _ in shape]
        dilation = [draw(st.sampled_from([1, 2])) if (k - 1) * 2 < e else 1 for k, e in zip(kernel, shape, strict=True)]
        pads = [draw(st.integers(0, k - 1)) for k in kernel]
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
        op = draw(st.sampled_from(["conv", "conv", "pool", "relu", "add"]))
        if op == "conv":
            filters = draw(st.integers(1, 5))
            x = model.node(
                "Conv",
                [x, model.weight(filters, c, *kernel), *([model.weight(filters)] if draw(st.booleans()) else [])],
                kernel_shape=kernel,
                strides=stride,
                dilations=dilation,
                pads=[*pads, *pads],
            )
            c = filters
            shape = [(e + 2 * p - r) // s + 1 for e, p, r, s in zip(shape, pads, reach, stride, strict=True)]
        elif op == "pool":
            x = model.node("MaxPool", [x], kernel_shape=kernel, strides=stride)
            shape = [(e - k) // s + 1 for e, k, s in zip(shape, kernel, stride, strict=True)]
        elif op == "add":
            x = model.node("Add", [model.relu(x), x])
        else:
            x = model.relu(x)
        if draw(st.integers(0, 3)) == 0:
            taps.append(x)
    for name in dict.fromkeys([*taps, x]):
        model.output(name)


def _matrices(draw: st.DrawFn, model: Model) -> None:
    """Products of matrices, with softmax, layer norms, transposes, lookups in tables."""
    n, m, k = draw(st.integers(1, 3)), draw(st.integers(1, 9)), draw(st.integers(2, 12))
    if draw(st.integers(0, 2)) == 0:
        indices = model.input([n, m], dtype=TensorProto.INT64)
        x = model.node("Gather", [model.weight(draw(st.integers(3, 40)), k), indices], axis=0)
    else:
        x = model.input([n, m, k])
    taps = []
    for _ in range(draw(st.integers(1, 4))):
        op = draw(st.sampled_from(["matmul", "matmul", "self", "softmax", "norm", "gelu", "transpose", "reshape"]))
        if op == "matmul":
            width = draw(st.integers(1, 12))
            x = model.node("MatMul", [x, model.weight(k, width)])
            if draw(st.booleans()):
                x = model.node("Add", [x, model.weight(width)])
            k = width
        elif op == "self":
            y = model.node("Transpose", [x], perm=[0, 2, 1])
            x = model.node("MatMul", [x, y])
            k = m
        elif op == "softmax":
            x = model.node("Softmax", [x], axis=draw(st.sampled_from([1, 2])))
        elif op == "norm":
            x = model.node("LayerNormalization", [x, model.weight(k), model.weight(k)], axis=-1)
        elif op == "gelu":
            x = model.node("Mul", [x, model.node("Sigmoid", [x])])
        elif op == "transpose":
            x = model.node("Transpose", [x], perm=[0, 2, 1])
            m, k = k, m
        elif m % 2 == 0:
            x = model.node("Reshape", [x, model.ints(n, m // 2, 2 * k)])
            m, k = m // 2, 2 * k
        if draw(st.integers(0, 3)) == 0:
            taps.append(x)
    if not model.nodes:
        x = model.relu(x)
    for name in dict.fromkeys([*(t for t in taps if t not in {i.name for i in model.inputs}), x]):
        if name not in {i.name for i in model.inputs}:
            model.output(name)
    if not model.outputs:
        model.output(model.relu(x))


_TYPES = {
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float64": TensorProto.DOUBLE,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


def _typed(draw: st.DrawFn, model: Model) -> None:
    """Elementwise ops and poolings of other element types, and conversions between them."""
    names = list(_TYPES)
    dtype = draw(st.sampled_from(names))
    n, c, h, w = draw(st.integers(1, 2)), draw(st.integers(1, 5)), draw(st.integers(2, 9)), draw(st.integers(2, 9))
    x = model.input([n, c, h, w], dtype=_TYPES[dtype])
    for _ in range(draw(st.integers(1, 4))):
        op = draw(st.sampled_from(["cast", "cast", "own", "own", "where", "concat", "transpose", "conv"]))
        if op == "own" and dtype == "bool":
            x = model.node("Not", [x])
        elif op == "own":
            x = model.node(draw(st.sampled_from(["Add", "Max"] if dtype[-1:] != "8" else ["Max"])), [x, x])
        elif op == "where":
            flag = model.node("Cast", [x], to=TensorProto.BOOL) if dtype != "bool" else x
            x = model.node("Where", [flag, x, x])
        elif op == "concat":
            x = model.node("Concat", [x, x], axis=1)
            c *= 2
        elif op == "transpose":
            x = model.node("Transpose", [x], perm=[0, 1, 3, 2])
            h, w = w, h
        elif op == "conv" and dtype == "float16":
            filters = draw(st.integers(1, 4))
            weight = model.constant(model.random.integers(-2, 3, (filters, c, 1, 1)).astype(np.float16))
            x = model.node("Conv", [x, weight], kernel_shape=[1, 1])
            c = filters
        elif op == "conv" and dtype in ("int8", "uint8"):
            filters = draw(st.integers(1, 4))
            weight = model.constant(model.random.integers(-9, 9, (filters, c, 3, 3)).astype(np.int8))
            x = model.node("ConvInteger", [x, weight], kernel_shape=[3, 3], pads=[1] * 4)
            c, dtype = filters, "int32"
        else:
            dtype = draw(st.sampled_from(["float16", "int32", "bool", "int64", "bfloat16", "float32"]))
            x = model.node("Cast", [x], to={**_TYPES, "float32": TensorProto.FLOAT}[dtype])
            if dtype == "float32":
                dtype = "float16"
                x = model.node("Cast", [x], to=TensorProto.FLOAT16)
    model.output(x, _TYPES[dtype])


def _shared(draw: st.DrawFn, model: Model) -> None:
    """Layers of equal weights, of images or of matrices, some with slices and views between them."""
    width = 2 * draw(st.integers(1, 6))
    if draw(st.booleans()):
        x = model.input([draw(st.integers(1, 2)), width, draw(st.integers(3, 9)), draw(st.integers(3, 9))])
        kernel, groups = draw(st.sampled_from([1, 3])), draw(st.sampled_from([1, 1, 2, width]))
        layers = [(model.weight(width, width // groups, kernel, kernel), model.weight(width)) for _ in range(2)]
        for _ in range(draw(st.integers(2, 4))):
            layer = layers[draw(st.integers(0, 3)) // 3]
            x = model.node("Conv", [x, *layer], pads=[kernel // 2] * 4, group=groups)
            x = model.relu(x) if draw(st.booleans()) else x
            if draw(st.integers(0, 3)) == 0:
                model.output(x)
    else:
        x = model.input([draw(st.integers(1, 5)), width])
        layers = [(model.weight(width, width), model.weight(width)) for _ in range(2)]
        for _ in range(draw(st.integers(2, 4))):
            weight, bias = layers[draw(st.integers(0, 3)) // 3]
            x = model.node("Add", [model.node("MatMul", [x, weight]), bias])
            if draw(st.booleans()):
                low, high = model.nodes_out("Split", [x], [model.fresh("low"), model.fresh("high")], axis=1)
                x = model.node("Concat", [model.node("Mul", [low, high]), low], axis=1)
            if draw(st.integers(0, 3)) == 0:
                model.output(x)
    model.output(model.relu(x))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Groups of a network that run one after another, each under a complete tiling that fits."""

    network: Network
    groups: tuple[TiledGroup, ...]
    profile: Profile
    resident_bytes: int


def _members(draw: st.DrawFn, network: Network, count: int) -> list[list[int]]:
    """Ops of groups that run one after another: a random convex set, or a stretch of all ops cut into several."""
    graph = whole_segment(network.facts)
    on_chip = [op for op in sorted(graph.ops) if network.facts.graph.ops[op].kind != HOST]
    assume(len(on_chip) >= count)
    if count > 1:
        assume(len(on_chip) == len(graph.ops))
        cuts = sorted(draw(st.permutations(range(1, len(on_chip))))[: count - 1])
        return [on_chip[begin:end] for begin, end in pairwise([0, *cuts, len(on_chip)])]
    last = draw(st.sampled_from(on_chip[::-1]))
    members = [last]
    for op in sorted(bits(graph.ancestors[last]), reverse=True):
        if op in on_chip and draw(st.integers(0, 4)):
            mask = sum(1 << m for m in [*members, op])
            if graph.is_convex(mask):
                members.append(op)
    return [members]


def _configuration(draw: st.DrawFn, geometry: GroupGeometry, profile: Profile) -> Configuration:
    """Any configuration that the planner tries, or a schedule may pin."""
    halo = draw(st.sampled_from(HaloMode))
    axes = [a for a, e in zip(geometry.output.axes, geometry.output.shape, strict=True) if a != "C" and e > 1]
    modes = {} if halo is HaloMode.RECOMPUTE else dict.fromkeys(axes, HaloMode.CACHED)
    table = SizeTable.of_group(geometry, modes, {}, {})
    simple = simple_configurations(geometry, table, profile)
    spreads = dict.fromkeys((c.spread, c.core_spread, c.order) for c in reversed(simple))
    how = draw(st.sampled_from(list(spreads)))
    base = draw(st.sampled_from([c for c in simple if (c.spread, c.core_spread, c.order) == how]))
    found = draw(st.sampled_from(list(dict.fromkeys([base, *finer_configurations(table, base)]))))
    changes: dict[str, Any] = {"double_buffered": draw(st.booleans())}
    changes["walk"] = tuple(draw(st.permutations([a for a in geometry.output.axes if a not in ("N", "C")])))
    if found.spread is Spread.BANDS:
        changes["placement"] = draw(st.sampled_from(Placement))
    if found.channel_slices > 1:
        # sums wait for one slice, so these stay outermost where input channels are cut too
        changes["slices_outer"] = found.slices_outer or draw(st.booleans())
    if draw(st.integers(0, 3)) == 0:
        kinds = st.sampled_from([WeightLoads.STREAMED, WeightLoads.RESIDENT])
        changes["loads"] = tuple((op.index, draw(kinds)) for op in geometry.ops if op.weight_bytes)
    if modes:
        connected = found.spread is not Spread.BANDS or units_are_connected(profile)
        mode = HaloMode.EXCHANGE if halo is HaloMode.EXCHANGE and connected else HaloMode.CACHED
        changes["halo"] = tuple((axis, mode) for axis in axes)
    return replace(found, **changes)


def _tiled(draw: st.DrawFn, geometry: GroupGeometry, profile: Profile) -> TiledGroup:
    """A group under a random tiling that the planner calls fitting."""
    found = _configuration(draw, geometry, profile)
    extents = dict(zip(geometry.output.axes, geometry.output.shape, strict=True))
    free = TiledGroup(geometry, profile, found, extents).channels_are_free
    rows, columns = dealt_axes(geometry)
    dealt: dict[str | None, int] = {}
    if found.spread is Spread.BANDS and draw(st.booleans()):
        # one tile, and one core tile of each core, along what is dealt out: halos may pass both ways
        high = draw(st.sampled_from([n for n in range(1, found.units + 1) if found.units % n == 0]))
        alone = {Placement.BANDS: {rows: found.units}, Placement.BLOCKS: {rows: high, columns: found.units // high}}
        dealt = {**alone, Placement.BAND_COLUMNS: {columns: found.units}}.get(found.placement, {})
    bands = found.core_spread is Spread.BANDS
    tile = {}
    for axis, extent in extents.items():
        if axis == "C":
            parts = found.channel_slices * (found.units if found.spread is Spread.CHANNELS else 1)
            tile[axis] = ceil(extent / parts) if free else extent
        else:
            shared = found.spread is Spread.IMAGES and axis == "N"
            least = ceil(extent / dealt.get(axis, extent))
            most = ceil(extent / found.units) if shared else extent
            tile[axis] = draw(st.integers(least, least if axis in dealt and draw(st.booleans()) else most))
    group = TiledGroup(geometry, profile, found, tile)
    if group.is_nested:
        smallest = {a: ceil(tile[a] / (found.cores if bands and a == rows else 1)) for a in dealt if a in tile}
        core = {a: draw(st.integers(smallest.get(a, 1), size)) if a != "C" else size for a, size in tile.items()}
        if found.core_spread is Spread.CHANNELS and free:
            core["C"] = ceil(tile["C"] / found.cores)
        assume(prod(ceil(e / core[a]) for a, e in extents.items()) <= 2 * _TILES_MAX)
        group = TiledGroup(geometry, profile, found, tile, core)
    assume(prod(ceil(e / tile[a]) for a, e in extents.items()) <= _TILES_MAX)
    assume(fits(group))
    return group


@st.composite
def cases(draw: st.DrawFn, *, kind: str | None = None, groups: int = 1) -> Case:
    """Random groups of a random network on a random chip."""
    network = draw(networks(kind))
    profile = draw(profiles())
    members = _members(draw, network, groups)
    resident = 0
    if profile.is_stationary:
        resident = network.resident_bytes(profile, sorted(op for group in members for op in group))
        room = profile.nram.capacity_bytes if profile.weights_share_activations else profile.weight_memory_bytes
        assume(resident < room)
    beside = profile.beside(resident)
    tilings = tuple(_tiled(draw, GroupGeometry(network.facts, group), beside) for group in members)
    return Case(network=network, groups=tilings, profile=profile, resident_bytes=resident)


# What programs cannot do yet, or the profile has no engine for; the planner's search never chooses it.
_REFUSED = ("not_lowered", "no_engine")


def check(case: Case) -> None:
    """Lower, prove, run and compare, with loops and without; a refusal that is stated is no case."""
    try:
        found = run(case.network, *case.groups, resident_bytes=case.resident_bytes, profile=case.profile)
    except LimitError as error:
        assume(error.code not in _REFUSED)
        raise
    plain = prove(found.expanded, shared=case.profile.engines.shared)
    assert (found.proof.peak_bytes, found.proof.commands) == (plain.peak_bytes, plain.commands)


@pytest.mark.matrix(first=1, rest=3)
@pytest.mark.parametrize("kind", KINDS)
def test_any_tiling_that_fits_is_lowered_to_a_safe_program_with_the_right_values(kind: str) -> None:
    """PROG-1, PROG-2, PROG-4, PROG-5, PROG-7, SIM-1: a seeded sample; the test marked `full` takes many more."""
    examine(cases(kind=kind), 20)


@pytest.mark.parametrize(
    "count", [4, pytest.param(10, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.full)]
)
def test_groups_that_follow_one_another_do_not_disturb_each_other(count: int) -> None:
    examine(cases(groups=2), count)


@pytest.mark.full
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_many_tilings_of_every_kind_are_lowered_with_the_right_values(kind: str, groups: int) -> None:
    examine(cases(kind=kind, groups=groups), 150)


def examine(found: st.SearchStrategy[Case], count: int) -> None:
    """Check that many cases; the first that fails is told as it is, since shrinking takes minutes."""

    @hypothesis.settings(max_examples=count, phases=[hypothesis.Phase.generate])
    @hypothesis.given(found)
    def every(case: Case) -> None:
        check(case)

    every()
