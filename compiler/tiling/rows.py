"""Figures of candidate tiles, worked out for many stages at once: one row per tile, as arrays (FUSE-S4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np

from compiler.ir.box import Ints
from compiler.profile.schema import Profile
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.ranges import Reals
from compiler.tiling.sizes import SizeTable, Stage
from compiler.tiling.split import Path
from compiler.tiling.tiled import root_of

# So many bytes per tensor and tile are worked with at once.
_AT_ONCE: Final = 1 << 22


class StagePart(NamedTuple):
    """A stage of a configuration, or the path of its split by steps.

    `caps`: what one unit gets of each axis. sliced: its channels are cut in time. `scales`: by tensor, what an
    input-channel split makes of its bytes.
    """

    stage: Stage | Path
    caps: Mapping[str, int]
    sliced: bool
    scales: Reals | None


class RowFigures:
    """What tiles hold in the unit's memory, whatever the depth order; in bytes, one column of `numbers` per tile.

    `leaving`: results that lie over no input. `step_inputs`, `step_outputs`: [step, row]. `last`: one tile covers what
    a unit gets. `whole_map`: its tiles are whole maps. `even`: it fills the array's lanes.
    """

    def __init__(self, numbers: Reals, truths: np.ndarray) -> None:
        """`numbers`: single figures, then inputs and outputs of steps; `truths`: what holds of tiles."""
        self.numbers, self.truths = numbers, truths
        self.inputs, self.fresh_inputs, self.outputs, self.leaving, self.peak, self.waiting, self.images = numbers[:7]
        steps = (len(numbers) - 7) // 2
        self.step_inputs, self.step_outputs = numbers[7 : 7 + steps], numbers[7 + steps :]
        self.whole_map, self.last, self.even = truths


class StageRows(NamedTuple):
    """The rows of one stage, or of a split's path: so many of `figures` from `begin` on."""

    stage: Stage | Path
    figures: RowFigures
    begin: int
    rows: int


def rows_of(table: SizeTable, parts: Sequence[StagePart], *, by_runs: bool) -> list[StageRows]:
    """The rows of all parts; by_runs: in an SRAM over which cores pass run by run."""
    result: list[StageRows | None] = [None] * len(parts)
    for sliced in (False, True):
        numbers = [number for number, part in enumerate(parts) if part.sliced is sliced]
        for some in _portions(numbers, parts, len(table.names)):
            chosen = [parts[number] for number in some]
            counts = [part.stage.count for part in chosen]
            figures = _figures(table, chosen, counts, sliced=sliced, by_runs=by_runs)
            begins = accumulate(counts, initial=0)
            for number, begin, count in zip(some, begins, counts, strict=False):
                result[number] = StageRows(stage=parts[number].stage, figures=figures, begin=begin, rows=count)
    return [rows for rows in result if rows is not None]


def least_bytes(table: SizeTable, profile: Profile) -> float:
    """Bytes that no tile of the table takes less than, weights apart; 0 where parts of sums would take less."""
    geometry = table.geometry
    if geometry.product is not None:
        return 0.0
    volumes = table.constant.copy()
    for axis in table.grids:
        volumes *= table.largest[axis].min(axis=1)
    live = float(geometry.peak(volumes[:, None], by_runs=not profile.units.are_cores)[0])
    if profile.units.are_cores:
        return live
    # depth-first only what the group reads and makes lies in the SRAM
    inputs, outputs = volumes[: len(geometry.inputs)].sum(), volumes[_places(geometry).outputs].sum()
    return min(live, float(max(inputs, outputs) if geometry.is_in_place else inputs + outputs))


def gathered(parts: Sequence[StageRows]) -> RowFigures:
    """The rows of parts side by side."""
    pools = list(dict.fromkeys([part.figures for part in parts]))
    sizes = [len(pool.inputs) for pool in pools]
    before = dict(zip(pools, accumulate(sizes, initial=0), strict=False))
    counts = np.array([part.rows for part in parts])
    begins = np.array([before[part.figures] + part.begin for part in parts])
    ends = np.cumsum(counts)
    rows = np.repeat(begins - ends + counts, counts) + np.arange(ends[-1])
    if len(pools) == 1:
        return RowFigures(pools[0].numbers[:, rows], pools[0].truths[:, rows])
    numbers, truths = (np.concatenate([*of], axis=1) for of in ((p.numbers for p in pools), (p.truths for p in pools)))
    return RowFigures(numbers[:, rows], truths[:, rows])


def _portions(numbers: list[int], parts: Sequence[StagePart], tensors: int) -> Iterator[list[int]]:
    """The parts in portions of so many tiles that their bytes by tensor do not take much memory."""
    portion: list[int] = []
    rows = 0
    for number in numbers:
        if portion and (rows + parts[number].stage.count) * tensors > _AT_ONCE:
            yield portion
            portion, rows = [], 0
        portion.append(number)
        rows += parts[number].stage.count
    if portion:
        yield portion


def _figures(table: SizeTable, parts: list[StagePart], counts: list[int], *, sliced: bool, by_runs: bool) -> RowFigures:
    geometry = table.geometry
    rows = sum(counts)
    # by row its part
    of_part = np.repeat(np.arange(len(parts)), counts)
    at = _positions(table, parts, counts, of_part)
    volumes, waiting = table.volumes(at, rows), table.waiting(at, rows)
    if any(part.scales is not None for part in parts):
        scales = [np.ones((len(table.names), 1)) if part.scales is None else part.scales for part in parts]
        by_row = np.concatenate(scales, axis=1)[:, of_part]
        volumes, waiting = volumes * by_row, waiting * by_row
    whole = np.ones(rows, dtype=np.bool_)
    tiles = np.ones(rows, dtype=np.int64)
    for axis in table.axes:
        caps = np.array([part.caps[axis] for part in parts])[of_part]
        sizes = table.grids[axis].sizes[at[axis]]
        tiles *= -(-caps // sizes)
        if axis != "N":
            whole &= sizes >= caps
    ends = len(geometry.inputs)
    fresh, waits = volumes[:ends].sum(axis=0), waiting[:ends].sum(axis=0)
    steps = len(geometry.ops)
    numbers = np.empty((7 + 2 * steps, rows))
    numbers[0], numbers[1] = fresh + waits, fresh
    outputs, leaving, made, (read, begins, readers) = _places(geometry)
    numbers[2], numbers[3] = volumes[outputs].sum(axis=0), volumes[leaving].sum(axis=0)
    numbers[4], numbers[5] = geometry.peak(volumes, sliced=sliced, by_runs=by_runs), waiting.sum(axis=0)
    numbers[6] = table.grids["N"].sizes[at["N"]] if "N" in at else 1
    numbers[7 : 7 + steps] = 0
    if len(readers):
        numbers[7 + readers] = np.add.reduceat(volumes[read], begins, axis=0)
    numbers[7 + steps :] = volumes[made]
    # a unit whose only tile this is has nothing to stage behind it
    return RowFigures(numbers, np.array((whole, tiles == 1, np.concatenate([part.stage.even for part in parts]))))


def _positions(table: SizeTable, parts: list[StagePart], counts: list[int], of_part: Ints) -> dict[str, Ints]:
    """By axis the candidate of each row; `of_part`: by row its part."""
    ends = np.cumsum(counts)
    number = np.arange(len(of_part)) - (ends - counts)[of_part]
    of_stages = [part.stage if isinstance(part.stage, Stage) else None for part in parts]
    paths = [(part.stage, end) for part, end in zip(parts, ends.tolist(), strict=True) if isinstance(part.stage, Path)]
    result = {}
    for axis in table.grids:
        # the axis whose size varies from row to row, as a step of one
        fixed = [0 if stage is None or stage.axis == axis else stage.at[axis] for stage in of_stages]
        step = [stage is not None and stage.axis == axis for stage in of_stages]
        places = np.array(fixed)[of_part] + number * np.array(step)[of_part]
        for path, end in paths:
            places[end - path.count : end] = path.at[axis]
        result[axis] = places
    return result


class _Places(NamedTuple):
    """Row numbers of tensors in `lifetimes`.

    outputs: of the group. leaving: in whose space these lie, where that is no input. made: of each op's result. reads:
    of all operands that are computed, op by op; where each op's begin among these; and which ops have any.
    """

    outputs: Ints
    leaving: Ints
    made: Ints
    reads: tuple[Ints, Ints, Ints]


def _places(geometry: GroupGeometry) -> _Places:
    """The places of a group's tensors, known once they have been asked for."""
    found: _Places | None = geometry.worked_out.get(("places",))
    if found is None:
        column = {name: index for index, name in enumerate(geometry.lifetimes[0])}
        outputs = geometry.outputs or (geometry.primary,)
        roots = [root_of(name, geometry.takes_over) for name in outputs]
        # readers ascend, so each step's operands stand side by side
        steps = [step for step, op in enumerate(geometry.ops) for operand in op.operands if not operand.constant]
        read = [operand.tensor for op in geometry.ops for operand in op.operands if not operand.constant]
        begins = [at for at, step in enumerate(steps) if at == 0 or step != steps[at - 1]]

        def places(names: Iterable[str]) -> Ints:
            return np.array([column[name] for name in names], dtype=np.int64)

        found = geometry.worked_out["places",] = _Places(
            outputs=places(outputs),
            leaving=places(name for name in roots if name not in geometry.inputs),
            made=places(op.output for op in geometry.ops),
            reads=(places(read), np.array(begins), np.array([steps[at] for at in begins], dtype=np.int64)),
        )
    return found
