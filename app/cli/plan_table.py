"""A plan as tables for a terminal; takes the plan document as plain values, from here or from a service."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from compiler.errors import printable
from compiler.explain_gap import gap_lines
from compiler.explain_search import search_line
from compiler.plan import GapDoc, SearchDoc

_COLUMNS: Final[Mapping[str, Literal["left", "right"]]] = MappingProxyType(
    {
        "group": "left",
        "ONNX nodes": "left",
        "tile /tiles": "left",
        "halo": "left",
        "placement": "left",
        "DRAM": "right",
        "cycles": "right",
        "latency": "right",
        "energy": "right",
        "bound": "left",
        "stalls": "left",
    }
)
_BRIEF: Final = ("group", "ONNX nodes", "tile /tiles", "DRAM", "latency", "energy", "bound")
_DETAILED: Final = tuple(name for name in _COLUMNS if name != "latency")
# What a narrow terminal goes without, the first first, and the least it leaves to the nodes.
_GIVE_WAY: Final = ("placement", "halo", "stalls", "energy")
_NODES_WIDTH: Final = 12
# So many causes and levels are named, the largest.
_CAUSES: Final = 4
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def print_plan(plan: Mapping[str, Any], console: Console, *, detailed: bool = False) -> None:
    """Print the groups and the totals, no wider than the terminal; in detail with halos, placement and stalls."""
    model, profile = plan["model"], plan["profile"]
    rows = list(_group_rows(plan))
    widths = {name: max([len(name), *(len(row.get(name, "")) for row in rows)]) for name in _COLUMNS}
    widths["ONNX nodes"] = min(widths["ONNX nodes"], _NODES_WIDTH)
    shown = list(_DETAILED if detailed else _BRIEF)
    left_out = []
    for name in _GIVE_WAY if detailed else ():
        if sum(widths[column] + 2 for column in shown) > console.width:
            shown.remove(name)
            left_out.append(name)
    table = Table(
        title=Text(f"{printable(model['name'], 60)} on {printable(profile['name'], 60)}"),
        title_justify="left",
        header_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 1),
        row_styles=("", "dim"),
    )
    # Figures keep their width; the node names give way on a narrow terminal.
    for name in shown:
        if name == "ONNX nodes":
            table.add_column(name, ratio=1, no_wrap=True, overflow="ellipsis")
        else:
            table.add_column(name, justify=_COLUMNS[name], no_wrap=True, min_width=widths[name])
    for row in rows:
        table.add_row(*(row.get(name, "") for name in shown))
    console.print(table)
    if left_out:
        console.print(Text(f"a wider terminal also shows: {', '.join(left_out)}", style="dim"))
    console.print()
    console.print(_totals(plan))
    for line in _gap(plan):
        console.print(Text(line))
    for entry in plan.get("degraded", ()):  # not in the plan of an older service
        console.print(Text(_degraded(entry), style="yellow"))
    for segment in plan["segments"]:
        if segment.get("search") is not None:
            found = msgspec.convert(segment["search"], SearchDoc)
            console.print(Text(search_line(segment["id"], found, plan["options"]["objective"])))
    if detailed:
        console.print(Text(_sums(plan)))


class PlanFirst:
    """Prints a plan as soon as it is known, and once it is final what is different."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: Mapping[str, Any] | None = None

    def show(self, plan: bytes) -> None:
        """Print the plan whose programs are being made."""
        self._shown = json.loads(plan)
        print_plan(self._shown, self._console)
        self._console.print(Text("Times are estimates; programs are made, proved and simulated now.", style="dim"))

    def finish(self, plan: Mapping[str, Any]) -> None:
        """Print the final plan, unless it is the one that was shown."""
        if self._shown is not None and _cuts(self._shown) == _cuts(plan):
            return
        if self._shown is not None:
            groups = [sum(len(segment["groups"]) for segment in one["segments"]) for one in (self._shown, plan)]
            text = f"The plan changed while its programs were made, {groups[0]} groups to {groups[1]}. It is now:"
            self._console.print(Text(text))
        print_plan(plan, self._console)


def _cuts(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a plan does, without what its programs say of it."""
    return [{**segment, "program_bytes": None} for segment in plan["segments"]]


def _degraded(entry: Mapping[str, Any]) -> str:
    """One line on nodes that the compiler failed on (IMPORT-7)."""
    nodes = [printable(name, 60) for name in entry["nodes"]]
    more = f" and {len(nodes) - 3} more nodes" if len(nodes) > 3 else ""
    what = f"{', '.join(nodes[:3])}{more} planned {entry['instead']}" if nodes else f"planned {entry['instead']}"
    return f"Degraded: {what}, because step {entry['stage']} failed ({printable(entry['failed'], 200)})"


def print_simulated(report: Mapping[str, Any], console: Console) -> None:
    """Print what the commands take by simulation, where cores wait, and how far the plan's estimate is off (SIM-3)."""
    programs = report["programs"]
    simulated = sum(program["simulated_cycles"] for program in programs)
    if not simulated:
        return
    ratio = sum(program["estimated_cycles"] for program in programs) / simulated
    console.print(
        Text(
            f"Simulated, command by command: {simulated:,} cycles of the chip; the latencies above are estimates, "
            f"{ratio:.2f} of that."
        )
    )
    if "stalls" in programs[0]:  # not in the report of an older service
        console.print(Text(_waiting(programs, simulated)))
        console.print(Text(_energy(programs)))
    if report.get("stream") is not None:
        console.print(Text(_stream(report["stream"])))


def _waiting(programs: Sequence[Mapping[str, Any]], simulated: int) -> str:
    """What a core does with its time on average, the largest part first."""
    spent: Counter[str] = Counter()
    for program in programs:
        spent.update(next((one["cycles"] for one in program["engines"] if one["engine"] == "core"), {}))
    working = spent.pop("work", 0)
    waits = ", ".join(f"{cause} {_share(cycles, simulated)}" for cause, cycles in spent.most_common(_CAUSES))
    return f"Of that a core works {_share(working, simulated)} on average, and waits for: {waits or 'nothing'}."


def _energy(programs: Sequence[Mapping[str, Any]]) -> str:
    """Energy by level of what is simulated, the largest part first."""
    levels: Counter[str] = Counter()
    for program in programs:
        levels.update(program["energy_by_level"])
    total = sum(levels.values())
    ratio = sum(program["estimated_energy_j"] for program in programs) / total if total else 1.0
    parts = ", ".join(f"{name} {_share(joules, total)}" for name, joules in levels.most_common(_CAUSES) if joules)
    return f"Energy simulated: {quantity_si(total, 'J')} ({parts or 'none'}); estimated {ratio:.2f} of that."


def _stream(stream: Mapping[str, Any]) -> str:
    """How often a batch comes out of a steady stream."""
    return (
        f"Batch after batch: one every {quantity_si(stream['interval_s'], 's')} "
        f"({stream['images_per_s']:.4g} images/s), bound by {printable(stream['bound_by'], 60)}."
    )


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def _group_rows(plan: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """One row of text by column per group; a host segment is one row."""
    groups = [group for segment in plan["segments"] for group in segment["groups"]]
    cycles = sum(group["cycles"] for group in groups)
    cycle_s = plan["totals"]["latency_s"] / cycles if cycles else 0.0
    for segment in plan["segments"]:
        if segment["kind"] == "host":
            yield {"group": segment["id"], "ONNX nodes": _nodes(segment["nodes"]), "tile /tiles": "host"}
        for group in segment["groups"]:
            tiling, placement = group["tiling"], group["placement"]
            halo = group.get("halo") or {}
            dealt = placement.get("placement") if placement["spread"] == "bands" else placement["spread"]
            yield {
                "group": group["id"],
                "ONNX nodes": _nodes(group["nodes"]),
                "tile /tiles": "×".join(map(str, tiling["tile"]))
                + (f" /{tiling['tiles']}" if tiling["tiles"] > 1 else ""),
                "halo": _modes(halo) if isinstance(halo, Mapping) else str(halo),
                "placement": f"{placement['units']} {dealt}" if placement["units"] > 1 else "one unit",
                "DRAM": quantity_bytes(group["dram_bytes"]),
                "cycles": f"{group['cycles']:,}",
                "latency": quantity_si(group["cycles"] * cycle_s, "s"),
                "energy": quantity_si(group["energy_j"], "J"),
                "bound": str(group["bound_by"]),
                "stalls": _stalls(group.get("stalls") or {}, group["cycles"]),
            }


def _modes(halo: Mapping[str, str]) -> str:
    """Halo modes in short: one word where all axes agree."""
    if len(set(halo.values())) == 1:
        return next(iter(halo.values()))
    return " ".join(f"{axis} {mode}" for axis, mode in halo.items())


def _stalls(stalls: Mapping[str, int], cycles: int) -> str:
    """The stalls as a share of the cycles, and the cause of most of them."""
    total = sum(stalls.values())
    if not total or not cycles:
        return ""
    return f"{100 * total / cycles:.0f} % {max(stalls, key=lambda cause: stalls[cause])}"


def _sums(plan: Mapping[str, Any]) -> str:
    """Stalls by cause and energy by level of the whole plan, in words."""
    totals = plan["totals"]
    cycles = sum(group["cycles"] for segment in plan["segments"] for group in segment["groups"])
    stalls = ", ".join(f"{count:,} {cause}" for cause, count in (totals.get("stalls") or {}).items())
    levels = totals.get("energy_by_level") or {}
    energy = ", ".join(f"{name} {quantity_si(joules, 'J')}" for name, joules in levels.items() if joules)
    return f"\n{cycles:,} cycles, of them stalls: {stalls or 'none'}\nenergy: {energy or 'none'}"


def _gap(plan: Mapping[str, Any]) -> Iterator[str]:
    """Where a plan's bytes above the floor come from, in words; nothing for a plan near it."""
    totals = plan["totals"]
    if "gap" in plan:
        gap = msgspec.convert(plan["gap"], GapDoc)
        yield from gap_lines(gap, totals["dram_bytes"], totals["dram_bytes_floor"], quantity_bytes)


def _totals(plan: Mapping[str, Any]) -> Table:
    totals, baseline = plan["totals"], plan["baseline"]
    table = Table(header_style="bold", box=None, pad_edge=False)
    for name in ("", "this plan", "layer by layer", "ratio", "floor", "above floor"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    floor = totals["dram_bytes_floor"]
    table.add_row(
        "DRAM",
        quantity_bytes(totals["dram_bytes"]),
        quantity_bytes(baseline["dram_bytes"]),
        _ratio(totals["dram_bytes"], baseline["dram_bytes"]),
        quantity_bytes(floor),
        f"{100 * (totals['dram_bytes'] / floor - 1):.1f} %" if floor else "",
    )
    for label, key, unit in (("latency", "latency_s", "s"), ("energy", "energy_j", "J")):
        table.add_row(
            label,
            quantity_si(totals[key], unit),
            quantity_si(baseline[key], unit),
            _ratio(totals[key], baseline[key]),
            "",
            "",
        )
    return table


def quantity_bytes(value: float) -> str:
    """Bytes with a binary unit."""
    unit = 0
    while abs(value) >= 1024 and unit < len(_BYTE_UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.2f} {_BYTE_UNITS[unit]}"


def quantity_si(value: float, unit: str) -> str:
    """A quantity with three digits and a prefix."""
    for factor, prefix in ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value / 1e-12:.3g} p{unit}"


def _nodes(nodes: Sequence[str]) -> str:
    """The nodes of a group in short: the first and the last, and how many there are."""
    names = [printable(name, 60) for name in nodes]
    if len(names) < 3:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({len(names)})"


def _ratio(value: float, other: float) -> str:
    return f"{value / other:.3f}" if other else ""
