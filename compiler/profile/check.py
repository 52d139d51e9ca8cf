"""Checks the values of a profile and reports all faults at once: path, value found, values allowed (PROF-4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec

from compiler.errors import RequestError, did_you_mean, printable
from compiler.profile.field_descriptions import FIELDS, VALUES, Entry
from compiler.profile.quantities import quantity
from compiler.profile.schema import Dram, Engines, Matrix, Memory, Profile
from compiler.units import DTYPE_NAMES, element_bytes

# A file with more faults is no profile, so listing more helps nobody.
MAX_FAULTS: Final = 100
_WIDEST_ELEMENT_BYTES: Final = max(element_bytes(dtype) for dtype in DTYPE_NAMES)
# Longer numbers are not printed in full, which would be slow.
_BITS_MAX: Final = 256

# A field's path, its value (None: absent) and what is allowed.
_Relation: TypeAlias = tuple[str, object, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An invalid field: its path, the value found, the values allowed, and a hint or ""."""

    path: str
    found: str
    allowed: str
    hint: str = ""


def checked(values: Mapping[str, Any]) -> tuple[Profile | None, tuple[Fault, ...]]:
    """Returns the profile made of plain values, or None and its faults, at most MAX_FAULTS.

    Relations between fields are checked in the parts without faults.
    """
    reader = _Reader()
    plain = reader.part(values, FIELDS, "")
    faulty = {fault.path.partition(".")[0] for fault in reader.faults}
    parts = {
        entry.name: msgspec.convert(plain[entry.name], entry.type) if entry.name in plain else entry.default
        for entry in FIELDS
        if entry.name not in faulty
    }
    room = MAX_FAULTS - len(reader.faults)
    faults = (*reader.faults, *islice(_relations(parts, values.get("sram") is not None), room))
    return (None, faults) if faults else (msgspec.convert(plain, Profile), ())


@dataclass(slots=True)
class _Reader:
    """Reads values by the schema: converts amounts to numbers and records faults."""

    faults: list[Fault] = field(default_factory=list)

    def part(self, values: Mapping[str, Any], part: Sequence[Entry], path: str) -> dict[str, Any]:
        """The valid fields of a part among those given."""
        entries = {entry.name: entry for entry in part}
        plain = {}
        for name, value in values.items():
            if name in entries:
                plain[name] = self.value(value, entries[name], f"{path}{name}")
            else:
                self._note_name(f"{path}{name}", value, "field", name, entries)
        for name, entry in entries.items():
            if name not in values and not entry.may_be_left_out:
                self._note(f"{path}{name}", None, entry.allowed)
        return plain

    def value(self, value: Any, entry: Entry, path: str) -> Any:
        """A value as a number, word, list or object; a wrong value gives None and is recorded."""
        if value is None and entry.default is None:
            return None
        if entry.entries or entry.each is not None:
            if not isinstance(value, Mapping):
                self._note(path, value, entry.allowed)
                return None
            if entry.each is not None:
                return self._table(value, entry.each, path)
            return self.part(value, entry.entries, f"{path}.")
        try:
            amount = quantity(value, entry.unit) if entry.unit and isinstance(value, str) else value
            msgspec.convert(amount, entry.type)
        except (RequestError, msgspec.ValidationError):
            self._note(path, value, entry.allowed, did_you_mean(value, entry.words) if isinstance(value, str) else "")
            return None
        return amount

    def _table(self, values: Mapping[str, Any], entry: Entry, path: str) -> dict[str, Any]:
        plain = {}
        for dtype, value in values.items():
            if dtype in DTYPE_NAMES:
                plain[dtype] = self.value(value, entry, f"{path}.{dtype}")
            else:
                self._note_name(f"{path}.{dtype}", dtype, "element type", dtype, DTYPE_NAMES)
        return plain

    def _note_name(self, path: str, found: object, what: str, name: str, known: Iterable[str]) -> None:
        """Records an unknown name, with a similar known name or the part that the field belongs to as a hint."""
        if len(self.faults) < MAX_FAULTS:
            hint = did_you_mean(name, known)
            if not hint:
                places = [full for full in VALUES if full.rpartition(".")[2] == name]
                hint = f"Did you mean {' or '.join(places)}?" if places else ""
            self._note(path, found, f"no {what} of this name, but {', '.join(known)}", hint)

    def _note(self, path: str, found: object, allowed: str, hint: str = "") -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(_fault(path, found, allowed, hint))


def _fault(path: str, found: object, allowed: str, hint: str = "") -> Fault:
    return Fault(path=printable(path, 120), found=_shown(found), allowed=allowed, hint=hint)


def _shown(value: object) -> str:
    """A value as one short line of text."""
    if value is None:
        return "absent"
    if isinstance(value, Mapping | list | tuple):
        return "an object" if isinstance(value, Mapping) else "a list"
    if isinstance(value, int) and value.bit_length() > _BITS_MAX:
        return f"a number of {value.bit_length()} bits"
    return printable(str(value), 120)


def _relations(parts: Mapping[str, Any], has_sram: bool) -> Iterator[Fault]:
    """Checks relations between fields of the valid parts."""
    for level in ("sram", "nram", "wram"):
        if parts.get(level) is not None:
            yield from (_fault(*relation) for relation in _memory_relations(level, parts[level]))
    if "matrix" in parts:
        yield from (_fault(*relation) for relation in _matrix_relations(parts["matrix"]))
    if "engines" in parts:
        yield from (_fault(*relation) for relation in _engine_relations(parts["engines"], has_sram))
        if "dram" in parts:
            yield from (_fault(*relation) for relation in _port_relations(parts["dram"], parts["engines"], has_sram))


def _memory_relations(level: str, memory: Memory) -> Iterator[_Relation]:
    if memory.capacity_bytes < _WIDEST_ELEMENT_BYTES:
        expected = f"at least one element ({_WIDEST_ELEMENT_BYTES} bytes)"
        yield f"{level}.capacity_bytes", memory.capacity_bytes, expected
    parts = {"capacity_bytes": memory.capacity_bytes, "weight_bytes": memory.weight_bytes}
    for part, size_bytes in parts.items():
        if size_bytes is not None and memory.access_bytes > size_bytes:
            yield f"{level}.access_bytes", memory.access_bytes, f"at most {level}.{part} ({size_bytes} bytes)"


def _matrix_relations(matrix: Matrix) -> Iterator[_Relation]:
    if not matrix.arrays:
        yield "matrix.arrays", "an empty table", "an array for at least one element type"
        return
    for dtype in matrix.arrays:
        if dtype not in matrix.pj_per_mac:
            yield f"matrix.pj_per_mac.{dtype}", None, "an energy for every array's element type"
    for dtype, array in matrix.arrays.items():
        if array.c % array.block_rows:
            yield f"matrix.arrays.{dtype}.block_rows", array.block_rows, f"a divisor of c ({array.c})"
        if array.k % array.block_columns:
            yield f"matrix.arrays.{dtype}.block_columns", array.block_columns, f"a divisor of k ({array.k})"
    widest = max(matrix.arrays, key=element_bytes)
    operand_bytes = element_bytes(widest)
    one_operand = f"at least one element of the array for {widest} ({operand_bytes} bytes)"
    if matrix.accumulator_bytes is not None and matrix.accumulator_bytes < operand_bytes:
        yield "matrix.accumulator_bytes", matrix.accumulator_bytes, one_operand
    buffers = matrix.buffers
    for name, buffer in (("weight", buffers.weight), ("input", buffers.input)):
        if buffer is not None and buffer.capacity_bytes < operand_bytes:
            yield f"matrix.buffers.{name}.capacity_bytes", buffer.capacity_bytes, one_operand
    if buffers.output is not None and buffers.output.capacity_bytes < matrix.partial_sum_bytes:
        expected = f"at least one partial sum ({matrix.partial_sum_bytes} bytes)"
        yield "matrix.buffers.output.capacity_bytes", buffers.output.capacity_bytes, expected


def _engine_relations(engines: Engines, has_sram: bool) -> Iterator[_Relation]:
    for engine in ("gdma", "mvdma") if has_sram else ("iodma",):
        if getattr(engines, engine) is None:
            reason = "the profile has an SRAM" if has_sram else "the profile has no SRAM"
            yield f"engines.{engine}", None, f"an engine: without it data does not reach the cores ({reason})"
    for engine in () if has_sram else ("gdma", "mvdma", "cdma", "bus"):
        if getattr(engines, engine) is not None:
            yield f"engines.{engine}", "an engine", "no engine: it moves what lies in an SRAM, and the profile has none"


def _port_relations(dram: Dram, engines: Engines, has_sram: bool) -> Iterator[_Relation]:
    if dram.ports != "mesh-sides":
        return
    link = engines.link
    if link is None or link.topology != "mesh":
        found = "no links" if link is None else f"topology {link.topology}"
        expected = f"every-core: mesh-sides needs engines.link with topology mesh (the profile has {found})"
        yield "dram.ports", dram.ports, expected
    if has_sram:
        expected = "every-core: with an SRAM data comes to the clusters and not over the cores' mesh"
        yield "dram.ports", dram.ports, expected
