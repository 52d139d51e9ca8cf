"""Tables of a run for a terminal: segments, outputs, and their comparison with the model."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.simulations.report import SimulationReport, TensorReport
from compiler.amounts import bytes_text
from compiler.errors import printable
from compiler.execution import OutputCheck

_NAME_WIDTH = 24


def print_outputs(report: SimulationReport, console: Console) -> None:
    """Prints a row per output, with its error if it was compared, and names the inputs of the run."""
    comparison = report.comparison
    checks = {check.tensor: check for check in comparison.outputs} if comparison is not None else {}
    table = _table(f"{printable(report.model.name, 60)} on {printable(report.profile.name, 60)}")
    table.add_column("output", overflow="ellipsis", no_wrap=True, max_width=_NAME_WIDTH)
    for name in ("type", "shape"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in ("min", "max", "mean", *(("max error", "limit") if checks else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for output in report.outputs:
        row = [printable(output.name, 60), output.dtype, "×".join(map(str, output.shape)) or "scalar"]
        row += [_figure(value) for value in (output.min, output.max, output.mean)]
        if checks:
            check = checks.get(output.name)
            row += ["", ""] if check is None else [_error(check), _figure(check.limit)]
        table.add_row(*row)
    console.print(table)
    console.print()
    console.print(Text(_inputs(report)))
    if comparison is not None:
        console.print(Text(_compared(report)))


def print_segments(report: SimulationReport, console: Console) -> None:
    """Prints a row per segment: its kind of program, and the fullest memory of each level."""
    table = _table("every program is safe (PROG-4)")
    for name in ("segment", "on"):
        table.add_column(name, no_wrap=True)
    for name in ("commands", "moved"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("memory used", overflow="fold")
    for segment in report.segments:
        used = ", ".join(f"{level} {bytes_text(size)}" for level, size in segment.used_bytes.items())
        where = "host" if segment.chip is None else f"chip {segment.chip}"
        moved = bytes_text(segment.touched_bytes) if segment.kind == "chip" else ""
        commands = (
            f"{segment.commands:,}"
            if segment.kind == "chip"
            else f"{segment.nodes} node{'' if segment.nodes == 1 else 's'}"
        )
        table.add_row(printable(segment.id, 20), where, commands, moved, used)
    console.print(table)
    console.print()


def _table(title: str) -> Table:
    return Table(title=Text(title), title_justify="left", header_style="bold", box=None, pad_edge=False, padding=(0, 1))


def _inputs(report: SimulationReport) -> str:
    if report.seed is None:
        return f"ran on {_count(report.inputs)} given; values only, time is not simulated"
    return f"ran on {_count(report.inputs)} made up from seed {report.seed}; values only, time is not simulated"


def _count(tensors: tuple[TensorReport, ...]) -> str:
    return f"{len(tensors)} input{'' if len(tensors) == 1 else 's'}"


def _compared(report: SimulationReport) -> str:
    comparison = report.comparison
    assert comparison is not None
    if comparison.reason is not None:
        return f"not compared: {printable(comparison.reason, 200)}"
    skipped = f"; {len(comparison.skipped)} random outputs were skipped" if comparison.skipped else ""
    if comparison.holds:
        return f"all compared outputs agree with {printable(comparison.judge or '', 60)}{skipped}"
    off = ", ".join(printable(check.tensor, 60) for check in comparison.outputs if not check.holds)
    return f"these outputs differ from {printable(comparison.judge or '', 60)}: {off}{skipped}"


def _error(check: OutputCheck) -> str:
    text = "infinite" if check.max_error is None else _figure(check.max_error)
    return text if check.holds else f"{text} !"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
