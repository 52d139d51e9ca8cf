"""Results of compilations and runs, the same from this process, from a service and from a folder."""

from __future__ import annotations

import hashlib
import io
import mmap
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from compiler.errors import RequestError, printable
from compiler.report import plan as documents

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike as ArrayLike
    from rich.console import Console

    from app.simulations.arrays import Array
    from app.simulations.report import SimulationReport
    from compiler.program.executable import Executable as Program
    from compiler.program.executable import Value

# Called with the provisional plan; called at the begin of a phase with its name, its number from 1 and their count.
OnPlan = Callable[["Plan"], None]
OnPhase = Callable[[str, int, int], None]

_WIDTH = 120


class Plan(documents.Plan, frozen=True, kw_only=True):
    """The plan: groups, tilings, costs and reasons (docs/plan.md).

    `provisional` is True while its programs are being made.
    """

    def __str__(self) -> str:
        return _text(self._print)

    def __repr__(self) -> str:
        return f"<Plan of {_names(self)}: {self._figures()}>"

    def _figures(self) -> str:
        from compiler.amounts import bytes_text, count_text, si_text

        groups = sum(len(segment.groups) for segment in self.segments)
        latency = si_text(self.totals.latency_s, "s")
        state = ", provisional" if self.provisional else ""
        dram = bytes_text(self.totals.dram_bytes)
        return f"{count_text(groups, 'group')}, DRAM {dram}, latency {latency} estimated{state}"

    def _repr_html_(self) -> str:
        return _html(self._print)

    def _print(self, console: Console) -> None:
        from app.printing.plan_table import print_plan

        print_plan(self, None, console, wide=True)


class Report(documents.Report, frozen=True, kw_only=True):
    """The figures behind a plan: simulated time, stalls, energy, and the comparison of outputs with the model's."""

    def __repr__(self) -> str:
        return f"<Report of {_names(self)}: {self._figures()}>"

    def _figures(self) -> str:
        cycles = sum(program.simulated_cycles for program in self.programs)
        checked = "outputs verified" if self.values_checked else "outputs not verified"
        return f"{cycles:,} cycles simulated, {checked}"

    def _repr_html_(self) -> str:
        return _html(lambda console: console.print(repr(self)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """The result of a run: the outputs by name, and the report on inputs, programs and outputs.

    bfloat16 comes as two raw bytes per element; the elements of a sequence have the names name/0, name/1 and so on.
    """

    report: SimulationReport
    outputs: Mapping[str, Array]

    @classmethod
    def read(cls, report: bytes, outputs: bytes) -> Run:
        """From simulation.json and an .npz file, as a service gives them."""
        from app.client.document import document
        from app.simulations.arrays import read_arrays
        from app.simulations.report import SimulationReport

        found = document(report, SimulationReport, "the report of the run")
        return cls(report=found, outputs=MappingProxyType(read_arrays(io.BytesIO(outputs))))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the outputs as an .npz file, as `tessera run --outputs` does."""
        from app.outputs import whole_files
        from app.simulations.arrays import write_arrays

        with whole_files() as fresh, fresh(Path(path)).open("wb") as file:
            write_arrays(file, self.outputs)

    def __str__(self) -> str:
        return _text(self._print)

    def __repr__(self) -> str:
        outputs = ", ".join(
            f"{printable(name, 60)} {array.dtype}{list(array.shape)}" for name, array in self.outputs.items()
        )
        return f"<Run of {_names(self.report)}: {outputs}>"

    def _repr_html_(self) -> str:
        return _html(self._print)

    def _print(self, console: Console) -> None:
        from app.printing.run_table import print_outputs

        print_outputs(self.report, console)


class Executable:
    """Programs, weights and host segments of a compiled model, read when they are first needed."""

    def __init__(self, read: Callable[[], Program]) -> None:
        self._read = read

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Executable:
        """Opens an executable file; raises RequestError for any other file. Damage is found at the first use."""
        from app.input_files import existing_executable

        return cls(partial(_program_at, existing_executable(Path(path))))

    @cached_property
    def program(self) -> Program:
        """The parsed contents of the file; raises ExecutableError if it is damaged."""
        return self._read()

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The inputs of the model: names, element types and shapes."""
        return self.program.inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The outputs of the model: names, element types and shapes."""
        return self.program.outputs

    def save(self, path: str | PathLike[str]) -> None:
        """Write the file (docs/executable.md)."""
        from app.outputs import whole_files
        from compiler.program.executable import write_to

        program = self.program
        with whole_files() as fresh, fresh(Path(path)).open("wb") as file:
            write_to(program, file)

    def run(self, inputs: Mapping[str, ArrayLike] | None = None, *, seed: int | None = None) -> Run:
        """Proves the programs safe and runs them here, on given inputs or on inputs generated from a seed."""
        import numpy as np

        from app.simulations.arrays import write_arrays
        from app.simulations.inputs import DEFAULT_SEED
        from app.simulations.report import simulation_json
        from app.simulations.simulate import run_and_describe

        given = None if inputs is None else {name: np.asarray(value) for name, value in inputs.items()}
        number = DEFAULT_SEED if seed is None else seed
        found = run_and_describe(self.program, self._digest, given=given, seed=number)
        outputs = io.BytesIO()
        write_arrays(outputs, found.outputs)
        return Run.read(simulation_json(found.report), outputs.getvalue())

    def listing(
        self, *, group: str | None = None, head: int | None = None, tail: int | None = None, summary: bool = False
    ) -> str:
        """The disassembly: the first and last statements of each segment, all without arguments."""
        from app.simulations.listings import Wanted, lines

        wanted = Wanted(group=group, head=head, tail=tail, summary=summary)
        return "".join(f"{line}\n" for line in lines(self.program, wanted))

    @cached_property
    def _digest(self) -> str:
        from compiler.program.executable import write

        hashed = hashlib.sha256()
        for piece in write(self.program):
            hashed.update(piece)
        return hashed.hexdigest()

    def __repr__(self) -> str:
        from compiler.amounts import count_text

        program = self.program
        inputs, outputs = (", ".join(map(_value, values)) for values in (program.inputs, program.outputs))
        names = f"{printable(program.model_name, 60)} for {printable(program.profile.name, 60)}"
        count = count_text(len(program.segments), "segment")
        return f"<Executable of {names}: {count}, inputs {inputs}, outputs {outputs}>"

    def _repr_html_(self) -> str:
        return _html(lambda console: console.print(repr(self)))


class Compilation:
    """A compiled model: plan, report and executable.

    `executable` is None if the profile describes a machine for which no programs can be made. `server` and `job` name
    the service and its job, None for a local compilation. A service's executable is fetched at its first use.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        report: Report,
        executable: Executable | None,
        server: str | None = None,
        job: str | None = None,
    ) -> None:
        self.plan = plan
        self.report = report
        self.executable = executable
        self.server = server
        self.job = job

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Compilation:
        """Loads a folder written by `save` or `tessera compile --out`; raises RequestError for anything else."""
        from app.client.document import document
        from app.client.output_folder import EXECUTABLE_NAME, PLAN_NAME, REPORT_NAME
        from app.input_files import existing_file

        path = Path(folder)
        hint = "Give the folder of `tessera compile --out`"
        plan, report = (existing_file(path / name, hint) for name in (PLAN_NAME, REPORT_NAME))
        executable = path / EXECUTABLE_NAME
        return cls(
            plan=document(plan.read_bytes(), Plan, str(plan)),
            report=document(report.read_bytes(), Report, str(report)),
            executable=Executable.load(executable) if executable.exists() else None,
        )

    def save(self, folder: str | PathLike[str]) -> list[str]:
        """Writes the files of `tessera compile --out`, all or nothing; returns their names."""
        from app.client.output_folder import Compiled, write

        compiled = Compiled(
            plan=documents.plan_json(self.plan),
            report=documents.report_json(self.report),
            executable=None if self.executable is None else self.executable.program,
        )
        return write(compiled, Path(folder), program=True)

    def run(self, inputs: Mapping[str, ArrayLike] | None = None, *, seed: int | None = None) -> Run:
        """Runs the executable here, on given inputs or on inputs generated from a seed. `Client.run` uses a service.

        Raises RequestError without an executable.
        """
        return self.needed_executable().run(inputs, seed=seed)

    def needed_executable(self) -> Executable:
        """The executable; raises RequestError if there is none."""
        if self.executable is None:
            raise RequestError(
                "the profile describes what programs cannot do, so there is no executable",
                code="no_executable",
                actual=self.report.values.reason,
                hint="The plan is complete; for an executable change the profile or option precision",
            )
        return self.executable

    def explain(self, group: str | None = None) -> str:
        """Explains the partition and placement of the model, or a group (s0.g3) or segment (s0) in full."""
        from compiler.report.explain import explain

        return explain(self.plan, group, self.report)

    def __str__(self) -> str:
        return _text(self._print)

    def __repr__(self) -> str:
        origin = "" if self.job is None else f", job {self.job}"
        return f"<Compilation of {_names(self.plan)}{origin}: {self.plan._figures()}, {self.report._figures()}>"

    def _repr_html_(self) -> str:
        return _html(self._print)

    def _print(self, console: Console) -> None:
        from app.printing.plan_table import print_plan

        print_plan(self.plan, self.report, console, wide=True)


def executable_of_job(server: str, job: str, key: str) -> Executable:
    """The executable of a job on a service, fetched at its first use."""

    def fetched() -> Program:
        from app.client.client import Client

        with tempfile.TemporaryDirectory() as folder, Client(server, key=key) as client:
            path = Path(folder) / "executable.tsx"
            client.save_executable(job, path)
            return _program_at(path)

    return Executable(fetched)


def _program_at(path: Path) -> Program:
    """Maps an executable file, which may be deleted afterwards."""
    from app.simulations.simulate import checked_read

    with path.open("rb") as file:
        return checked_read(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def write_inputs(inputs: Mapping[str, ArrayLike], path: Path) -> Path:
    """Writes the values of inputs as an .npz file; returns its path."""
    from app.simulations.arrays import write_arrays

    with path.open("wb") as file:
        write_arrays(file, inputs)
    return path


def _names(document: Any) -> str:
    return f"{printable(document.model.name, 60)} on {printable(document.profile.name, 60)}"


def _value(value: Value) -> str:
    shape = "[?]" if value.shape is None else str(list(value.shape))
    return f"{printable(value.name, 60)} {value.dtype}{shape}"


def _text(show: Callable[[Console], None]) -> str:
    """Renders printed output as text without colours."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=_WIDTH, color_system=None, markup=False, force_jupyter=False)
    with console.capture() as captured:
        show(console)
    return captured.get()


def _html(show: Callable[[Console], None]) -> str:
    """Renders printed output as HTML for a notebook; text from models is escaped."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=_WIDTH, record=True, markup=False, highlight=False, force_jupyter=False)
    show(console)
    style = "overflow-x:auto;white-space:pre;line-height:normal;font-family:Menlo,Consolas,'DejaVu Sans Mono',monospace"
    return console.export_html(inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>')
