"""The lines that sum up a compilation for people: the same in every command, in the report page and in notebooks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from compiler.amounts import bytes_text, count_text, number_text, rate_text, share_text, si_text
from compiler.errors import printable
from compiler.report.dim_ranges import DimRangeDoc
from compiler.report.execution import OutputCheck, ValuesReport
from compiler.report.explain_gap import gap_lines
from compiler.report.plan import DegradedDoc, NativeShare, Plan, Report, Totals

# The room that a label takes before its text.
LABEL_WIDTH: Final = 13
# So many causes are named, the largest, and of nodes the first.
_CAUSES: Final = 4
_NODES: Final = 3
# What a group's time goes to (PlanGroup.bound_by), and what a core waits for (EngineTime.cycles).
BOUNDS: Final[Mapping[str, str]] = MappingProxyType(
    {"dram": "DRAM transfers", "compute": "computation", "on-chip": "transfers on the chip"}
)
_WAITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ports": "ports of its memories",
        "sharing": "transfers that share a port",
        "start-up": "transfers to start",
        "dram": "other data from or to DRAM",
        "weights": "weights to arrive",
        "neighbour": "data from neighbouring cores",
        "sram": "transfers with the SRAM",
        "compute": "results of other cores",
        "memory": "memory to become free",
        "barrier": "barriers",
        "done": "other cores to finish",
    }
)


class Line(NamedTuple):
    """One line: what it is about, and what there is to say."""

    label: str
    text: str


def title(plan: Plan) -> str:
    """The model, the chip, and into how many parts the model was cut."""
    groups = sum(len(segment.groups) for segment in plan.segments)
    hosts = sum(segment.kind == "host" for segment in plan.segments)
    parts = f"{count_text(groups, 'group')} in {count_text(len(plan.segments) - hosts, 'segment')}"
    apart = f", {count_text(hosts, 'segment')} on the host" if hosts else ""
    dims = ", ".join(f"{printable(name, 40)} = {extent}" for name, extent in plan.dims.items())
    at = f", planned at {dims}" if dims else ""
    defaults = [(printable(name, 40), one) for name, one in plan.ranges.items() if one.is_default]
    if defaults:
        at += f" (default ranges: {', '.join(f'{name} {range_text(one)}' for name, one in defaults)})"
    return f"{printable(plan.model.name, 60)} on {printable(plan.profile.name, 60)}: {parts}{apart}{at}"


def range_text(one: DimRangeDoc) -> str:
    """A range in words."""
    if one.min == one.max:
        return str(one.min)
    return f"{one.min} to {one.max}" + (f" in steps of {one.step}" if one.step > 1 else "")


def headline(plan: Plan, report: Report | None = None) -> tuple[Line, ...]:
    """The figures that decide, a line each. What is estimated says so; without a report nothing was simulated."""
    works = bool(plan.native.host_macs or plan.native.host_nodes_of_unknown_work)
    host, apart = Line("Host", host_text(plan.native)), "without the host " if works else ""
    return (
        *((host,) if works else ()),
        Line("Latency", apart + _latency(plan)),
        Line("Throughput", apart + _throughput(plan, report)),
        Line("Energy", apart + _energy(plan)),
        Line("DRAM", _dram(plan)),
        Line("Limited by", _simulated_limits(report) or _limits(plan)),
        *(() if works else (host,)),
        Line("Arithmetic", _arithmetic(plan)),
        Line("Verified", verified_text(plan, report)),
        *(Line("Degraded", degraded_text(entry)) for entry in plan.degraded),
        *(Line("Excess DRAM", text) for text in _gap(plan)),
    )


def _latency(plan: Plan) -> str:
    totals, baseline = plan.totals, plan.baseline
    figures = _figures(totals, (totals.latency_s, totals.simulated_latency_s, baseline.latency_s), "s")
    return f"{figures}; physical bound {si_text(totals.latency_bound_s, 's')}"


def _figures(totals: Totals, values: tuple[float, float | None, float], unit: str) -> str:
    """A simulated figure first, then the estimate beside that of layer by layer, which is an estimate too."""
    estimated, simulated, layers = values
    against = f"{si_text(layers, unit)} layer by layer"
    if simulated is None:
        return f"{_per_batch(totals, estimated, unit)} estimated, against {against}"
    estimate = f"estimated {si_text(estimated, unit)}, against {against}"
    return f"{_per_batch(totals, simulated, unit)} simulated; {estimate}"


def _per_batch(totals: Totals, value: float, unit: str) -> str:
    if totals.images == 1:
        return si_text(value, unit)
    return f"{si_text(value, unit)} per batch of {totals.images} ({si_text(value / totals.images, unit)} per image)"


def _throughput(plan: Plan, report: Report | None) -> str:
    if report is not None and report.stream is not None:
        stream = report.stream
        what = "batch" if plan.totals.images > 1 else "image"
        used = sum(bool(chip.segments) for chip in plan.partition.chips)
        alone = used == 1 and re.fullmatch(r"chip \d+", stream.bound_by)
        bound = "" if alone else f", limited by {printable(stream.bound_by, 60)}"
        every = f"one {what} every {si_text(stream.interval_s, 's')} in a steady stream{bound}"
        return f"{rate_text(stream.images_per_s)} images/s simulated; {every}"
    totals = plan.totals
    simulated = totals.simulated_latency_s
    latency, kind = (totals.latency_s, "estimated") if simulated is None else (simulated, "simulated")
    return f"{rate_text(totals.images / latency)} images/s one after another, {kind}" if latency else "not known"


def _energy(plan: Plan) -> str:
    totals = plan.totals
    return _figures(totals, (totals.energy_j, totals.simulated_energy_j, plan.baseline.energy_j), "J")


def _dram(plan: Plan) -> str:
    totals = plan.totals
    floor = totals.dram_bytes_floor
    least = f"{totals.dram_bytes / floor:.2f} × the minimum ({bytes_text(floor)})" if floor else "the minimum is 0 B"
    layers = f"layer by layer {bytes_text(plan.baseline.dram_bytes)}"
    each = f"; {bytes_text(totals.dram_bytes / totals.images)} per image" if totals.images > 1 else ""
    return f"{bytes_text(totals.dram_bytes)} of traffic, {least}; {layers}{each}"


def _limits(plan: Plan) -> str:
    """What the groups' time goes to by estimate, the largest share first."""
    cycles: Counter[str] = Counter()
    groups: Counter[str] = Counter()
    for segment in plan.segments:
        for group in segment.groups:
            cycles[group.bound_by] += group.cycles
            groups[group.bound_by] += 1
    whole = sum(cycles.values())
    parts = (
        f"{BOUNDS[name]} {share_text(part, whole)} of the estimated time ({count_text(groups[name], 'group')})"
        for name, part in cycles.most_common()
    )
    return ", ".join(parts) or "nothing runs on the accelerator"


def _simulated_limits(report: Report | None) -> str:
    """What the cores do with their time on average, by simulation; empty if nothing was simulated."""
    spent: Counter[str] = Counter()
    for program in report.programs if report is not None else ():
        spent.update(next((one.cycles for one in program.engines if one.engine == "core"), {}))
    whole = sum(spent.values())
    if not whole:
        return ""
    shares = [
        f"{'computation' if cause == 'work' else f'waiting for {_WAITS.get(cause, cause)}'} {share_text(cycles, whole)}"
        for cause, cycles in spent.most_common(_CAUSES)
        if 100 * cycles >= whole
    ]
    return ", ".join([f"{shares[0]} of the cores' time, simulated", *shares[1:]])


def host_text(native: NativeShare) -> str:
    """What runs on the host, as a share, and that no time beside it has it."""
    if not native.host_nodes:
        return "runs nothing; every node runs on the accelerator"
    nodes = f"{number_text(native.host_nodes)} of {count_text(native.host_nodes + native.chip_nodes, 'node')}"
    macs = native.host_macs + native.chip_macs
    unknown = native.host_nodes_of_unknown_work
    parts = [f"{share_text(native.host_macs, macs)} of the multiply-accumulates"] if native.host_macs else []
    parts += [f"{count_text(unknown, 'node')} of unknown work"] if unknown else []
    return f"runs {nodes}: {' and '.join(parts) or 'no multiply-accumulates'}; times and energy leave the host out"


def _arithmetic(plan: Plan) -> str:
    """The element types that the chips' products are computed in; of a quantised model also what is not in integers."""
    macs = plan.arithmetic.macs
    computed = sorted(macs, key=lambda dtype: (-macs[dtype], dtype))
    whole = sum(macs.values())
    words = " and ".join(
        dtype if len(computed) == 1 else f"{dtype} ({share_text(macs[dtype], whole)})" for dtype in computed
    )
    precision = plan.options.get("precision", "model")
    if computed and precision != "model":
        return f"{words}; a what-if: float tensors are counted as {precision} (option precision)"
    return "; ".join([words or "no multiply-accumulates", *_outside_integers(plan)])


def _outside_integers(plan: Plan) -> Iterator[str]:
    """What of a quantised model is not computed in integers, and why: products in floats, on the host, other ops."""
    if not plan.arithmetic.is_quantised:
        return
    for entry in plan.arithmetic.float_products[:_CAUSES]:
        yield f"{entry.dtype} in {_some(entry.nodes)}, because {printable(entry.reason, 200)}"
    on_host: dict[str, list[str]] = {}
    for node in (node for segment in plan.segments for node in segment.host if node.macs):
        on_host.setdefault(node.reason, []).append(node.node)
    for reason, nodes in [*on_host.items()][:_CAUSES]:
        yield f"the host multiplies in {_some(nodes)}, because {printable(reason, 200)}"
    ops = Counter(plan.arithmetic.float_ops).most_common()
    if ops:
        named = [f"{kind} ({count})" for kind, count in ops[:_CAUSES]]
        named += [f"{sum(count for _, count in ops[_CAUSES:])} others"] if len(ops) > _CAUSES else []
        yield f"other ops in floats: {', '.join(named)}"


def _some(nodes: Sequence[str]) -> str:
    """The first nodes by name, and how many more there are."""
    more = f" and {count_text(len(nodes) - _NODES, 'more node')}" if len(nodes) > _NODES else ""
    return f"{', '.join(printable(name, 60) for name in nodes[:_NODES])}{more}"


def verified_text(plan: Plan, report: Report | None) -> str:
    """Whether outputs were compared with the model's own, how near they are to the limit, or why not."""
    if plan.provisional:
        return "not yet; programs are not made"
    if report is None:
        return "not known; the report that says so is not here"
    values = report.values
    if not values.checked:
        return f"no: {printable(values.reason or 'no reason given', 200)}"
    compared = [output for output in values.outputs if output.holds is not None]
    if not compared:
        return f"no output could be judged; {_undecided(values)}"
    outputs = count_text(len(compared), "output")
    worst = _worst(values)
    at = f" ({printable(values.tensor or '', 60)}{_index(values.where or ())})" if values.max_error else ""
    agree = f"{outputs} compared with {printable(values.judge or '', 60)} on random inputs"
    undecided = _undecided(values)
    return f"{agree}: {worst}{at}{f'; {undecided}' if undecided else ''}"


def _worst(values: ValuesReport) -> str:
    """The error nearest to its limit: relative for floats, in steps for integers."""
    error, allowed = values.max_error or 0.0, number_text(values.limit or 0.0)
    if all(output.is_relative for output in values.outputs if output.tensor == values.tensor):
        return f"largest relative error {number_text(error)}, allowed {allowed}"
    return f"{count_text(int(error), 'step')} off at most, allowed {allowed}" if error else "equal"


def _undecided(values: ValuesReport) -> str:
    """Outputs that cannot be judged by their plain limit."""
    unclear = [output for output in values.outputs if output.verdict != "plain"]
    return "; ".join(f"{printable(output.tensor, 60)} is {_unclear(output)}" for output in unclear[:_NODES])


def _unclear(output: OutputCheck) -> str:
    if output.verdict == "widened":
        return "judged by a wider limit, because the model itself amplifies rounding"
    if output.verdict == "node by node":
        return "judged node by node, because a result next to a tie may be rounded to either side"
    return "not judged, because the model itself amplifies rounding without bound"


def _index(where: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, where))}]" if where else ""


def degraded_text(entry: DegradedDoc) -> str:
    """Nodes that the compiler failed on, and what was done instead (IMPORT-7)."""
    who = f"{_some(entry.nodes)} planned " if entry.nodes else "planned "
    return f"{who}{entry.instead}, because step {entry.stage} failed: {printable(entry.failed, 200)}"


def _gap(plan: Plan) -> Iterator[str]:
    totals = plan.totals
    yield from gap_lines(plan.gap, totals.dram_bytes, totals.dram_bytes_floor)
