"""What a program has besides its streams, as canonical JSON; and the identifiers of units (PROG-3, SHAPE-1).

Canonical: keys sorted, no space, UTF-8. Attributes are written with their type, floats in hexadecimal, because JSON
knows neither infinity nor the difference between 1 and 1.0; bytes are written in base 64.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from typing import Any, Final, Literal, TypeVar

import msgspec

from compiler.address.encode import decode, encode
from compiler.address.table import AddressTable
from compiler.errors import InternalError, RequestError
from compiler.ir.graph import Attribute
from compiler.program.encoding.manifest import record_of
from compiler.program.errors import ExecutableError
from compiler.program.program import (
    Addresses,
    OperandType,
    ParameterTable,
    Place,
    Program,
    Queue,
    Region,
    Resident,
    Rows,
    Step,
    Unit,
)

# Fields of a program that are written as they are.
_PLAIN: Final = ("name", "places", "queues", "steps", "regions", "residents")

AttributeKind = Literal["float", "floats", "int", "ints", "string", "strings"]
Record = TypeVar("Record", bound=msgspec.Struct)


class AttributeRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An attribute: its name, its type, and its values (one, where the type is no list)."""

    name: str
    kind: AttributeKind
    values: tuple[int | str, ...]


class UnitRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A unit as it is written: the fields of `Unit`."""

    identifier: str
    kind: str
    attributes: tuple[AttributeRecord, ...]
    opset: int
    operands: tuple[OperandType | None, ...]
    output: OperandType
    extents: tuple[int, ...]
    gathers: int
    accumulator_dtype: str


class TableRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The common area of a parameter table: the fields of `ParameterTable` but for the entries."""

    unit: int
    operand_shapes: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]


class AddressRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address table: its region, and the table as `compiler.address.encode` has it."""

    region: int
    table: bytes


class ProgramRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a program has besides commands and entries: the fields of `Program`."""

    name: str
    places: tuple[Place, ...]
    queues: tuple[Queue, ...]
    steps: tuple[Step, ...]
    units: tuple[UnitRecord, ...]
    tables: tuple[TableRecord, ...]
    regions: tuple[Region, ...]
    residents: tuple[Resident, ...]
    addresses: tuple[AddressRecord, ...]


def canonical(record: object) -> bytes:
    """A record as canonical JSON."""
    return msgspec.json.encode(record, order="sorted")


def from_canonical(data: memoryview, kind: type[Record], section: str) -> Record:
    """A record from canonical JSON; raises ExecutableError where it is none, or is written in another way."""
    try:
        record = msgspec.json.decode(data, type=kind)
        same = canonical(record) == data
    except (msgspec.MsgspecError, RecursionError, UnicodeError, ValueError) as error:
        raise ExecutableError(f"not what belongs here: {error}", section=section, offset=0) from None
    if not same:
        raise ExecutableError(
            "the JSON is not canonical", section=section, offset=0, hint="Sorted keys, no spaces, no unknown fields"
        )
    return record


def program_record(program: Program) -> ProgramRecord:
    """A program's parts that are written as JSON."""
    return ProgramRecord(
        units=tuple(unit_record(unit) for unit in program.units),
        tables=tuple(record_of(TableRecord, table) for table in program.tables),
        addresses=tuple(AddressRecord(region=one.region, table=encode(one.table)) for one in program.addresses),
        **{name: getattr(program, name) for name in _PLAIN},
    )


def program_parts(record: ProgramRecord, entries: list[Rows], section: str) -> dict[str, Any]:
    """The arguments of `Program` that a record gives; raises ExecutableError if a unit is not what its name says."""
    units = tuple(_unit(unit, section) for unit in record.units)
    for unit in units:
        if unit.identifier != with_identifier(unit).identifier:
            raise ExecutableError(
                "a unit's identifier is not the digest of its definition",
                section=section,
                offset=0,
                actual=unit.identifier,
                limit=with_identifier(unit).identifier,
            )
    tables = tuple(
        ParameterTable(entries=rows, **{name: getattr(table, name) for name in TableRecord.__struct_fields__})
        for table, rows in zip(record.tables, entries, strict=True)
    )
    addresses = tuple(Addresses(region=one.region, table=_address_table(one, section)) for one in record.addresses)
    plain = {name: getattr(record, name) for name in _PLAIN}
    return {"units": units, "tables": tables, "addresses": addresses, **plain}


def _address_table(record: AddressRecord, section: str) -> AddressTable:
    try:
        return decode(record.table)
    except RequestError as error:
        raise ExecutableError(f"an address table cannot be read: {error}"[:300], section=section, offset=0) from None


def unit_identifier(
    *,
    kind: str,
    attributes: tuple[tuple[str, Attribute], ...],
    opset: int,
    operands: tuple[OperandType | None, ...],
    output: OperandType,
    extents: tuple[int, ...],
    gathers: int = -1,
    accumulator_dtype: str = "",
) -> str:
    """The identifier of a unit: the SHA-256 of its definition (SHAPE-1); the arguments are the fields of `Unit`."""
    unit = Unit(
        identifier="",
        kind=kind,
        attributes=attributes,
        opset=opset,
        operands=operands,
        output=output,
        extents=extents,
        gathers=gathers,
        accumulator_dtype=accumulator_dtype,
    )
    return with_identifier(unit).identifier


def with_identifier(unit: Unit) -> Unit:
    """The unit with the identifier that its other fields give it."""
    bare = replace(unit, identifier="")
    return replace(unit, identifier=hashlib.sha256(canonical(unit_record(bare))).hexdigest())


def unit_record(unit: Unit) -> UnitRecord:
    """A unit as it is written."""
    written = tuple(_attribute_record(name, value) for name, value in unit.attributes)
    return record_of(UnitRecord, unit, attributes=written)


def _unit(record: UnitRecord, section: str) -> Unit:
    read = tuple((one.name, _attribute(one, section)) for one in record.attributes)
    return Unit(**{**{f.name: getattr(record, f.name) for f in fields(Unit)}, "attributes": read})


def _attribute_record(name: str, value: Attribute) -> AttributeRecord:
    values = value if isinstance(value, tuple) else (value,)
    plural = "s" if isinstance(value, tuple) else ""
    kinds = {"int" if isinstance(v, int) else "float" if isinstance(v, float) else "string" for v in values}
    # a list of nothing may be of any type, and a list of floats may hold whole numbers
    kind = "int" if not kinds else "float" if kinds == {"int", "float"} else kinds.pop() if len(kinds) == 1 else ""
    if not kind:
        raise InternalError("an attribute's values differ in type", stage="program", node=name)
    written = tuple(float(v).hex() if kind == "float" else int(v) if kind == "int" else v for v in values)
    return AttributeRecord(name=name, kind=kind + plural, values=written)  # type: ignore[arg-type]


def _attribute(record: AttributeRecord, section: str) -> Attribute:
    kind = record.kind.removesuffix("s")
    try:
        values: tuple[Any, ...] = tuple(_value(kind, value) for value in record.values)
    except (ValueError, OverflowError):
        values = ()
    plural = record.kind.endswith("s")
    if len(values) != len(record.values) or (not plural and len(values) != 1):
        raise ExecutableError(f"attribute {record.name} is no {record.kind}", section=section, offset=0)
    return values if plural else values[0]


def _value(kind: str, value: int | str) -> int | float | str:
    if kind == "float" and isinstance(value, str):
        return float.fromhex(value)
    if (kind == "int") != isinstance(value, int):
        raise ValueError(kind)
    return value
