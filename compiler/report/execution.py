"""The parts of the report about the graph and what was made and run: programs, their memory, and the value check."""

from __future__ import annotations

import msgspec

from compiler.report.execution_time import EngineTime, HeldMemory, RooflineReport, UsageReport


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """A part of a document."""


class GraphOp(Part, frozen=True, kw_only=True):
    """One op of the graph that was planned, and the ops that make what it reads.

    `node` is its ONNX node, `group` the group or, on the host, the segment that it is in. `output` is its result with
    `axes`, `shape` and `bytes` (empty and 0 where only the host will know them). `inputs` are positions in
    `Report.graph`, each once; what comes from the model's inputs or constants has none.
    """

    node: str
    kind: str
    group: str
    inputs: tuple[int, ...]
    output: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    bytes: int


class LevelTraffic(Part, frozen=True, kw_only=True):
    """Bytes read from and written to one memory level."""

    read_bytes: int
    written_bytes: int


class OutputCheck(Part, frozen=True, kw_only=True):
    """How one output compares with the model's own (SIM-1).

    `max_error` and `limit` are relative to the root mean square of the expected tensor if `is_relative`, for floats
    (integers: the difference; other exact types: 0 or 1); `max_error` is None where it is not finite. `where` is the
    index of the largest error, empty for a scalar. `verdict`: `plain`, the limit of the op's roundings, or of a
    quantised tensor one step; `widened`, the error exceeds that, but not four times `spread`, how far rounding alone
    carries the tensor in this model; `node by node`, of a quantised network, whose every op agrees if computed from the
    judge's own values; `undecided`, rounding carries it anywhere, so it cannot be judged and `holds` is None. `spread`
    is None where it was not measured or is not finite.
    """

    tensor: str
    max_error: float | None
    limit: float
    where: tuple[int, ...]
    holds: bool | None
    verdict: str = "plain"
    spread: float | None = None
    is_relative: bool = True


class ValuesReport(Part, frozen=True, kw_only=True):
    """The value check of a compilation: the executable and the original model on the same random inputs (SIM-1).

    `reason` says why nothing was compared, None where something was; `judge` is the runtime that ran the model.
    `max_error`, `limit`, `where` and `tensor` are those of the output nearest to its limit. `skipped` are outputs that
    depend on random nodes. Where an output misses its plain limit, the tensors that the program hands from group to
    group are compared with what the model makes of the program's own values before them: `between` is the worst of
    them, `undecided` those that rounding decides even so, and `nodes` the worst op of a quantised network that was
    judged node by node. `max_error`, `limit`, `where` and `tensor` are None if nothing could be judged.
    """

    checked: bool
    reason: str | None
    judge: str | None
    seed: int
    max_error: float | None
    limit: float | None
    where: tuple[int, ...] | None
    tensor: str | None
    outputs: tuple[OutputCheck, ...]
    skipped: tuple[str, ...]
    between: OutputCheck | None = None
    undecided: tuple[str, ...] = ()
    nodes: OutputCheck | None = None


class LevelPeak(Part, frozen=True, kw_only=True):
    """The most that the program of a segment uses of one memory of a level, in bytes.

    `used_bytes`: one past the highest address touched, in the fullest memory of the level (of the DRAM: what regions
    take). `planned_bytes`: the largest peak of the segment's groups, None where the plan allocates nothing there.
    What only passes a memory lies beside the planned buffers, stationary weights lie under them.
    """

    used_bytes: int
    planned_bytes: int | None
    capacity_bytes: int


class ProgramReport(Part, frozen=True, kw_only=True):
    """The program of one chip segment (PROG-1, PROG-3), as stored and as it moves bytes.

    `statements` are stored, with their `calls`; `commands` run, one for each tile of a statement, and `opcodes` counts
    them by opcode. `program_bytes`: statements, calls, bindings and waits; `table_bytes`: parameter tables;
    `unit_bytes`: shape units.
    `dram_read_bytes`, `dram_write_bytes`: what the commands themselves read from and write to the DRAM, a multicast
    read once, of a gathered table the rows that are read; address tables are apart in `table_read_bytes`.
    `plan_dram_bytes`: what the plan says of the segment; `dram_ratio` is program / plan.
    `simulated_cycles`: until the last command has ended, by an event simulation of the commands on an otherwise idle
    chip (SIM-2); `simulated_group_cycles`: by group, by how much it prolongs the program; `alone_group_cycles`: how
    long it takes by itself, which its price is to be compared with. `estimated_cycles`: what the plan says of the
    segment; `estimate_ratio` is plan / simulation, below 1 where the plan is too fast (SIM-3).
    `stalls`: cycles in which a core computes nothing, by cause, the mean of all cores; `engines`: the time of all
    engines. `moved`: bytes by memory and direction. `energy_by_level`: joules of the commands and of static power for
    the simulated time; `estimated_energy_j`: what the plan says of the segment, `energy_ratio` is plan / simulation.
    """

    segment: str
    chip: int
    statements: int
    commands: int
    opcodes: dict[str, int]
    calls: int
    units: int
    program_bytes: int
    table_bytes: int
    unit_bytes: int
    peaks: dict[str, LevelPeak]
    dram_read_bytes: int
    dram_write_bytes: int
    table_read_bytes: int
    plan_dram_bytes: int
    dram_ratio: float
    simulated_cycles: int
    simulated_group_cycles: dict[str, int]
    alone_group_cycles: dict[str, int]
    estimated_cycles: int
    estimate_ratio: float
    stalls: dict[str, int]
    engines: tuple[EngineTime, ...]
    moved: dict[str, LevelTraffic]
    energy_by_level: dict[str, float]
    estimated_energy_j: float
    energy_ratio: float
    roofline: RooflineReport
    usage: UsageReport
    held: tuple[HeldMemory, ...]


class BufferReport(Part, frozen=True, kw_only=True):
    """A buffer of a group: where it lies, and the steps `begin` to `end` (half-open) during which it is live."""

    name: str
    address: int
    size_bytes: int
    begin: int
    end: int


class MemoryMap(Part, frozen=True, kw_only=True):
    """One memory level of a unit or core as a map of address × time (PROG-2).

    `steps` are the steps of one tile, an op each; what waits for later tiles lives through all of them.
    """

    level: str
    capacity_bytes: int
    peak_bytes: int
    steps: int
    buffers: tuple[BufferReport, ...]
