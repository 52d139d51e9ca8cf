"""`tessera quantise`: a float model becomes a quantised one, on samples of its inputs (IMPORT-9, UI-1)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from app.cli.failures import failures
from app.cli.shared_parameters import JsonFlag, file_to_write, progress_console
from app.input_files import existing_arrays, uncompiled_model
from app.outputs import whole_files
from compiler.errors import LimitError, RequestError, printable


def quantise(
    model: Annotated[Path, typer.Argument(help="A float ONNX file, or a zip or tar of one", show_default=False)],
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            help="An .npz file of samples; its keys are names of inputs, and one more axis in front counts samples",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "--output", "-o", help="The quantised ONNX file to write")
    ] = None,
    activations: Annotated[
        Literal["int8", "uint8"], typer.Option("--activations", help="Element type of activations")
    ] = "int8",
    ops: Annotated[
        str | None,
        typer.Option(
            "--ops",
            help="Op types to quantise, such as Conv,Gemm,MatMul [all that ONNX Runtime quantises]",
            show_default=False,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Quantise a float model with ONNX Runtime's quantiser, and compare its outputs with the float model's.

    Weights become int8 with a scale per output channel, activations 8-bit integers with scales from the samples. The
    file has QuantizeLinear and DequantizeLinear nodes; `tessera compile` takes it.
    """
    with failures(as_json=as_json):
        uncompiled_model(model)
        existing_arrays(data)
        file_to_write(out)
        if out is not None and out.exists() and out.samefile(model):
            raise RequestError(
                "the quantised model would replace the float model",
                code="invalid_request",
                actual=printable(str(out), 200),
                hint="Name another file with --out",
            )
        from app.cli.progress import ProgressBar
        from app.cli.quantise_table import print_quantised
        from app.cli.quantiser.quantise import quantised
        from app.cli.quantiser.report import report_json
        from app.input_files import open_model
        from app.simulations.arrays import read_arrays

        with data.open("rb") as file:
            arrays = read_arrays(file)
        try:
            with (
                tempfile.TemporaryDirectory(prefix="tessera-quantise-") as folder,
                ProgressBar(progress_console(as_json), model.name) as bar,
            ):
                found = quantised(
                    open_model(model),
                    arrays,
                    Path(folder),
                    bar.say,
                    activations=activations,
                    op_types=[word.strip() for word in (ops or "").split(",") if word.strip()],
                )
        except MemoryError:
            raise LimitError(
                "quantising takes more memory than there is",
                code="memory_limit",
                stage="quantise",
                hint="Give fewer or smaller samples, or free memory",
            ) from None
        console = Console(markup=False, highlight=False)
        if as_json:
            sys.stdout.write(report_json(found.report).decode())
        else:
            print_quantised(found.report, console)
        if out is not None:
            with whole_files() as fresh:
                fresh(out).write_bytes(found.data)
            if not as_json:
                console.print(f"Wrote {out}", soft_wrap=True)
