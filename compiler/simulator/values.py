"""Runs a program on flat byte memories, command by command, address for address (SIM-1).

A `Chip` takes inputs and weights by the names of its regions, runs, and is read by name. The program is not trusted:
`compiler.program.checked.check` proves that every access lies inside its memory before the first command runs, and rows
that indices name are checked as they are read. Whether commands wait for their inputs is proved elsewhere
(`compiler.program.loops.proof`); here they run one after another.

A program that loops is checked and run window by window: what it takes in memory does not depend on its iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.address.unit import words_of
from compiler.errors import RequestError
from compiler.program.checked import CheckedProgram, check, residents_of
from compiler.program.engines import Engines
from compiler.program.errors import ProgramError
from compiler.program.fields import DEFAULT_LIMITS, ProgramLimits, check_fields, is_call, is_transfer
from compiler.program.loops.form import check_loops
from compiler.program.loops.instances import Instances, Window
from compiler.program.program import Level, Program, Region, Step
from compiler.simulator.calls import CallRunner
from compiler.units import numpy_dtype

Bytes = NDArray[np.uint8]
# Called after the last command of a step: with the step's number, the step, and the chip in its present state.
Observer = Callable[[int, Step, "Chip"], None]

# The content of on-chip memories before the first write: NaN if read as a float.
_POISON: Final = 0xFF
_WORDS: Final[Mapping[int, np.dtype[Any]]] = MappingProxyType({size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)})
_FIELDS: Final = (
    "source",
    "target",
    "targets",
    "source_address",
    "target_address",
    "run_bytes",
    "counts",
    "source_strides",
    "target_strides",
)
# The number of commands that are checked at a time, and whose fields are held as lists at a time.
_WINDOW: Final = 1 << 14
_BLOCK: Final = 4096


class _Memories:
    """The bytes of each place, made when they are first used.

    Apart from the chip, so that no chip refers to itself: its memories go with the last reference to it.
    """

    def __init__(self, sizes: list[int], dram: int) -> None:
        self._sizes = sizes
        self._dram = dram
        self._found: dict[int, Bytes] = {}

    def of(self, place: int) -> Bytes:
        """The bytes of a place, from its beginning; raises ProgramError if there is no memory for them."""
        found = self._found.get(place)
        if found is None:
            size = self._sizes[place]
            try:
                # regions in DRAM are large and mostly written: pages are allocated when touched
                found = np.zeros(size, np.uint8) if place == self._dram else np.full(size, _POISON, np.uint8)
            except MemoryError:
                raise ProgramError(
                    f"place {place} does not fit this machine's memory", violation="size", actual=size
                ) from None
            self._found[place] = found
        return found


class Chip:
    """The memories of one chip and a program to run on them.

    Raises ProgramError if the program would leave its memories, or needs more than `limits` allow. `shared` lists the
    profile's engines that are one component.
    """

    def __init__(self, program: Program, limits: ProgramLimits = DEFAULT_LIMITS, shared: Engines = ()) -> None:
        self.program = program
        self._limits, self._shared = limits, shared
        check_fields(program, limits)
        check_loops(program, limits)
        self._instances = Instances(program)
        self._regions = {region.name: region for region in self.program.regions}
        self._memories = _Memories(self._memory_sizes(), self._dram)
        self._calls = CallRunner(self._memories.of)
        self._last_of_step = self._ends()

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
                checked = self._checked(window)
                self._calls.take(checked)
                numbers = np.arange(len(window)) if order is None else np.fromiter(order, dtype=np.int64)
                # columns become lists block by block: reading the fields of single rows is slow
                for start in range(0, len(numbers), _BLOCK):
                    self._run_block(checked.program, window, numbers[start : start + _BLOCK], observer)

    def _checked(self, window: Window) -> CheckedProgram:
        """The commands of a window, of which every access is known to lie inside its memory; raises ProgramError."""
        try:
            return check(self._instances.expanded(window, self._limits), self._limits, self._shared)
        except ProgramError as error:
            raise self._instances.at(error, window) from error

    def _run_block(
        self, program: Program, window: Window, numbers: NDArray[np.int64], observer: Observer | None
    ) -> None:
        rows = program.commands[numbers]
        moves, calls = is_transfer(rows["opcode"]), is_call(rows["opcode"])
        columns = [rows[name].tolist() for name in _FIELDS]
        for number, moved, called, *fields in zip(
            numbers.tolist(), moves.tolist(), calls.tolist(), *columns, strict=True
        ):
            if moved:
                self._transfer(*fields)
            elif called:
                try:
                    self._calls.run(number)
                except ProgramError as error:
                    raise self._instances.at(error, window) from error
            if observer is not None:
                statement = int(window.statements[number])
                step = self._last_of_step.get(statement)
                if step is not None and window.iterations[number] == self._instances.lasts[statement]:
                    observer(step, self.program.steps[step], self)

    def memory(self, place: int) -> Bytes:
        """The bytes of a place, from its beginning."""
        return self._memories.of(place)

    def _memory_sizes(self) -> list[int]:
        """Checks all commands; bytes per place: in DRAM the size of the regions, on the chip the highest byte used."""
        places, limits = self.program.places, self._limits
        highs = np.zeros(len(places), dtype=np.int64)
        touched = 0.0
        for window in self._instances.windows(_WINDOW):
            accesses = self._checked(window).accesses
            np.maximum.at(highs, accesses.places, accesses.highs)
            touched += float(accesses.normal.touched_bytes.sum())
            if touched > limits.touched_bytes:
                raise ProgramError(
                    "the commands touch too many bytes", violation="size", actual=touched, limit=limits.touched_bytes
                )
        for place, _, high in residents_of(self.program):
            highs[place] = max(int(highs[place]), high)
        self._dram = next(index for index, place in enumerate(places) if place.level == Level.DRAM)
        sizes: list[int] = highs.tolist()
        sizes[self._dram] = max((region.address + region.size_bytes for region in self.program.regions), default=0)
        on_chip = sum(sizes) - sizes[self._dram]
        if on_chip > limits.chip_bytes:
            raise ProgramError(
                "the memories touched are too large", violation="size", actual=on_chip, limit=limits.chip_bytes
            )
        return sizes

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

    def _transfer(
        self,
        source: int,
        target: int,
        targets: int,
        source_address: int,
        target_address: int,
        run_bytes: int,
        counts: list[int],
        source_strides: list[int],
        target_strides: list[int],
    ) -> None:
        """Copies in words as wide as the transfer's numbers allow; reads everything before it writes."""
        marks = run_bytes | source_address | target_address
        shape, read_steps, write_steps = [], [], []
        for count, read_step, write_step in zip(counts, source_strides, target_strides, strict=True):
            if count > 1:
                marks |= read_step | write_step
                shape.append(count)
                read_steps.append(read_step)
                write_steps.append(write_step)
        # the lowest bit set of all numbers, at most 8
        word = min(8, marks & -marks)
        dtype = _WORDS[word]
        shape.append(run_bytes // word)
        read_steps.append(word)
        write_steps.append(word)
        values: Any = np.ndarray(shape, dtype, self.memory(source), source_address, read_steps)
        places = range(target, target + targets)
        if source in places:
            values = values.copy()
        for place in places:
            np.ndarray(shape, dtype, self.memory(place), target_address, write_steps)[...] = values
