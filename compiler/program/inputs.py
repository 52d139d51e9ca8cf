"""How a group's inputs come into its units' memories: from DRAM, or from units that earlier groups left them in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from compiler.program.emitter import Box, Held, overlap
from compiler.program.located import Located
from compiler.program.peers import by_box, deliver_each, others_of, send
from compiler.program.program import Opcode

_Item = TypeVar("_Item")


def bring(located: Located, name: str, wanted: Iterable[tuple[int, Held | None]], turn: int) -> None:
    """An input, or parts of it, for units: from DRAM, or from the units that earlier groups left it in.

    What several units need at once is read once where they are connected. `turn`: whose it is to load the first.
    """
    emitter, element = located.emitter, located.element(name)
    if name not in located.group.taken:
        deliver_each(emitter, located.context.region(name), wanted, element, turn)
        return
    boxes = list(by_box(wanted).items())
    for number, (owner, held) in enumerate(located.held_parts[name]):
        for box, targets in receivers_in_turn(located, number, boxes):
            _take(located, owner, held, box, targets, element)


def receivers_in_turn(located: Located, sender: int, receivers: Sequence[_Item]) -> Sequence[_Item]:
    """The receivers of a sender's parts in the order in which it serves them; `sender`: its number among all senders.

    Where a receiver takes less at once than all senders give, each begins with its own number, even ones go up from
    there and odd ones down, round and round: at each turn all serve different ones, over both directions of links.
    Elsewhere all serve the first one first: it goes to work while the next ones wait.
    """
    if not located.receivers_are_slower or not receivers:
        return receivers
    count, way = len(receivers), -1 if sender % 2 else 1
    return [receivers[(sender + way * turn) % count] for turn in range(count)]


def _take(located: Located, owner: int, held: Held, box: Box, targets: Mapping[int, Held], size: int) -> None:
    """The part of a box that a unit holds, for some units; `size`: bytes of an element."""
    part = overlap(held.box, box)
    if part is None:
        return
    units = sorted(targets)
    its = [targets[unit] for unit in units]
    runs: Sequence[Sequence[Held]] = [its]
    if owner in targets:
        runs = others_of(located.machine, its, units.index(owner), part)
        if targets[owner] not in [target for run in runs for target in run]:
            located.emitter.copy(Opcode.MOVE, located.local_queue(owner), held, targets[owner], part, size)
    send(located.emitter, held, [(target, part) for run in runs for target in run], located.peer_queue(owner), size)
