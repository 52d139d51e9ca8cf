"""Shared Hypothesis strategies: random graphs, profiles, options and axis maps."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from compiler.options import Options, RuleSetting
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from compiler.rules import RULE_IDS
from tests.models import Model

# Kinds of ops by how often they are drawn.
_COMPUTING = "conv conv conv depthwise relu relu pool add add softmax mean scale"
_MOVING = "concat slice pad upsample split transpose shuffle"
KINDS = (*_COMPUTING.split(), *_MOVING.split())
OBJECTIVES = ("latency", "dram_bytes", "energy", "edp")
FUSIONS = ("search", "rules", "none")


@st.composite
def models(draw: st.DrawFn, *, max_ops: int = 8, max_extent: int = 12, batches: tuple[int, ...] = (1, 1, 2)) -> Model:
    """A random network of image ops with branches, strides, concatenations, slices and several outputs."""
    model = Model()
    n = draw(st.sampled_from(batches))
    c = draw(st.integers(1, 6))
    extent = st.integers(4, max_extent)
    values: list[tuple[str, int, int, int]] = []  # name, C, H, W
    for _ in range(draw(st.integers(1, 2))):
        h, w = draw(extent), draw(extent)
        values.append((model.input([n, c, h, w]), c, h, w))
    count = draw(st.integers(1, max_ops))
    read: set[str] = set()
    for _ in range(count):
        # mostly the newest value, sometimes an older one: chains with branches
        x, c, h, w = values[-1] if draw(st.integers(0, 3)) else draw(st.sampled_from(values))
        op = draw(st.sampled_from(KINDS))
        read.add(x)
        if op in ("conv", "depthwise"):
            kernel = draw(st.integers(1, min(3, h, w)))
            stride = draw(st.sampled_from([1, 1, 1, 2, 3]))
            pad = draw(st.integers(0, kernel // 2))
            group = c if op == "depthwise" else 1
            filters = c * draw(st.integers(1, 2)) if op == "depthwise" else draw(st.integers(1, 8))
            y = model.conv(x, c, filters, kernel, stride=stride, pad=pad, group=group, bias=draw(st.booleans()))
            out = (y, filters, (h + 2 * pad - kernel) // stride + 1, (w + 2 * pad - kernel) // stride + 1)
        elif op == "pool" and min(h, w) >= 2:
            kernel, stride = draw(st.integers(2, min(3, h, w))), draw(st.integers(1, 2))
            y = model.pool(x, kernel, stride, kind=draw(st.sampled_from(["MaxPool", "AveragePool"])))
            out = (y, c, (h - kernel) // stride + 1, (w - kernel) // stride + 1)
        elif op in ("add", "concat"):
            others = [v for v in values if v[2:] == (h, w) and (op == "concat" or v[1] == c)]
            other = draw(st.sampled_from(others))
            read.add(other[0])
            if op == "add":
                out = (model.node("Add", [x, other[0]]), c, h, w)
            else:
                out = (model.node("Concat", [x, other[0]], axis=1), c + other[1], h, w)
        elif op == "slice":
            axis = draw(st.integers(1, 3))
            size = (c, h, w)[axis - 1]
            begin = draw(st.integers(0, size - 1))
            end = draw(st.integers(begin + 1, size))
            step = draw(st.integers(1, 2))
            y = model.node("Slice", [x, model.ints(begin), model.ints(end), model.ints(axis), model.ints(step)])
            sizes = [c, h, w]
            sizes[axis - 1] = -(-(end - begin) // step)
            out = (y, sizes[0], sizes[1], sizes[2])
        elif op == "pad":
            top, left = draw(st.integers(0, 2)), draw(st.integers(0, 2))
            y = model.node("Pad", [x, model.ints(0, 0, top, left, 0, 0, left, top)])
            out = (y, c, h + top + left, w + left + top)
        elif op == "upsample" and h * w * c <= 600:
            y = model.node(
                "Resize",
                [x, "", "", model.ints(n, c, 2 * h, w)],
                mode="nearest",
                nearest_mode="floor",
                coordinate_transformation_mode="asymmetric",
            )
            out = (y, c, 2 * h, w)
        elif op == "softmax":
            out = (model.node("Softmax", [x], axis=draw(st.integers(1, 3))), c, h, w)
        elif op == "mean":
            out = (model.node("ReduceMean", [x], axes=[2, 3], keepdims=1), c, 1, 1)
        elif op == "scale":
            out = (model.node("Mul", [x, model.weight(c, 1, 1)]), c, h, w)
        elif op == "split" and c >= 2:
            left = draw(st.integers(1, c - 1))
            a, b = model.fresh("s"), model.fresh("s")
            model.nodes_out("Split", [x, model.ints(left, c - left)], [a, b], axis=1)
            values.append((a, left, h, w))
            out = (b, c - left, h, w)
        elif op == "transpose":
            out = (model.node("Transpose", [x], perm=[0, 1, 3, 2]), c, w, h)
        elif op == "shuffle" and c % 2 == 0:
            y = model.node("Reshape", [x, model.ints(n, 2, c // 2, h, w)])
            y = model.node("Transpose", [y], perm=[0, 2, 1, 3, 4])
            out = (model.node("Reshape", [y, model.ints(n, c, h, w)]), c, h, w)
        else:
            out = (model.relu(x), c, h, w)
        values.append(out)
    made = [v[0] for v in values[len(model.inputs) :]]
    taps = draw(st.lists(st.sampled_from(made), max_size=2, unique=True))
    for name in made:
        if name not in read or name in taps:
            model.output(name)
    return model


@st.composite
def profiles(draw: st.DrawFn, *, roomy: bool = False) -> Profile:
    """A random small accelerator, with or without SRAM and WRAM; `roomy` ones hold any model of `models`."""
    low = 16 if roomy else 11
    has_sram = draw(st.booleans())
    engines: dict[str, Any] = {"iodma": {"bytes_per_cycle": draw(st.integers(1, 16))}}
    cores = draw(st.sampled_from([1, 2, 4]))
    values: dict[str, Any] = {
        "schema": "tessera.profile/1",
        "name": "random",
        "clock_hz": 1e9,
        "chips": 1,
        "clusters_per_chip": draw(st.sampled_from([1, 2, 4])) if has_sram else 1,
        "cores_per_cluster": cores,
        "line_bytes": 64,
        "dram": {
            "capacity_bytes": 2**30,
            "bandwidth_bytes_per_s": draw(st.sampled_from([1e9, 1e10, 1e11])),
            "read_pj_per_byte": draw(st.integers(0, 100)),
            "write_pj_per_byte": draw(st.integers(0, 100)),
            "startup_ns": draw(st.sampled_from([0, 100])),
            "multicast": draw(st.booleans()),
        },
        "nram": {
            "capacity_bytes": 2 ** draw(st.integers(low, 18)) + draw(st.integers(0, 7)) * 24,
            "read_pj_per_byte": 0.4,
            "write_pj_per_byte": 0.4,
        },
        "engines": engines,
        "matrix": {
            "arrays": {"float32": {"k": draw(st.sampled_from([1, 4, 8])), "c": draw(st.sampled_from([1, 4]))}},
            "pj_per_mac": {"float32": 1.2},
        },
        "vector": {"lanes": draw(st.sampled_from([1, 8])), "pj_per_operation": 0.1},
        "static_w": draw(st.sampled_from([0.0, 1.0])),
    }
    if has_sram:
        values["sram"] = {
            "capacity_bytes": 2 ** draw(st.integers(low, 19)) + draw(st.integers(0, 7)) * 40,
            "read_pj_per_byte": 1.6,
            "write_pj_per_byte": 1.6,
        }
        engines["gdma"] = {"bytes_per_cycle": 16, "startup_ns": 100}
        engines["mvdma"] = {"bytes_per_cycle": 16}
        if draw(st.booleans()):
            engines["cdma"] = {"bytes_per_cycle": 8}
        if draw(st.booleans()):
            engines["bus"] = {"bytes_per_cycle": 32}
    elif draw(st.booleans()):
        engines["link"] = {"topology": draw(st.sampled_from(["ring", "mesh"])), "bytes_per_cycle": 8}
    if draw(st.booleans()):
        values["wram"] = {
            "capacity_bytes": 2 ** draw(st.integers(low, 18)),
            "read_pj_per_byte": 0.5,
            "write_pj_per_byte": 0.5,
        }
    if draw(st.integers(0, 3)) == 0:
        mode = draw(st.sampled_from(["streamed", "stationary"]))
        values["weights"] = {"mode": mode, "compression": draw(st.sampled_from([0.25, 0.5, 1.0]))}
    return profile_from_values(values)


def options(*, switches: bool = False, fusion: tuple[str, ...] = FUSIONS) -> st.SearchStrategy[Options]:
    """Options that change the plan: objective, strategy, start rule, profit; with `switches` rules off, or limits."""
    settings = st.one_of(
        st.just(RuleSetting(enabled=False)), st.builds(RuleSetting, limit=st.sampled_from([0.0, 2.0, 1000.0]))
    )
    # FUSE-1 and FUSE-2 exclude each other and follow the start rule
    rules = st.dictionaries(st.sampled_from(RULE_IDS[2:]), settings, max_size=4) if switches else st.just({})
    return st.builds(
        Options,
        objective=st.sampled_from(OBJECTIVES),
        fusion=st.sampled_from(fusion),
        start_rule=st.sampled_from(["A", "B"]),
        profit=st.sampled_from(["any", "all", ("FUSE-5",), ("FUSE-6", "FUSE-7")]),
        merge=st.sampled_from(["forward-greedy", "none", "optimal"]),
        rules=rules,
    )
