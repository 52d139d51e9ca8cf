"""Which ops are run together as routines, and which tiles their units may have (SHAPE-1, SHAPE-8).

Groups are fixed at the largest extents. An op takes in the ops that make its operands, where nobody else reads these,
a core holds what lies between, and the calls of both together take less time than those of each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from compiler.errors import InternalError, LimitError
from compiler.ops.op_facts import GraphFacts
from compiler.profile.schema import Profile
from compiler.shapes.buffers import shortage, unit_buffers
from compiler.shapes.modelled import CallModel, table_cycles
from compiler.shapes.routine import Routine, RoutineGeometry, axis_choices, canonical_order
from compiler.shapes.unit_library import UnitBuffers

# A routine has at most so many ops: prices of longer ones take longer than they gain.
_MAX_OPS: Final = 24
_ROUNDS: Final = 3
# Tiles that a library is chosen from, at most.
MAX_CANDIDATES: Final = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class _Best:
    """The axes that tables divide, the tile with which all calls take least time, and that time."""

    tiled: tuple[int, ...]
    tile: tuple[int, ...]
    cycles: float


class RoutineChooser:
    """Routines for ops of one graph on one profile; what was priced once is remembered by the ops' signatures."""

    def __init__(
        self,
        facts: GraphFacts,
        profile: Profile,
        others: Sequence[GraphFacts] = (),
        in_place: frozenset[str] = frozenset(),
    ) -> None:
        """`profile`: what stationary weights leave of it. `others` are the facts of the graph at other extents than the
        largest, `in_place` weights that lie whole in every core.
        """
        self._facts = facts
        self._others = others
        self._profile = profile
        self._in_place = in_place
        self._geometries: dict[tuple[int, ...], tuple[RoutineGeometry, ...]] = {}
        self._known: dict[object, _Best | None] = {}

    def routines(self, ops: Iterable[int]) -> tuple[Routine, ...]:
        """The routines that run the ops, in order; raises LimitError naming an op of which no tile fits a core."""
        member: dict[int, tuple[int, ...]] = {}
        for op in sorted(ops):
            own: tuple[int, ...] = (op,)
            refused = self.refusal(op)
            if refused is not None:
                raise refused
            for producer in self._producers(op, member):
                together = canonical_order(self._facts.graph, {*own, *member[producer]})
                found = self._best(together) if len(together) <= _MAX_OPS else None
                mine, its = self._best(own), self._best(member[producer])
                if found is None or mine is None or its is None:
                    continue
                if found.cycles <= mine.cycles + its.cycles:
                    own = together
            for each in own:
                member[each] = own
        chosen = sorted(set(member.values()), key=lambda together: together[-1])
        return tuple(Routine(ops=together, tiled=self._known_best(together).tiled) for together in chosen)

    def whole(self, ops: tuple[int, ...]) -> Routine | None:
        """The routine that runs all of some ops together; None where no tile of it fits a core."""
        best = self._best(ops)
        return None if best is None else Routine(ops=ops, tiled=best.tiled)

    def tiles(self, routine: Routine) -> tuple[tuple[int, ...], ...]:
        """Tiles of the result for which buffers fit a core, the one that all calls take least time with among them."""
        geometry = RoutineGeometry(self._facts, routine.ops)
        best = self.best_tile(routine)
        count = max(2, round(MAX_CANDIDATES ** (1 / max(1, len(routine.tiled)))))
        options: list[tuple[int, ...]] = []
        for axis, extent in enumerate(geometry.shape):
            if axis not in routine.tiled:
                options.append((extent,))
                continue
            lengths = _lengths(extent)
            near = sorted(lengths, key=lambda length: abs(length - best[axis]))[:count]
            options.append(tuple(sorted({*near, best[axis], 1})))
        found = [tile for tile in product(*options) if self.buffers(routine.ops, geometry, tile) is not None]
        return tuple(found)

    def elsewhere(self, ops: Sequence[int]) -> tuple[RoutineGeometry, ...]:
        """The ops at other extents, where some need other positions for a position of their result than at the largest.

        What depends on lengths alone is clipped; a reshape of two axes that vary into one is not the same everywhere,
        and what is left beside a dimension (40 - rows) is longer where that one is shorter.
        """
        return tuple(
            RoutineGeometry(other, ops)
            for other in self._others
            if any(other.ops[op].operands != self._facts.ops[op].operands or self._is_longer(other, op) for op in ops)
        )

    def _is_longer(self, other: GraphFacts, op: int) -> bool:
        """Whether anything that an op reads or makes is longer at other extents than at the largest."""
        mine = self._facts.ops[op]
        return any(
            there > most
            for name in (*(operand.tensor for operand in mine.operands), mine.output)
            if name in other.tensors
            for there, most in zip(other.tensors[name].shape, self._facts.tensors[name].shape, strict=True)
        )

    def buffers(self, ops: Sequence[int], geometry: RoutineGeometry, tile: Sequence[int]) -> UnitBuffers | None:
        """Buffers of a unit of these ops at any extents; None where they do not fit a core."""
        others = self._elsewhere_of(tuple(ops))
        return unit_buffers(geometry, tile, self._profile, others, self._in_place)

    def _elsewhere_of(self, ops: tuple[int, ...]) -> tuple[RoutineGeometry, ...]:
        if ops not in self._geometries:
            self._geometries[ops] = self.elsewhere(ops)
        return self._geometries[ops]

    def model(self, geometry: RoutineGeometry) -> CallModel:
        """What calls of a routine take."""
        return CallModel(geometry, self._profile, self._in_place)

    def best_tile(self, routine: Routine) -> tuple[int, ...]:
        """The tile with which all calls take least time."""
        return self._known_best(routine.ops).tile

    def cycles(self, routine: Routine) -> float:
        """The cycles that all calls of that tile take."""
        return self._known_best(routine.ops).cycles

    def _known_best(self, ops: tuple[int, ...]) -> _Best:
        best = self._best(ops)
        if best is None:
            raise InternalError("a routine was chosen that fits no core", stage="shapes", actual=ops)
        return best

    def refusal(self, op: int) -> LimitError | None:
        """Why an op has no unit: what not even one position of its result with all that it needs fits; None if it has.

        The error names the op, the bytes needed and available, and the field of the profile.
        """
        geometry = RoutineGeometry(self._facts, (op,))
        others = self._elsewhere_of((op,))
        lacking = [
            shortage(geometry, least_tile(geometry, tiled), self._profile, others, self._in_place)
            for tiled in axis_choices(geometry)
        ]
        if None in lacking or lacking[-1] is None:
            return None
        field, needed, available = lacking[-1]
        node = self._facts.graph.ops[op]
        beside = " beside the stationary weights that lie there" if self._profile.is_stationary else ""
        return LimitError(
            f"no shape unit of an op fits a core{beside}: not even one position of its result with all that it needs",
            code="no_tile_fits",
            stage="shapes",
            node=node.node,
            op_type=node.kind,
            actual=f"{needed} bytes",
            limit=f"{available} bytes",
            hint=f"Lower the maxima of the dynamic dimensions, or raise {field} in the profile",
        )

    def _producers(self, op: int, member: dict[int, tuple[int, ...]]) -> list[int]:
        """Ops that make operands of an op, nobody else's, the ones with the most bytes first."""
        graph, facts = self._facts.graph, self._facts
        found = []
        for name in dict.fromkeys(graph.ops[op].inputs):
            producer = graph.producer.get(name) if name else None
            if producer in member and graph.consumers[name] == (op,) and name not in graph.outputs:
                found.append((-facts.tensor_bytes(name), producer))
        # of equal ones the first operand's: the order of ops in a file decides nothing
        return [producer for _, producer in sorted(found, key=lambda one: one[0])]

    def _best(self, ops: tuple[int, ...]) -> _Best | None:
        """Least cycles and the tile that takes them; None where no tile fits a core."""
        key = self._key(ops)
        if key not in self._known:
            self._known[key] = self._search(ops)
        return self._known[key]

    def _key(self, ops: tuple[int, ...]) -> object:
        """Ops of equal signature, wired alike."""
        names: dict[str, int] = {}
        wiring = []
        for op in ops:
            facts = self._facts.ops[op]
            wiring.append(
                tuple((names.setdefault(o.tensor, len(names)), o.tensor in self._in_place) for o in facts.operands)
            )
            names.setdefault(facts.output, len(names))
        return tuple((self._facts.numbers[op], *(o.numbers[op] for o in self._others)) for op in ops), tuple(wiring)

    def _finds_rows_itself(self, ops: tuple[int, ...]) -> bool:
        """Whether an op at some extents reads rows of a table in DRAM through what another op of the routine makes.

        What a routine makes on its way is in no DRAM. A table no larger than the result is brought whole; at smaller
        extents the same table may be the larger one, whose rows come one by one.
        """
        made = {self._facts.ops[op].output for op in ops}
        return any(
            any(":gathered" in operand.tensor for operand in operands)
            and any(operand.tensor in made for operand in operands)
            for facts in (self._facts, *self._others)
            for operands in (facts.ops[op].operands for op in ops)
        )

    def _search(self, ops: tuple[int, ...]) -> _Best | None:
        """Axis by axis the length that takes least, from the smallest tile on, until none is better."""
        geometry = RoutineGeometry(self._facts, ops)
        gathers = {op.output for op in geometry.ops if any(":gathered" in o.tensor for o in op.operands)}
        if (gathers and ops != (ops[0],)) or self._finds_rows_itself(ops):
            return None
        least = ((tiled, least_tile(geometry, tiled)) for tiled in axis_choices(geometry))
        fitting = next((one for one in least if self.buffers(ops, geometry, one[1]) is not None), None)
        if fitting is None:
            return None
        model, (tiled, tile) = self.model(geometry), fitting
        best = table_cycles(model, tiled, tile)
        for _ in range(_ROUNDS):
            before = best
            for axis in sorted(tiled, key=lambda axis: -geometry.shape[axis]):
                for length in _lengths(geometry.shape[axis]):
                    other = (*tile[:axis], length, *tile[axis + 1 :])
                    if other == tile or self.buffers(ops, geometry, other) is None:
                        continue
                    cycles = table_cycles(model, tiled, other)
                    if cycles < best:
                        best, tile = cycles, other
            if best == before:
                break
        return _Best(cycles=best, tile=tile, tiled=tiled)


def least_tile(geometry: RoutineGeometry, tiled: Collection[int]) -> tuple[int, ...]:
    """The smallest tile of a result: one position along the axes that tables divide."""
    return tuple(1 if axis in tiled else extent for axis, extent in enumerate(geometry.shape))


def _lengths(extent: int) -> Sequence[int]:
    """Lengths that tiles are tried with: powers of two, one and a half times these, and the whole."""
    found = {extent}
    power = 1
    while power < extent:
        found.add(power)
        if power >= 8 and power * 3 // 2 < extent:
            found.add(power * 3 // 2)
        power *= 2
    return sorted(found)
