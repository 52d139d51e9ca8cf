"""How a group's inputs come into its units' memories: from DRAM, or from units that earlier groups left them in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from compiler.program.emitter import Box, Held, overlap
from compiler.program.located import Located
from compiler.program.peers import by_box, deliver_each, others_of, send
from compiler.program.program import Opcode


def bring(located: Located, name: str, wanted: Iterable[tuple[int, Held | None]], turn: int) -> None:
    """An input, or parts of it, for units: from DRAM, or from the units that earlier groups left it in.

    What several units need at once is read once where they are connected. `turn`: whose it is to load the first.
    """
    emitter, element = located.emitter, located.element(name)
    if name not in located.group.taken:
        deliver_each(emitter, located.context.region(name), wanted, element, turn)
        return
    for box, targets in by_box(wanted).items():
        _take(located, located.held_parts[name], box, targets, element)


def _take(
    located: Located, parts: Sequence[tuple[int, Held]], box: Box, targets: Mapping[int, Held], size: int
) -> None:
    """A box for some units from those that hold parts of it; `size`: bytes of an element."""
    emitter, machine = located.emitter, located.machine
    for owner, held in parts:
        part = overlap(held.box, box)
        if part is None:
            continue
        units = sorted(targets)
        runs: Sequence[Sequence[int]] = [units]
        if owner in targets:
            runs = others_of(machine, units, units.index(owner))
            if runs != [units]:
                emitter.copy(Opcode.MOVE, located.local_queue(owner), held, targets[owner], part, size)
        wanted = [(targets[unit], part) for its in runs for unit in its]
        send(emitter, held, wanted, located.peer_queue(owner), size)
