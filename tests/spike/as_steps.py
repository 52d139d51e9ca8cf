"""The spike's actions of a group as steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler.program.steps.action import Action, Bound, Call, Columns, Copy, Inner, Numbers, Space, Touch
from compiler.program.steps.tile_columns import columns_of
from tests.spike.actions import Action as SpikeAction
from tests.spike.actions import FlatActions
from tests.spike.statements import with_rings


class SpikeSteps:
    """One group of the spike."""

    def __init__(self, actions: FlatActions) -> None:
        self.actions = actions
        self._spaces: Mapping[int, Space] = {
            number: Space(unit.counts, unit.strides(), unit.lag) for number, unit in actions.units.items()
        }
        self.iterations = len(actions.rounds)
        self.once: Sequence[bool] = [family.before for family in actions.families]
        lowering = actions.lowering
        names = [*lowering.geometry.inputs, *lowering.geometry.made]
        columns = [columns_of(lowering.tiles, names, axis) for axis in actions.axes]
        self._columns = {
            number: [its.part(*cut) for its, *cut in zip(columns, unit.firsts, unit.counts, strict=True)]
            for number, unit in actions.units.items()
        }
        self._known: dict[tuple[int, int], Sequence[Action]] = {}

    def spaces(self, step: int) -> Mapping[int, Space]:
        """The tiles of each core."""
        del step
        return self._spaces

    def columns(self, step: int, unit: int) -> Sequence[Columns]:
        """What tiles differ in along each axis."""
        del step
        return self._columns[unit]

    def inner(self, step: int, unit: int, counters: Numbers) -> Sequence[Inner]:
        """None."""
        del step, unit, counters
        return ()

    def unit_of(self, queue: int) -> int:
        """The core of an engine."""
        number: int = self.actions.lowering.machine.queues[queue].number
        return number

    def at(self, step: int, number: int) -> Sequence[Action]:
        """What a family does in a round."""
        found = self._known.get((step, number))
        if found is None:
            family = self.actions.families[step]
            found = self._known[step, number] = [
                action_of(action, self._local(action, number)) for action in self.actions.at(family, number)
            ]
        return found

    def _local(self, action: SpikeAction, number: int) -> Sequence[int]:
        unit = self.actions.units.get(self.unit_of(action.queue))
        return () if number < 0 or unit is None else unit.local(number - unit.lag)

    def entry(self, table: int, box: Any, rest: Numbers) -> int:
        """The number of an entry: the spike's are those of a whole range."""
        del rest
        return self.actions.context.entry(table, box)


def action_of(action: SpikeAction, local: Sequence[int]) -> Action:
    touches = tuple(
        Touch(place, is_write, low, tuple(c for c, _ in dims), tuple(s for _, s in dims))
        for place, is_write, low, dims in action.touches
    )
    key, numbers = action.key, tuple(with_rings(action.key, action.numbers, local))
    if key[0] == "copy":
        # the addresses at this tile, rings included: those that are touched
        return Action(Copy(key[1], key[2], key[3], key[4], key[5], key[6], key[7]), numbers, touches)
    bound = tuple(Bound(o, p, lengths, strides) for o, p, lengths, strides, _ in key[-1])
    rest = tuple(int(value) for value in np.ravel(np.array(key[6], dtype=np.int64)))
    return Action(Call(key[1], key[2], key[3], key[4], key[5], rest, bound), numbers, touches)
