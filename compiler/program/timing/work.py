"""What a call of a unit takes of its core: cycles of array and lanes, bytes of the core's memories (SIM-2).

The same function prices an op inside a core for the planner (`cost/array.py`); here it is asked about one call's box.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, prod

from compiler.cost.array import CoreUse, ElementSizes, core_use, work_on_box
from compiler.cost.levels import NO_BYTES, LevelBytes
from compiler.cost.rates import waiting_sum_bytes
from compiler.ops import ALL_KINDS
from compiler.ops.base import Call
from compiler.ops.contraction import Product
from compiler.ops.op_facts import OpFacts, call_facts
from compiler.profile.schema import Profile
from compiler.program.calls import call_of_unit
from compiler.program.program import ParameterTable, Program, Unit
from compiler.units import element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWork:
    """One call: what its core does; `has_weights`: its second factor is a constant, read from the weight memory.

    sums: bytes of partial sums through the activation memory beyond `use`: those that the call adds to, and what it
    leaves of larger elements than results have. macs, vector_ops: products, and operations of the vector unit beside
    them; `dtype` is what the products are of.
    """

    use: CoreUse
    has_weights: bool
    sums: LevelBytes
    macs: float
    vector_ops: float
    dtype: str


# Of an entry the lengths of its box, how much of the summed axis it has, and whether it begins and ends sums.
_Row = tuple[tuple[int, ...], int, bool, bool]


class CallWorks:
    """The work of the calls of one program under one profile; calls of equal boxes are worked out once.

    `works`: the different ones, by number.
    """

    def __init__(self, program: Program, profile: Profile) -> None:
        self._program = program
        self._profile = profile
        self._tables: dict[int, _TableWork] = {}
        self._rows: dict[int, list[_Row]] = {}
        self._numbers: dict[tuple[int, _Row], int] = {}
        self.works: list[CallWork] = []

    def number_of(self, table: int, entry: int) -> int:
        """The number of the work of one entry of a parameter table."""
        rows = self._rows.get(table)
        if rows is None:
            rows = self._rows[table] = _rows_of(self._program.tables[table])
        lengths, depth, is_first, is_last = row = rows[entry]
        key = table, row
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.works)
            self.works.append(self._table(table).of(lengths, depth, is_first=is_first, is_last=is_last))
        return found

    def _table(self, number: int) -> _TableWork:
        found = self._tables.get(number)
        if found is None:
            table = self._program.tables[number]
            unit = self._program.units[table.unit]
            found = self._tables[number] = _TableWork.build(unit, table, self._profile)
        return found


def _rows_of(table: ParameterTable) -> list[_Row]:
    """The entries of a table; all at once, since to read rows one by one takes many times as long."""
    entries = table.entries
    lengths = map(tuple, entries["lengths"][:, : len(table.shape)].tolist())
    depths = (entries["sum_stop"] - entries["sum_start"]).tolist()
    is_first, is_last = (entries[name].astype(bool).tolist() for name in ("begins", "ends"))
    return list(zip(lengths, depths, is_first, is_last, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TableWork:
    """What all entries of a parameter table have in common."""

    unit: Unit
    call: Call
    facts: OpFacts
    sizes: ElementSizes
    summed: int
    profile: Profile

    @classmethod
    def build(cls, unit: Unit, table: ParameterTable, profile: Profile) -> _TableWork:
        kind, call = ALL_KINDS[unit.kind], call_of_unit(unit, table, unit.kind)
        constants = tuple(operand is not None and operand.constant for operand in unit.operands)
        facts = call_facts(kind, call, constants)
        return cls(
            unit=unit,
            call=call,
            facts=facts,
            sizes=_sizes(unit, facts),
            summed=kind.summed_extent(call) if isinstance(kind, Product) else 0,
            profile=profile,
        )

    def of(self, lengths: tuple[int, ...], depth: int, *, is_first: bool, is_last: bool) -> CallWork:
        """The work on a box; `depth`: how much of the summed axis, 0 for all of it; whether sums begin and end here."""
        facts, share = self.facts, Fraction(1)
        if depth and self.summed:
            share = Fraction(depth, self.summed)
        if facts.matrix is not None and share != 1:
            parts = ceil(facts.matrix.in_channels * share)
            facts = replace(facts, matrix=replace(facts.matrix, in_channels=parts), macs=facts.macs * share)
        if facts.matrix is not None:
            # what is added and applied once waits for the last part of the sum
            beside = (facts.vector_ops - facts.summing if is_last else 0) + (0 if is_first else facts.joining)
            facts = replace(facts, vector_ops=facts.summing * share + beside)
        work = work_on_box(facts, self.unit.output.axes, lengths, self.profile)
        use = core_use(facts, work, self.sizes, self.profile)
        elements = prod(lengths)
        return CallWork(
            use=use,
            has_weights=any(operand.constant for operand in facts.operands),
            sums=NO_BYTES if is_first and is_last else self._sums(elements, is_first=is_first, is_last=is_last),
            macs=float(elements * facts.macs),
            vector_ops=float(elements * facts.vector_ops),
            dtype=facts.dtype,
        )

    def _sums(self, elements: int, *, is_first: bool, is_last: bool) -> LevelBytes:
        size = waiting_sum_bytes(self.facts, self.profile)
        return LevelBytes(
            read=0 if is_first else elements * size,
            written=0 if is_last else elements * (size - self.sizes.output),
        )


def _sizes(unit: Unit, facts: OpFacts) -> ElementSizes:
    """Bytes per element, as the planner counts them (`element_sizes` of the tilings)."""
    stored = {f"operand {i}": element_bytes(o.stored_dtype) for i, o in enumerate(unit.operands) if o is not None}
    own = element_bytes(unit.output.stored_dtype)
    operands = [o for o in facts.operands if not o.constant]
    factors = [o for o in facts.operands if o.constant] or operands[-1:]
    return ElementSizes(
        input=stored.get(operands[0].tensor, own) if operands else own,
        weight=stored.get(factors[0].tensor, own) if factors else own,
        output=own,
        operands=max(1, len(operands)),
    )
