"""Programs and executables that are valid in shape only: numbers name things that are there, and mean nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from compiler.ir.graph import HostNode
from compiler.profile.load import builtin_profile
from compiler.program.encoding.blob import Blob
from compiler.program.encoding.records import with_identifier
from compiler.program.executable import ChipSegment, Executable, HostConstant, HostSegment, Value, Weight
from compiler.program.loops.loops import MAX_COUNTERS, RING, RUN, SPACE, STATEMENT, TERM, Loops
from compiler.program.program import (
    BINDING,
    CALL,
    COMMAND,
    ENTRY,
    Decode,
    Level,
    OperandType,
    ParameterTable,
    Place,
    Program,
    Queue,
    Region,
    Resident,
    Role,
    Rows,
    Step,
    Unit,
)

NAMES = st.text(st.characters(codec="utf-8"), max_size=6)
SMALL = st.integers(0, 2**40)
FLOATS = st.floats(width=32, allow_nan=False)
ATTRIBUTES = st.one_of(
    st.integers(-(2**62), 2**62),
    FLOATS,
    NAMES,
    st.lists(st.integers(-9, 9), max_size=3).map(tuple),
    st.lists(FLOATS, max_size=3).map(tuple),
    st.lists(NAMES, max_size=3).map(tuple),
)
OPERANDS = st.builds(
    OperandType,
    dtype=NAMES,
    stored_dtype=NAMES,
    axes=st.lists(NAMES, max_size=4).map(tuple),
    constant=st.booleans(),
    decode=st.none()
    | st.builds(Decode, scale=st.binary(max_size=5), zero=st.binary(), shape=st.just((1,)), dtype=NAMES),
)


def regular(random: np.random.Generator, count: int, low: int, high: int) -> Any:
    """A column as loops make it: constant, a nested loop, or nothing but noise; within [low, high)."""
    kind = random.integers(0, 4)
    if kind == 0:
        return random.integers(low, high, count)
    rows = np.arange(count)
    inner, base = int(random.integers(1, 9)), int(random.integers(0, 1 << 40))
    step, jump = (int(value) for value in random.integers(-(1 << 20), 1 << 20, 2))
    values = np.full(count, base) if kind == 1 else base + rows % inner * step + rows // inner * jump
    return values if high - low >= 1 << 63 else low + values % (high - low)


def rows_of(draw: st.DrawFn, dtype: Any, count: int, limits: dict[str, tuple[int, int]]) -> Rows:
    """Rows with every field within its limits, or within its type."""
    rows = np.zeros(count, dtype=dtype)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    for name in dtype.names:
        field = rows[name]
        for part in [field] if field.ndim == 1 else field.T:
            type_limits = np.iinfo(field.dtype)
            low, high = limits.get(name, (type_limits.min, type_limits.max))
            part[...] = regular(random, count, low, max(high, low + 1))
    return rows


@st.composite
def programs(draw: st.DrawFn, *, max_commands: int = 60) -> Program:
    """A program whose streams are partly regular, partly noise."""
    places, queues = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    units = draw(st.lists(_units(), min_size=1, max_size=3))
    tables = [
        ParameterTable(
            unit=draw(st.integers(0, len(units) - 1)),
            operand_shapes=draw(st.lists(st.lists(SMALL, max_size=3).map(tuple), max_size=2).map(tuple)),
            shape=draw(st.lists(SMALL, max_size=3).map(tuple)),
            entries=rows_of(draw, ENTRY, draw(st.integers(1, 30)), {}),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    count = draw(st.integers(0, max_commands))
    calls, bindings = draw(st.integers(0, count)), draw(st.integers(0, 2 * count))
    steps = draw(st.lists(st.builds(Step, group=NAMES, nodes=st.just(("a",)), tensor=NAMES), min_size=1, max_size=3))
    command_rows = rows_of(
        draw,
        COMMAND,
        count,
        {
            "opcode": (0, 8),
            "queue": (0, queues),
            "step": (-1, len(steps)),
            "source": (-1, places),
            "target": (-1, places),
            "call": (-1, calls),
        },
    )
    call_rows = rows_of(
        draw, CALL, calls, {"table": (0, len(tables)), "first": (0, bindings + 1), "count": (0, 4), "entry": (0, 1)}
    )
    call_rows["count"] = np.minimum(call_rows["count"], bindings - call_rows["first"])
    offsets, waits = _waits(draw(st.integers(0, 2**32)), count)
    regions = tuple(draw(_regions(number)) for number in range(draw(st.integers(0, 3))))
    return Program(
        name=draw(NAMES),
        places=tuple(Place(level=Level.NRAM, number=number, capacity_bytes=draw(SMALL)) for number in range(places)),
        queues=tuple(Queue(engine="core", number=number) for number in range(queues)),
        steps=tuple(steps),
        commands=command_rows,
        wait_offsets=offsets,
        waits=waits,
        loops=Loops.one_iteration(count, len(waits)),
        calls=call_rows,
        bindings=rows_of(draw, BINDING, bindings, {"place": (-1, places)}),
        units=tuple(units),
        tables=tuple(tables),
        regions=regions,
        residents=tuple(
            Resident(
                place=draw(st.integers(0, places - 1)),
                address=draw(SMALL),
                region=number,
                starts=(0,) * len(region.shape),
                lengths=region.shape,
                strides=region.strides,
            )
            for number, region in enumerate(regions)
            if region.role is Role.WEIGHT and draw(st.booleans())
        ),
    )


@st.composite
def looped_programs(draw: st.DrawFn, *, max_commands: int = 60) -> Program:
    """A program whose commands loop, in shape only: counters, fields and distances mean nothing."""
    program = draw(programs(max_commands=max_commands))
    count, random = len(program.commands), np.random.default_rng(draw(st.integers(0, 2**32)))
    spaces = rows_of(draw, SPACE, draw(st.integers(1, 4)), {"counters": (0, MAX_COUNTERS + 1)})
    beyond = np.arange(MAX_COUNTERS) >= spaces["counters"][:, None]
    spaces["extents"][beyond], spaces["strides"][beyond] = 1, 0
    statements = rows_of(draw, STATEMENT, count, {"space": (0, len(spaces))})
    sizes = {
        "run": spaces["counters"][statements["space"]].astype(np.int64),
        "term": random.integers(0, 4, count),
        "ring": random.integers(0, 2, count),
    }
    offsets = {f"{name}_offsets": np.append(0, np.cumsum(size)).astype(np.int32) for name, size in sizes.items()}
    waits = np.append(0, np.cumsum(random.integers(0, 3, count))).astype(np.int32)
    named = [np.sort(random.integers(0, count, size)) for size in np.diff(waits).tolist()]
    loops = Loops(
        spaces=spaces,
        statements=statements,
        runs=rows_of(draw, RUN, int(sizes["run"].sum()), {}),
        terms=rows_of(draw, TERM, int(sizes["term"].sum()), {}),
        rings=rows_of(draw, RING, int(sizes["ring"].sum()), {}),
        distances=np.sort(random.integers(0, 1 << 40, int(waits[-1]))),
        **offsets,
    )
    joined = np.concatenate([np.zeros(0, dtype=np.int64), *named]).astype(np.int32)
    return replace(program, wait_offsets=waits, waits=joined, loops=loops)


@st.composite
def _units(draw: st.DrawFn) -> Unit:
    return with_identifier(
        Unit(
            identifier="",
            kind=draw(NAMES),
            attributes=tuple(draw(st.lists(st.tuples(NAMES, ATTRIBUTES), max_size=3))),
            opset=draw(st.integers(0, 30)),
            operands=tuple(draw(st.lists(st.none() | OPERANDS, max_size=3))),
            output=draw(OPERANDS),
            extents=tuple(draw(st.lists(SMALL, max_size=3))),
            gathers=draw(st.integers(-1, 2)),
            accumulator_dtype=draw(NAMES),
        )
    )


@st.composite
def _regions(draw: st.DrawFn, number: int) -> Region:
    shape = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
    return Region(
        name=f"{draw(NAMES)}{number}",
        role=draw(st.sampled_from(Role)),
        address=draw(SMALL),
        shape=shape,
        dtype="float32",
        order=tuple(draw(st.permutations(range(len(shape))))),
        strides=tuple(draw(st.integers(-99, 99)) for _ in shape),
        size_bytes=4 * int(np.prod(shape)),
    )


def _waits(seed: int, count: int) -> tuple[Rows, Rows]:
    random = np.random.default_rng(seed)
    rows: list[Any] = [
        np.unique(random.integers(0, number, random.integers(0, 4))) if number else [] for number in range(count)
    ]
    offsets = np.zeros(count + 1, dtype=np.int32)
    offsets[1:] = np.cumsum([len(row) for row in rows])
    return offsets, np.array([wait for row in rows for wait in row], dtype=np.int32)


@st.composite
def executables(draw: st.DrawFn, *, max_commands: int = 60) -> Executable:
    """An executable of a few segments of the chip and the host."""
    segments: list[ChipSegment | HostSegment] = []
    for number in range(draw(st.integers(1, 2))):
        program = draw(programs(max_commands=max_commands))
        weights = tuple(
            Weight(region=index, data=draw(_blobs(region.size_bytes)))
            for index, region in enumerate(program.regions)
            if region.role is Role.WEIGHT
        )
        chip = draw(st.integers(0, 3))
        segments.append(ChipSegment(id=f"s{number}", chip=chip, program=program, weights=weights))
        if draw(st.booleans()):
            segments.append(HostSegment(id="h", nodes=(draw(_nodes()),), inputs=("a",), outputs=("b", "c")))
    values = st.builds(
        Value, name=NAMES, tensor=NAMES, dtype=NAMES, shape=st.none() | st.lists(SMALL, max_size=3).map(tuple)
    )
    return Executable(
        compiler_version="1.2.3",
        profile=builtin_profile(draw(st.sampled_from(("edge4", "cluster4x4")))),
        model_name=draw(NAMES),
        model_digest="ab" * 32,
        options_digest="cd" * 32,
        inputs=tuple(draw(st.lists(values, max_size=2))),
        outputs=tuple(draw(st.lists(values, max_size=2))),
        segments=tuple(segments),
        constants=tuple(
            HostConstant(name=f"c{number}", dtype="uint8", shape=(size,), form="elements", data=draw(_blobs(size)))
            for number, size in enumerate(draw(st.lists(st.integers(0, 99), max_size=3)))
        ),
    )


@st.composite
def _blobs(draw: st.DrawFn, size: int) -> Blob:
    data = np.random.default_rng(draw(st.integers(0, 99))).bytes(size)
    kind = draw(st.sampled_from(("there", "streamed", "repeated")))
    if kind == "streamed":
        return Blob.streamed(size, lambda: (data[at : at + 7] for at in range(0, size, 7)))
    return Blob.repeated(data[:4], size) if kind == "repeated" and size % 4 == 0 else Blob.of(data)


@st.composite
def _nodes(draw: st.DrawFn) -> HostNode:
    return HostNode(
        name=draw(NAMES),
        op_type=draw(NAMES),
        domain=draw(NAMES),
        reason=draw(NAMES),
        node=draw(st.binary(max_size=9)),
        inputs=("a", ""),
        outputs=("b", "c"),
        opsets=(("", 17), ("ai.onnx.ml", 3)),
        functions=tuple(draw(st.lists(st.binary(max_size=9), max_size=2))),
        macs=draw(st.none() | SMALL),
    )
