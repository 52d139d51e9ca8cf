"""Runs a program on flat byte memories, command by command, address for address (SIM-1).

A `Chip` takes inputs and weights by the names of its regions, runs, and is read by name. The program is not trusted:
`accesses_of_statements` proves that every access lies inside its memory before the first command runs, what machine
code follows is checked again (`Moves.check`), and rows that indices name are checked as they are read. Whether commands
wait for their inputs is proved elsewhere (`compiler.program.loops.proof`); here they run one after another.

A program that loops runs window by window: what it takes in memory does not depend on its iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.address.unit import words_of
from compiler.errors import RequestError
from compiler.ir.box import Ints
from compiler.ir.graph import Graph
from compiler.program.checked import residents_of
from compiler.program.engines import Engines
from compiler.program.errors import ProgramError
from compiler.program.fields import DEFAULT_LIMITS, ProgramLimits, check_fields, is_call
from compiler.program.loops.form import check_loops
from compiler.program.loops.instances import Instances, Window
from compiler.program.loops.proof import ProvedProgram
from compiler.program.loops.statement_accesses import accesses_of_statements
from compiler.program.program import Level, Program, Region, Step
from compiler.simulator.calls import CallRunner, Commands
from compiler.simulator.kernels import OPERANDS, do_rows, follow, views_of
from compiler.simulator.moves import moves_of
from compiler.simulator.whole_ops import Calls, WholeOps
from compiler.units import numpy_dtype

Bytes = NDArray[np.uint8]
# Called after the last command of a step: with the step's number, the step, and the chip in its present state.
Observer = Callable[[int, Step, "Chip"], None]

# The content of on-chip memories before the first write: NaN if read as a float.
_POISON: Final = 0xFF
# Where places begin: more than the widest word.
_ALIGNMENT: Final = 64
# The number of commands that are prepared at a time.
_WINDOW: Final = 1 << 14


class _Memories:
    """The bytes of all places in one array, made when they are first used.

    Apart from the chip, so that no chip refers to itself: its memories go with the last reference to it.
    """

    def __init__(self, sizes: list[int], dram: int) -> None:
        self._sizes = sizes
        self._dram = dram
        spans = [0, *(size + -size % _ALIGNMENT for size in sizes)]
        # where each place begins, and the end of the last one
        self.offsets: Ints = np.cumsum(np.array(spans, dtype=np.int64))
        self._bytes: Bytes | None = None

    def all(self) -> Bytes:
        """The bytes of all places; raises ProgramError if there is no memory for them."""
        if self._bytes is None:
            try:
                # regions in DRAM are large and mostly written: pages are allocated when touched
                self._bytes = np.zeros(int(self.offsets[-1]), np.uint8)
            except MemoryError:
                raise ProgramError(
                    "the places do not fit this machine's memory", violation="size", actual=int(self.offsets[-1])
                ) from None
            for place in range(len(self._sizes)):
                if place != self._dram:
                    self.of(place).fill(_POISON)
        return self._bytes

    def of(self, place: int) -> Bytes:
        """The bytes of a place, from its beginning."""
        begin = int(self.offsets[place])
        return self.all()[begin : begin + self._sizes[place]]


class Chip:
    """The memories of one chip and a program to run on them.

    Raises ProgramError if the program would leave its memories, or needs more than `limits` allow. `shared` lists the
    profile's engines that are one component. With the `graph` that the program was made of, calls take results from
    whole ops where that is the same (`whole_ops.py`); without it each computes its own. With the `proof` of this very
    program its commands are not checked again.
    """

    def __init__(
        self,
        program: Program,
        limits: ProgramLimits = DEFAULT_LIMITS,
        shared: Engines = (),
        *,
        graph: Graph | None = None,
        proof: ProvedProgram | None = None,
    ) -> None:
        self.program = program
        self._limits, self._shared = limits, shared
        if proof is None:
            check_fields(program, limits)
            check_loops(program, limits)
        self._instances = Instances(program)
        self._regions = {region.name: region for region in self.program.regions}
        self._memories = _Memories(self._memory_sizes(proof), self._dram)
        self._calls = CallRunner(self._memories.of)
        self._last_of_step = self._ends()
        dram = int(self._memories.offsets[self._dram])
        self._wholes = None if graph is None else WholeOps(program, graph, self._memories.all, self._view, dram)

    def write(self, name: str, array: Any) -> None:
        """Writes values into an input or weight region, in the order of the tensor's axes.

        Raises RequestError for an unknown region, or another shape or element type.
        """
        region = self._region(name)
        values = np.asarray(array)
        if values.shape != tuple(region.shape) or values.dtype != numpy_dtype(region.dtype):
            raise RequestError(
                f"{name!r} is of another shape or element type",
                code="wrong_tensor",
                actual=f"{values.dtype}{list(values.shape)}",
                limit=f"{region.dtype}{list(region.shape)}",
            )
        self._view(region)[...] = values

    def load_weights(self, name: str, data: Any) -> None:
        """Loads a weight into its region: an array as for `write`, or the region's bytes in memory order."""
        if isinstance(data, np.ndarray):
            self.write(name, data)
            return
        region = self._region(name)
        raw = np.frombuffer(data, dtype=np.uint8)
        if len(raw) != region.size_bytes:
            raise RequestError(
                f"{name!r} takes another number of bytes", code="wrong_tensor", actual=len(raw), limit=region.size_bytes
            )
        self.memory(self._dram)[region.address : region.address + region.size_bytes] = raw

    def write_bytes(self, name: str, write: Callable[[Bytes], None]) -> None:
        """Calls `write` to fill a region with its bytes in memory order."""
        region = self._region(name)
        write(self.memory(self._dram)[region.address : region.address + region.size_bytes])

    def read(self, name: str) -> NDArray[Any]:
        """A copy of a region's values, in the order of the tensor's axes."""
        return np.array(self._view(self._region(name)), order="C")

    def run(self, observer: Observer | None = None, order: Iterable[int] | None = None) -> None:
        """Runs all commands, in program order or in `order`; raises ProgramError naming the command.

        `order` is for tests: every order that waits and queues permit gives equal results.
        """
        self._load_residents()
        self._load_addresses()
        most = _WINDOW if order is None else max(_WINDOW, self._instances.total)
        with np.errstate(all="ignore"):
            for window in self._instances.windows(most):
                commands = self._commands(window)
                self._calls.take(commands)
                numbers = np.arange(len(window)) if order is None else np.fromiter(order, dtype=np.int64)
                self._follow(commands, window, numbers, observer)

    def _commands(self, window: Window) -> Commands:
        """The commands of a window; raises ProgramError naming the statement and tile of a call that does not fit."""
        try:
            return Commands.of(self._instances.expanded(window, self._limits), self._limits)
        except ProgramError as error:
            raise self._instances.at(error, window) from error

    def _follow(
        self, commands: Commands, window: Window, numbers: NDArray[np.int64], observer: Observer | None
    ) -> None:
        """Does the commands of a window, in this order."""
        program, offsets = commands.program, self._memories.offsets
        calls = None if self._wholes is None else self._wholes.take(commands, offsets)
        asks = is_call(program.commands["opcode"]) if calls is None else calls.asks
        moves = moves_of(program, offsets, None if calls is None else calls.boxes, asks)
        memory = views_of(self._memories.all())
        beside = memory if self._wholes is None else views_of(self._wholes.bytes)
        moves.check(len(memory[0]), len(beside[0]))
        places = np.zeros(moves.axes, dtype=np.int64)
        kinds = np.zeros(len(program.commands), dtype=np.int64) if calls is None else calls.kinds
        settled = np.zeros(1, dtype=np.int64) if self._wholes is None else self._wholes.settled

        def compares(number: int) -> bool:
            its = (int(moves.firsts[number]), int(moves.firsts[number + 1]))
            return bool(do_rows(*its, OPERANDS, moves.rows, places, memory, beside))

        ends = self._ends_of_steps(window, numbers) if observer is not None else []
        at = 0
        for stop in [*(place + 1 for place, _ in ends), len(numbers)]:
            while at < stop:
                at = int(
                    follow(
                        *(numbers, at, stop, moves.doings, kinds, settled),
                        *(moves.firsts, moves.rows, places, memory, beside),
                    )
                )
                if at < stop:
                    try:
                        self._do(program, int(numbers[at]), calls, compares)
                    except ProgramError as error:
                        raise self._instances.at(error, window) from error
                    at += 1
            if observer is not None and ends and stop == ends[0][0] + 1:
                step = ends.pop(0)[1]
                observer(step, self.program.steps[step], self)

    def _do(self, program: Program, number: int, calls: Calls | None, compares: Callable[[int], bool]) -> None:
        """Does a command that machine code does not: a transfer onto its own source, or a call that computes."""
        row = program.commands[number]
        if not is_call(row["opcode"]):
            self._transfer(row)
            return
        use, wholes = -1 if calls is None else int(calls.uses[number]), self._wholes
        if calls is None or wholes is None or use < 0:
            self._calls.run(number)
            return
        kind, end = int(calls.kinds[number]), int(calls.ends[number])
        equal = wholes.may_settle(kind) and wholes.is_ready(use) and compares(number)
        self._calls.run(number, partial(wholes.settle, use, end, kind) if equal else None)

    def _ends_of_steps(self, window: Window, numbers: NDArray[np.int64]) -> list[tuple[int, int]]:
        """The places in `numbers` at which a step has its last command, each with the number of that step."""
        of = window.statements[numbers]
        last = np.flatnonzero(window.iterations[numbers] == self._instances.lasts[of])
        found = ((place, self._last_of_step.get(int(of[place]))) for place in last.tolist())
        return [(place, step) for place, step in found if step is not None]

    def memory(self, place: int) -> Bytes:
        """The bytes of a place, from its beginning."""
        return self._memories.of(place)

    def _memory_sizes(self, proof: ProvedProgram | None) -> list[int]:
        """Bytes per place: in DRAM the size of the regions, on the chip the highest byte used.

        Without a proof checks all commands.
        """
        places, limits = self.program.places, self._limits
        self._dram = next(index for index, place in enumerate(places) if place.level == Level.DRAM)
        sizes = self._highest_bytes() if proof is None else list(proof.peak_bytes)
        on_chip = sum(sizes) - sizes[self._dram]
        if on_chip > limits.chip_bytes:
            raise ProgramError(
                "the memories touched are too large", violation="size", actual=on_chip, limit=limits.chip_bytes
            )
        return sizes

    def _highest_bytes(self) -> list[int]:
        """How many bytes of each place the commands use; every access is checked on the way."""
        limits = self._limits
        found = accesses_of_statements(self._instances, limits, self._shared)
        if found.touched_bytes > limits.touched_bytes:
            raise ProgramError(
                "the commands touch too many bytes",
                violation="size",
                actual=found.touched_bytes,
                limit=limits.touched_bytes,
            )
        highs: list[int] = found.peaks.tolist()
        for place, _, high in residents_of(self.program):
            highs[place] = max(highs[place], high)
        highs[self._dram] = max((region.address + region.size_bytes for region in self.program.regions), default=0)
        return highs

    def _ends(self) -> dict[int, int]:
        """Maps the statement of each step's last command to the step."""
        instances, steps = self._instances, self.program.commands["step"].tolist()
        order = np.lexsort((instances.lasts, instances.nests)).tolist()
        last = {steps[statement]: statement for statement in order if steps[statement] >= 0}
        return {statement: step for step, statement in last.items()}

    def _region(self, name: str) -> Region:
        region = self._regions.get(name)
        if region is None:
            raise RequestError(
                f"the program has no tensor {name!r}", code="unknown_tensor", limit=", ".join(sorted(self._regions))
            )
        return region

    def _view(self, region: Region) -> NDArray[Any]:
        """A region's elements in the order of the tensor's axes."""
        memory = self.memory(self._dram)
        if 0 in region.shape:
            return np.zeros(region.shape, dtype=numpy_dtype(region.dtype))
        return np.ndarray(region.shape, numpy_dtype(region.dtype), memory, region.address, region.strides)

    def _load_residents(self) -> None:
        """Loads resident weights to their places on the chip."""
        for resident in self.program.residents:
            region = self.program.regions[resident.region]
            box = tuple(
                slice(start, start + length) for start, length in zip(resident.starts, resident.lengths, strict=True)
            )
            target = np.ndarray(
                resident.lengths,
                numpy_dtype(region.dtype),
                self.memory(resident.place),
                resident.address,
                resident.strides,
            )
            target[...] = self._view(region)[box]

    def _load_addresses(self) -> None:
        """Writes the words of address tables into their regions."""
        for addresses in self.program.addresses:
            self._view(self.program.regions[addresses.region])[...] = words_of(addresses.table)

    def _transfer(self, row: Any) -> None:
        """Copies onto the source itself: reads everything before it writes."""
        shape = (*row["counts"].tolist(), int(row["run_bytes"]))
        read, written = ((*row[f"{side}_strides"].tolist(), 1) for side in ("source", "target"))
        values: Any = np.ndarray(shape, np.uint8, self.memory(row["source"]), int(row["source_address"]), read).copy()
        for place in range(row["target"], row["target"] + row["targets"]):
            np.ndarray(shape, np.uint8, self.memory(place), int(row["target_address"]), written)[...] = values
