"""Random networks of real ops and random accelerators from a seed, for judging the search by its own prices.

Drawn by `random.Random` and not by Hypothesis: thousands of cases by number, each of which one line makes again.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from compiler.errors import ProfileError, TesseraError
from compiler.frontend.precision import SetPrecision
from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.ops.op_facts import GraphFacts, graph_facts
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from tests.compiler.fusion.networks import Edges
from tests.models import Model, whole_segment
from tests.profiles import profile_values

PRECISIONS = ("model", "model", "int8", "float16")
_MOST_ELEMENTS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value under construction: N, C, H, W."""

    name: str
    shape: tuple[int, int, int, int]

    @property
    def elements(self) -> int:
        """How many elements it has."""
        n, c, h, w = self.shape
        return n * c * h * w


class Drawing:
    """A network under construction: each method draws an op and returns what it makes, or None where it cannot."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.model = Model(seed=random.randrange(1000))
        self.values: list[Value] = []
        self.read: set[str] = set()
        self.weights: list[tuple[str, int, int, int]] = []  # name, Cin, Cout, kernel

    def input(self, shape: tuple[int, int, int, int]) -> Value:
        """A graph input."""
        made = Value(name=self.model.input(shape), shape=shape)
        self.values.append(made)
        return made

    def node(self, kind: str, inputs: list[Value | str], shape: tuple[int, int, int, int], **attributes: Any) -> Value:
        """A node whose result has a known shape."""
        names = [value if isinstance(value, str) else value.name for value in inputs]
        self.read.update(value.name for value in inputs if isinstance(value, Value))
        return Value(name=self.model.node(kind, names, **attributes), shape=shape)

    def finished(self) -> Model:
        """The model; what nobody reads, and sometimes another value, is an output."""
        made = [value for value in self.values if value.name not in {info.name for info in self.model.inputs}]
        tap = self.random.choice(made).name if self.random.random() < 0.2 else None
        for value in made:
            if value.name not in self.read or value.name == tap:
                self.model.output(value.name)
        return self.model

    def conv(self, x: Value) -> Value:
        """Any convolution: odd kernels, strides beyond them, groups, dilation, a shared or a computed weight."""
        random, (n, c, h, w) = self.random, x.shape
        kernels = [random.choice((1, 1, 3, 3, 2, 5)) for _ in range(2)]
        kernels = [min(k, e) for k, e in zip(kernels, (h, w), strict=True)]
        strides = [random.choice((1, 1, 1, 2, 3)) for _ in range(2)]
        dilations = [
            random.choice((1, 1, 1, 2)) if 2 * (k - 1) < e else 1 for k, e in zip(kernels, (h, w), strict=True)
        ]
        reach = [(k - 1) * d + 1 for k, d in zip(kernels, dilations, strict=True)]
        pads = [random.randint(0, k // 2) if random.random() < 0.7 else 0 for k in kernels]
        group = random.choice([g for g in (1, 1, 1, 2, 3, c) if c % g == 0])
        filters = group * random.choice((1, 1, 2, 3)) if group > 1 else random.choice((1, 2, 4, 5, 8, 16, 24, 40))
        shared = [name for name, *rest in self.weights if rest == [c // group, filters, kernels[0] * 100 + kernels[1]]]
        weight = random.choice(shared) if shared and random.random() < 0.5 else ""
        if not weight:
            weight = self.model.weight(filters, c // group, *kernels)
            self.weights.append((weight, c // group, filters, kernels[0] * 100 + kernels[1]))
            if random.random() < 0.05:
                weight = self.model.node("Tanh", [self.model.input([filters, c // group, *kernels])])
        out = [(e + 2 * p - r) // s + 1 for e, p, r, s in zip((h, w), pads, reach, strides, strict=True)]
        inputs: list[Value | str] = [x, weight]
        if random.random() < 0.3:
            inputs.append(self.model.weight(filters))
        return self.node(
            "Conv",
            inputs,
            (n, filters, out[0], out[1]),
            kernel_shape=kernels,
            strides=strides,
            dilations=dilations,
            pads=pads * 2,
            group=group,
        )

    def transposed(self, x: Value) -> Value:
        """A transposed convolution."""
        random, (n, c, h, w) = self.random, x.shape
        kernel, stride, filters = random.randint(1, 3), random.randint(1, 2), random.choice((1, 3, 8))
        group = c if random.random() < 0.2 else 1
        weight = self.model.weight(c, filters, kernel, kernel)
        shape = (n, filters * group, (h - 1) * stride + kernel, (w - 1) * stride + kernel)
        return self.node("ConvTranspose", [x, weight], shape, strides=[stride] * 2, group=group)

    def pool(self, x: Value) -> Value | None:
        """A pooling, with padding or without."""
        random, (n, c, h, w) = self.random, x.shape
        if min(h, w) < 2:
            return None
        kernel, stride = random.randint(2, min(3, h, w)), random.randint(1, 3)
        pad = random.randint(0, kernel // 2)
        shape = (n, c, (h + 2 * pad - kernel) // stride + 1, (w + 2 * pad - kernel) // stride + 1)
        kind = random.choice(("MaxPool", "AveragePool"))
        return self.node(kind, [x], shape, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def single(self, x: Value) -> Value:
        """An element-wise op, a normalisation, or a reduction."""
        random, (n, c, h, w) = self.random, x.shape
        kind = random.choice(("Relu", "Relu", "Sigmoid", "Mul", "Softmax", "ReduceMean", "GlobalAveragePool", "LRN"))
        if kind == "Mul":
            return self.node("Mul", [x, self.model.weight(c, 1, 1)], x.shape)
        if kind == "Softmax":
            return self.node("Softmax", [x], x.shape, axis=random.randint(1, 3))
        if kind == "ReduceMean":
            axis = random.randint(1, 3)
            kept = (n, *(1 if number == axis else extent for number, extent in enumerate((c, h, w), start=1)))
            return self.node("ReduceMean", [x], (n, kept[1], kept[2], kept[3]), axes=[axis], keepdims=1)
        if kind == "GlobalAveragePool":
            return self.node(kind, [x], (n, c, 1, 1))
        return self.node(kind, [x], x.shape, **({"size": 3} if kind == "LRN" else {}))

    def joined(self, x: Value) -> Value | None:
        """A sum, product or concatenation with another value, or a sum with one that is broadcast."""
        random, (n, c, h, w) = self.random, x.shape
        same = [v for v in self.values if v.shape == x.shape]
        beside = [v for v in self.values if v.shape[0] == n and v.shape[2:] == x.shape[2:]]
        small = [v for v in self.values if v.shape == (n, c, 1, 1)]
        kind = random.choice(("Add", "Mul", "Concat", "Concat", "broadcast"))
        if kind == "Concat":
            other = random.choice(beside)
            return self.node("Concat", [x, other], (n, c + other.shape[1], h, w), axis=1)
        if kind == "broadcast":
            return self.node("Mul", [x, random.choice(small)], x.shape) if small else None
        return self.node(kind, [x, random.choice(same)], x.shape)

    def moved(self, x: Value) -> Value | None:
        """Parts, borders, other orders and other sizes of a map."""
        random, (n, c, h, w) = self.random, x.shape
        kind = random.choice(("Slice", "Pad", "Split", "Transpose", "shuffle", "Gather", "Resize", "flat"))
        model = self.model
        if kind == "Slice":
            axis = random.randint(1, 3)
            extent = x.shape[axis]
            begin = random.randrange(extent)
            end, step = random.randint(begin + 1, extent), random.choice((1, 1, 2))
            kept = list(x.shape)
            kept[axis] = -(-(end - begin) // step)
            parts = [model.ints(v) for v in (begin, end, axis, step)]
            return self.node("Slice", [x, *parts], (n, kept[1], kept[2], kept[3]))
        if kind == "Pad":
            a, b = random.randint(0, 2), random.randint(0, 2)
            return self.node("Pad", [x, model.ints(0, 0, a, b, 0, 0, b, a)], (n, c, h + a + b, w + a + b))
        if kind == "Split" and c > 1:
            left = random.randint(1, c - 1)
            names = model.nodes_out(
                "Split", [x.name, model.ints(left, c - left)], [model.fresh("s"), model.fresh("s")], axis=1
            )
            self.read.add(x.name)
            self.values.append(Value(name=names[0], shape=(n, left, h, w)))
            return Value(name=names[1], shape=(n, c - left, h, w))
        if kind == "Transpose":
            return self.node("Transpose", [x], (n, c, w, h), perm=[0, 1, 3, 2])
        if kind == "shuffle" and c % 2 == 0:
            y = self.node("Reshape", [x, model.ints(n, 2, c // 2, h, w)], x.shape)
            y = self.node("Transpose", [y], x.shape, perm=[0, 2, 1, 3, 4])
            return self.node("Reshape", [y, model.ints(n, c, h, w)], x.shape)
        if kind == "Gather":
            picked = [random.randrange(c) for _ in range(random.randint(1, c))]
            return self.node("Gather", [x, model.ints(*picked)], (n, len(picked), h, w), axis=1)
        if kind == "Resize" and x.elements * 4 < _MOST_ELEMENTS:
            mode = random.choice(("nearest", "linear"))
            more = {"nearest_mode": "floor"} if mode == "nearest" else {}
            sizes = model.ints(n, c, 2 * h, 2 * w)
            shape = (n, c, 2 * h, 2 * w)
            return self.node(
                "Resize", [x, "", "", sizes], shape, mode=mode, coordinate_transformation_mode="asymmetric", **more
            )
        if kind == "flat":
            return self.node("Reshape", [x, model.ints(n, c * h, 1, w)], (n, c * h, 1, w))
        return None

    def product(self, x: Value) -> Value:
        """A matrix product with weights, with a computed factor, or a classifier; rows and columns as a map."""
        random, (n, c, h, w) = self.random, x.shape
        kind = random.choice(("weights", "computed", "gemm"))
        columns = random.choice((1, 4, 7, 16, 33))
        if kind == "weights":
            return self.node("MatMul", [x, self.model.weight(w, columns)], (n, c, h, columns))
        if kind == "computed":
            turned = self.node("Transpose", [x], (n, c, w, h), perm=[0, 1, 3, 2])
            first = self.node("Relu", [x], x.shape) if random.random() < 0.5 else x
            return self.node("MatMul", [first, turned], (n, c, h, h))
        flat = self.node("Flatten", [x], x.shape)
        inputs: list[Value | str] = [flat, self.model.weight(columns, c * h * w)]
        if random.random() < 0.5:
            inputs.append(self.model.weight(columns))
        y = self.node("Gemm", inputs, x.shape, transB=1)
        return self.node("Reshape", [y, self.model.ints(n, columns, 1, 1)], (n, columns, 1, 1))

    def drawn(self, x: Value) -> Value:
        """Any op that reads a value."""
        kinds = (*[self.conv] * 8, self.transposed, self.pool, *[self.single] * 4, *[self.joined] * 3)
        made = self.random.choice((*kinds, *[self.moved] * 3, self.product))(x)
        if made is None or made.elements > _MOST_ELEMENTS:
            return self.node("Relu", [x], x.shape)
        return made


def any_model(random: Random, most: int) -> Model:
    """A network of any ops, with branches, several inputs and outputs, odd extents and batches."""
    drawing = Drawing(random)
    n = random.choice((1, 1, 1, 2, 3))
    extents = random.choice(((4, 9), (4, 9), (5, 24), (16, 56)))
    for _ in range(random.choice((1, 1, 2))):
        h, w = random.randint(*extents), random.randint(*extents)
        drawing.input((n, random.choice((1, 2, 3, 4, 6, 8, 16)), h, w))
    for _ in range(random.randint(1, most)):
        x = drawing.values[-1] if random.random() < 0.75 else random.choice(drawing.values)
        drawing.values.append(drawing.drawn(x))
    return drawing.finished()


def model_of(random: Random, network: Edges) -> Model:
    """A network of the given shape: convolutions, activations and poolings, and sums where several values meet."""
    drawing = Drawing(random)
    n, c = random.choice((1, 1, 2)), random.choice((2, 4, 8, 16))
    h, w = random.randint(5, 20), random.randint(5, 20)
    made: dict[int, Value] = {}
    for op in network.ops:
        sources = [made[other] for other in network.ops if op in network.successors[other]]
        if not sources:
            sources = [drawing.input((n, c, h, w))]
        if len(sources) > 1:
            joint = random.choice(("Sum", "Concat"))
            same = len({v.shape for v in sources}) == 1
            if joint == "Sum" and same and len(sources) == 2:
                y = drawing.node("Add", list(sources), sources[0].shape)
            else:
                y = drawing.node("Concat", list(sources), (n, sum(v.shape[1] for v in sources), h, w), axis=1)
        else:
            (x,) = sources
            kind = random.choice(("conv", "conv", "depthwise", "relu", "softmax", "mul"))
            if kind in ("conv", "depthwise"):
                kernel = random.choice((1, 3, 3))
                group = x.shape[1] if kind == "depthwise" else 1
                filters = x.shape[1] if kind == "depthwise" else random.choice((c, c, 2 * c, 3))
                weight = drawing.model.weight(filters, x.shape[1] // group, kernel, kernel)
                y = drawing.node("Conv", [x, weight], (n, filters, h, w), pads=[kernel // 2] * 4, group=group)
            elif kind == "mul":
                y = drawing.node("Mul", [x, drawing.model.weight(x.shape[1], 1, 1)], x.shape)
            else:
                y = drawing.node("Relu" if kind == "relu" else "Softmax", [x], x.shape)
        made[op] = y
        if network.leaves[op]:
            drawing.model.output(y.name)
    return drawing.model


def any_profile(random: Random) -> Profile:
    """A small accelerator with or without each part and figure that a profile may have."""
    while True:
        try:
            return profile_from_values(_profile(random))
        except ProfileError:
            continue


def tight(random: Random, profile: Profile, facts: GraphFacts) -> Profile:
    """The profile with activation memories of about the size of the tensors, so that not all of them stay on chip."""
    sizes = [facts.tensor_bytes(op.output) for op in facts.ops]
    room = max(64, int(random.choice((0.05, 0.1, 0.2, 0.4, 1.0)) * max(sizes)))
    nram = msgspec.structs.replace(profile.nram, capacity_bytes=max(64, room // random.choice((1, profile.cores))))
    sram = profile.sram and msgspec.structs.replace(profile.sram, capacity_bytes=room)
    return msgspec.structs.replace(profile, nram=nram, sram=sram)


def _memory(random: Random, least: int, most: int) -> dict[str, Any]:
    values: dict[str, Any] = {
        "capacity_bytes": 2 ** random.randint(least, most) + random.choice((0, 0, 24, 1000)),
        "read_pj_per_byte": random.choice((0.0, 0.4, 2.0)),
        "write_pj_per_byte": random.choice((0.0, 0.4, 2.5)),
    }
    if random.random() < 0.3:
        values["bytes_per_cycle"] = random.choice((4, 16, 64))
        values["ports"] = random.choice(("shared", "separate"))
    if random.random() < 0.3:
        values["access_bytes"] = random.choice((4, 8, 64))
    return values


def _engine(random: Random) -> dict[str, Any]:
    return {"bytes_per_cycle": random.choice((1, 4, 8, 24, 64)), "startup_ns": random.choice((0, 0, 100, 1000))}


def _profile(random: Random) -> dict[str, Any]:
    values = profile_values("edge4")
    has_sram = random.random() < 0.5
    low = random.choice((10, 12, 14))
    values |= {
        "name": "random",
        "clock_hz": random.choice((1e9, 0.8e9)),
        "clusters_per_chip": random.choice((1, 2, 3, 4)) if has_sram else 1,
        "cores_per_cluster": random.choice((1, 2, 3, 4, 16)),
        "static_w": random.choice((0.0, 0.5)),
        "addressing": random.choice(("strides", "strides", "tables")),
        "limits": {},
    }
    values["dram"] |= {
        "bandwidth_bytes_per_s": random.choice((1e9, 1e10, 1e11)),
        "read_pj_per_byte": random.choice((0, 40, 100)),
        "write_pj_per_byte": random.choice((0, 40, 90)),
        "startup_ns": random.choice((0, 0, 150)),
        "multicast": random.random() < 0.5,
    }
    values["nram"] = _memory(random, low, low + 6)
    engines: dict[str, Any] = {}
    if not has_sram or random.random() < 0.5:
        engines["iodma"] = _engine(random)
    if has_sram:
        values["sram"] = _memory(random, low, low + 8)
        if random.random() < 0.3:
            values["sram"]["weight_bytes"] = 2 ** random.randint(low - 2, low + 6)
        engines |= {"gdma": _engine(random), "mvdma": _engine(random)}
        for name in ("cdma", "bus"):
            if random.random() < 0.5:
                engines[name] = _engine(random)
        if random.random() < 0.2:
            engines["shared"] = [["gdma", "mvdma"]]
    elif random.random() < 0.6:
        engines["link"] = {
            "topology": random.choice(("ring", "mesh")),
            "bytes_per_cycle": random.choice((2, 8, 24)),
            "hop_cycles": random.choice((0, 1)),
            "pj_per_byte_hop": random.choice((0, 1.0, 5.6)),
        }
        if random.random() < 0.2:
            values["dram"]["ports"] = "mesh-sides"
    values["engines"] = engines
    home = random.choice(("shared", "wram", "part"))
    if home == "wram":
        values["wram"] = _memory(random, low - 2, low + 6)
    elif home == "part":
        values["nram"]["weight_bytes"] = 2 ** random.randint(low - 2, low + 6)
    names = ("float32", "float16", "int8", "int32", "int64")
    array = {"k": random.choice((1, 4, 8, 32)), "c": random.choice((1, 2, 8, 32))}
    if random.random() < 0.3:
        array |= {"ox": random.choice((1, 2, 4)), "oy": random.choice((1, 4))}
    buffers = {
        name: {"capacity_bytes": random.choice((64, 1024, 8192)), "read_pj_per_byte": 0.3, "write_pj_per_byte": 0.25}
        for name in ("input", "weight", "output")
        if random.random() < 0.3
    }
    values["matrix"] = {
        "arrays": dict.fromkeys(names, array),
        "pj_per_mac": dict.fromkeys(names, random.choice((0.0, 0.06, 1.2))),
        "buffers": buffers,
    }
    values["vector"] = {"lanes": random.choice((1, 8, 64)), "pj_per_operation": random.choice((0.0, 0.1))}
    if random.random() < 0.35:
        mode = random.choice(("streamed", "streamed", "stationary"))
        values["weights"] = {"mode": mode, "compression": random.choice((0.25, 0.5, 1.0))}
    return values


def facts_of(model: Model, precision: str = "model") -> GraphFacts:
    """The facts of a model, at a precision."""
    graph = SetPrecision(precision=None if precision == "model" else precision).run(model.graph())
    return graph_facts(graph)


def segment_of(model: Model, precision: str = "model") -> SegmentGraph | None:
    """All of a model as one segment; None if some of it is refused, left to the host, or folded away."""
    try:
        facts = facts_of(model, precision)
    except TesseraError:
        return None
    if not facts.ops or facts.graph.on_host:
        return None
    return whole_segment(facts)


def edges_of(graph: SegmentGraph) -> Edges:
    """A segment as bare edges, for enumerations that know nothing of the compiler's bit sets."""
    return Edges(
        successors={op: tuple(graph.successors[op]) for op in graph.ops},
        leaves={op: bool(graph.leaves[op]) for op in graph.ops},
    )


def names_of(graph: SegmentGraph, group: int) -> str:
    """The kinds of a group's ops, to tell a failing case by."""
    return " ".join(graph.facts.ops[op].kind for op in bits(group))
