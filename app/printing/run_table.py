"""Tables of a run for a terminal: segments, outputs, and their comparison with the model."""

from __future__ import annotations

from rich.console import Console

from app.printing.text_table import Column, print_table, print_text
from app.simulations.report import SimulationReport
from compiler.amounts import bytes_text, count_text
from compiler.errors import printable
from compiler.report.execution import OutputCheck


def print_outputs(report: SimulationReport, console: Console) -> None:
    """Prints a row per output, with its error if it was compared, and names the inputs of the run."""
    comparison = report.comparison
    checks = {check.tensor: check for check in comparison.outputs} if comparison is not None else {}
    headings = ("min", "max", "mean", *(("max error", "limit") if checks else ()))
    columns = [Column("output", "names"), Column("type", "words"), Column("shape", "words"), *map(Column, headings)]
    rows = []
    for output in report.outputs:
        row = [output.name, output.dtype, "×".join(map(str, output.shape)) or "scalar"]
        row += [_figure(value) for value in (output.min, output.max, output.mean)]
        check = checks.get(output.name)
        rows.append(row if check is None else [*row, _error(check), _figure(check.limit)])
    title = f"{printable(report.model.name, 60)} on {printable(report.profile.name, 60)}"
    print_table(columns, rows, console, title=title)
    console.print()
    print_text(_inputs(report), console)
    if comparison is not None:
        print_text(_compared(report), console)


def print_segments(report: SimulationReport, console: Console) -> None:
    """Prints a row per segment: its kind of program, and the fullest memory of each level."""
    levels = list(dict.fromkeys(level for segment in report.segments for level in segment.used_bytes))
    columns = [Column("segment", "words"), Column("on", "words"), *map(Column, ("commands", "moved"))]
    rows = []
    for segment in report.segments:
        on_chip = segment.kind == "chip"
        where = "host" if segment.chip is None else f"chip {segment.chip}"
        commands = f"{segment.commands:,}" if on_chip else count_text(segment.nodes, "node")
        used = (bytes_text(segment.used_bytes[level]) if level in segment.used_bytes else "" for level in levels)
        rows.append([segment.id, where, commands, bytes_text(segment.touched_bytes) if on_chip else "", *used])
    columns += [Column(f"{level.upper()} used") for level in levels]
    print_table(columns, rows, console, title="Every program is proved safe (PROG-4)")
    console.print()


def _inputs(report: SimulationReport) -> str:
    inputs = count_text(len(report.inputs), "input")
    origin = "given" if report.seed is None else f"of random values (seed {report.seed})"
    return f"Ran on {inputs} {origin}; values only, time is not simulated"


def _compared(report: SimulationReport) -> str:
    comparison = report.comparison
    assert comparison is not None
    if comparison.reason is not None:
        return f"Not compared: {printable(comparison.reason, 200)}"
    skipped = f"; {len(comparison.skipped)} random outputs were skipped" if comparison.skipped else ""
    if comparison.holds:
        return f"All compared outputs agree with {printable(comparison.judge or '', 60)}{skipped}"
    off = ", ".join(printable(check.tensor, 60) for check in comparison.outputs if not check.holds)
    return f"These outputs differ from {printable(comparison.judge or '', 60)}: {off}{skipped}"


def _error(check: OutputCheck) -> str:
    text = "infinite" if check.max_error is None else _figure(check.max_error)
    return text if check.holds else f"{text} !"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
