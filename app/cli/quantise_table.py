"""Tables of `tessera quantise` for a terminal: the outputs' errors, and the ops that were quantised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from rich.console import Console

from app.cli.quantiser.report import OutputAccuracy, QuantiseReport
from app.printing.text_table import Column, Remark, print_lines, print_table, span
from compiler.amounts import bytes_text, count_text
from compiler.errors import printable


def print_quantised(report: QuantiseReport, console: Console) -> None:
    """Prints a row per output and per op type, then types and sizes."""
    title = f"{printable(report.model.name, 60)} quantised on {count_text(report.samples, 'sample')}"
    figures = [(heading, [text(output) for output in report.outputs]) for heading, text in _FIGURES.items()]
    figures = [(heading, cells) for heading, cells in figures if any(cells)]
    columns = [Column("output", "names"), Column("type", "words"), *(Column(heading) for heading, _ in figures)]
    rows = [
        [output.tensor, output.type]
        + ([Remark(f"not compared: {output.reason}")] if output.reason else [cells[number] for _, cells in figures])
        for number, output in enumerate(report.outputs)
    ]
    print_table(columns, rows, console, title=title)
    console.print()
    columns = [Column("op", "words"), Column("quantised"), Column("in float"), Column("nodes in float", "names")]
    counts = [[op.op_type, f"{op.quantised:,}", f"{len(op.in_float):,}", span(op.in_float)] for op in report.ops]
    print_table(columns, counts, console)
    console.print()
    before, after = report.float_bytes, report.quantised_bytes
    lines = [
        f"Types        {report.activations} activations; {report.weights} weights, a scale per output channel",
        f"Size         {bytes_text(before)} before, {bytes_text(after)} after: {after / before:.2f} ×",
        f"Compared     with the float model on {report.quantiser}, on the samples that set the scales",
    ]
    print_lines(lines, console)


def _error(output: OutputAccuracy, value: float | None) -> str:
    if output.reason is not None:
        return ""
    return "infinite" if value is None else f"{value:.3g}"


def _snr(output: OutputAccuracy) -> str:
    return "" if output.snr_db is None else f"{output.snr_db:.1f} dB"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _equal(output: OutputAccuracy) -> str:
    return "" if output.type.startswith(("float", "bfloat")) else _share(output.equal_share)


# Columns; one without a cell is left out.
_FIGURES: Final[Mapping[str, Callable[[OutputAccuracy], str]]] = MappingProxyType(
    {
        "max error": lambda output: _error(output, output.max_error),
        "mean error": lambda output: _error(output, output.mean_error),
        "SNR": _snr,
        "same class": lambda output: _share(output.same_class_share),
        "equal": _equal,
    }
)
