"""The zoo's table as Markdown, and what changed since the last one."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.zoo.compiling import Result, chips_for

# Ratios that move by less are not reported as a change.
CHANGE: Final = 0.02
_COLUMNS: Final = (
    "family | network | chip | exporter | nodes | native | host nodes | groups | DRAM / floor | latency / bound |"
    " simulated / bound | error / limit | s | state"
)
_RATIOS: Final = (8, 9, 10)
_STATE: Final = 13
_CELLS: Final = 14
_NONE: Final = "–"

INTRODUCTION: Final = """# The zoo

For who works on the compiler: what becomes of networks that nobody here wrote for it. `make zoo` builds them in an
export environment (random weights, small sizes; the last family are people's own files from their packages), compiles
each for `cluster4x4` and a seeded fifth for `edge4` and `manycore2x64` too, verifies the values against ONNX Runtime
and writes this page; tests/zoo/README.md says how to run parts of it. A run that was stopped goes on where it was.

`native`: share of the multiply-accumulates that the chips run; `+ n ?` are host nodes whose work is not known. `bound`:
the roofline. `latency` is the plan's price, `simulated` what the simulated commands take. `error / limit`: the worst
output's error over what is allowed (of what groups hand to groups, where rounding alone moves every output further than
that); in words where nothing was compared. `s`: seconds of processor time of the compilation with its value check.
`state`: `ok`, `degraded`, an error's code, `time` or `memory` (the run's own limits), `crash` (not one of our errors),
`died` (the process ended).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table, as text: its key (network and chip) and its cells."""

    key: tuple[str, str]
    cells: tuple[str, ...]


def page(records: Sequence[Mapping[str, Any]], results: Sequence[Result], *, compiler: str) -> str:
    """The whole page: summary, medians by family, all rows, what failed and why, what was not exported."""
    exported = {record["name"]: record for record in records if not record.get("reason")}
    rows = [row_of(result, exported[result.name]) for result in sorted(results, key=_order)]
    parts = [INTRODUCTION, _summary(records, results, compiler), _medians(results)]
    parts.append(f"## All\n\n| {_COLUMNS} |\n|---|---|---|---|" + "---:|" * 9 + "---|\n")
    parts[-1] += "".join(f"| {' | '.join(row.cells)} |\n" for row in rows)
    bad = [result for result in sorted(results, key=_order) if result.state != "ok" or result.degraded]
    if bad:
        parts.append("## Errors and degraded groups\n\n" + "".join(f"- {_complaint(result)}\n" for result in bad))
    out = sorted((record["name"], record["reason"]) for record in records if record.get("reason"))
    if out:
        lines = "".join(f"- {name}: {_plain(reason)}\n" for name, reason in out)
        parts.append(f"## Not exported, or not run by ONNX Runtime\n\nNot Tessera's failures.\n\n{lines}")
    return "\n".join(parts)


def row_of(result: Result, record: Mapping[str, Any]) -> Row:
    """A result as a line of the table."""
    native = _NONE if result.native is None else f"{100 * result.native:.2f} %"
    if result.unknown_host_nodes:
        native += f" + {result.unknown_host_nodes} ?"
    values = _NONE if result.values is None else f"{result.values:.2g}"
    state = "degraded" if result.state == "ok" and result.degraded else result.state
    cells = (
        result.family, result.name, result.chip, str(record["exporter"]), str(result.nodes), native,
        _count(result.host_nodes), _count(result.groups), _ratio(result.dram_over_floor),
        _ratio(result.latency_over_bound), _ratio(result.simulated_over_bound),
        _plain(result.unchecked)[:60] or values, f"{result.cpu_s:.0f}", state,
    )  # fmt: skip
    return Row(key=(result.name, result.chip), cells=cells)


def changes(before: str, after: str) -> list[str]:
    """What changed between two pages: rows that came or went, states, ratios by more than 2 %."""
    old, new = _rows(before), _rows(after)
    said = []
    for key in sorted(old.keys() | new.keys()):
        where = f"{key[0]} on {key[1]}"
        if key not in old:
            said.append(f"new: {where}: {new[key][_STATE]}")
        elif key not in new:
            said.append(f"gone: {where}")
        else:
            said += [f"{word}: {where}: {text}" for word, text in _differences(old[key], new[key])]
    return said


def _differences(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, str]]:
    was, now = old[_STATE], new[_STATE]
    if was != now:
        word = "fixed" if now == "ok" else "worse" if was == "ok" else "changed"
        return [(word, f"{was}, now {now}")]
    found = []
    names = [name.strip() for name in _COLUMNS.split("|")]
    for index in _RATIOS:
        try:
            ratio = float(new[index]) / float(old[index])
        except (ValueError, ZeroDivisionError):
            continue
        if abs(ratio - 1) > CHANGE:
            found.append(("slower" if ratio > 1 else "faster", f"{names[index]} {old[index]}, now {new[index]}"))
    return found


def _rows(text: str) -> dict[tuple[str, str], list[str]]:
    """The rows of a page by network and chip."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else []
        if len(cells) == _CELLS and cells[0] != "family":
            found[cells[1], cells[2]] = cells
    return found


def _summary(records: Sequence[Mapping[str, Any]], results: Sequence[Result], compiler: str) -> str:
    exported = [record for record in records if not record.get("reason")]
    wanted = sum(len(chips_for(record["name"])) for record in exported)
    states: dict[str, int] = {}
    for result in results:
        state = "degraded" if result.state == "ok" and result.degraded else result.state
        states[state] = states.get(state, 0) + 1
    found = ", ".join(
        f"{count} {state}" for state, count in sorted(states.items(), key=lambda item: (-item[1], item[0]))
    )
    minutes = sum(result.cpu_s for result in results) / 60
    return (
        f"Compiler {compiler}. {len(records)} networks, {len(exported)} of them run in ONNX Runtime;"
        f" {len(results)} of {wanted} compilations done in {minutes:.0f} processor minutes: {found or 'none'}.\n"
    )


def _medians(results: Sequence[Result]) -> str:
    """The medians of each family and chip."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.family, result.chip), []).append(result)
    columns = "family | chip | networks | ok | DRAM / floor | latency / bound | simulated / bound | native"
    lines = f"## Medians by family\n\n| {columns} |\n"
    lines += "|---|---|" + "---:|" * 6 + "\n"
    for (family, chip), found in sorted(groups.items()):
        fine = [result for result in found if result.state == "ok"]
        figures = [
            _ratio(_median([getattr(result, name) for result in fine]))
            for name in ("dram_over_floor", "latency_over_bound", "simulated_over_bound")
        ]
        native = _median([result.native for result in fine])
        share = _NONE if native is None else f"{100 * native:.2f} %"
        lines += f"| {family} | {chip} | {len(found)} | {len(fine)} | {' | '.join(figures)} | {share} |\n"
    return lines


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _order(result: Result) -> tuple[str, str, str]:
    return result.family, result.name, result.chip


def _complaint(result: Result) -> str:
    said = _plain("; ".join(result.degraded) if result.state == "ok" else result.message)
    return f"{result.name} on {result.chip}: {'degraded' if result.state == 'ok' else result.state}: {said}"


def _count(value: int | None) -> str:
    return _NONE if value is None else str(value)


def _ratio(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}"


def _plain(text: str) -> str:
    """Text that fits one line of a Markdown table, without colours, and without the folders of this machine."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return " ".join(re.sub(r"(?<![\w.:/'])/(?:[\w.-]+/)+(?=[\w-]+\.py\b)", "", text).replace("|", "/").split())
