"""What passes from memory to memory on a chip: which engine sends, and one command for neighbours (PROG-1)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod

from compiler.cost.rates import dram_startup_cycles
from compiler.ops.slab import lengths
from compiler.profile.schema import Engine, Link, Profile
from compiler.program.emitter import Box, Emitter, Held, Machine, overlap
from compiler.program.known import Known
from compiler.program.program import Opcode
from compiler.program.slots import Slot

# By weight the cores that hold parts of it before the program runs, and where.
Owners = Sequence[tuple[int, Held]]


def between_cores(machine: Machine, sender: int, receiver: int) -> int | None:
    """The queue that moves bytes from one core to another: its link, its engine in a cluster, or the cluster's."""
    if machine.has("link"):
        return machine.queue_of["link", sender]
    per = machine.profile.cores_per_cluster
    if not machine.profile.units.are_cores and sender // per == receiver // per and machine.has("mvdma"):
        return machine.queue_of["mvdma", sender]
    return machine.queue_of["cdma", sender // per] if machine.has("cdma") else None


def send(
    emitter: Emitter,
    source: Held,
    targets: Sequence[tuple[Held, Box]],
    queue: int,
    element_bytes: int,
    *,
    is_ahead: bool = False,
) -> None:
    """From one memory to others: neighbours that need the same box at the same address get it at once."""
    send_to_runs(emitter, source, [([held], box) for held, box in targets], queue, element_bytes, is_ahead=is_ahead)


def send_to_runs(
    emitter: Emitter,
    source: Held,
    targets: Sequence[tuple[Sequence[Held], Box]],
    queue: int,
    element_bytes: int,
    *,
    is_ahead: bool = False,
) -> None:
    """The same; each target is a run of neighbours in which the box lies at the same address."""
    number = 0
    while number < len(targets):
        run, box = targets[number]
        first, also = run[0], [held.slot for held in run[1:]]
        while number + 1 < len(targets):
            others, other = targets[number + 1]
            held = others[0]
            if held.slot.place != first.slot.place + len(also) + 1 or other != box or not is_alike(held, first, box):
                break
            also += [held.slot for held in others]
            number += 1
        opcode = Opcode.BROADCAST if also else Opcode.EXCHANGE
        emitter.copy(opcode, queue, source, first, box, element_bytes, also, is_ahead=is_ahead)
        number += 1


def is_alike(held: Held, other: Held, box: Box) -> bool:
    """True if a box lies in both at the same address with the same strides; mostly all of them does."""
    return held[1:4] == other[1:4] or (held.strides == other.strides and held.at(box) == other.at(box))


def others_of(machine: Machine, targets: Sequence[Held], own: int, box: Box) -> Sequence[Sequence[Held]]:
    """Those before and those behind a memory among targets, to which it sends a box: by a command each at least.

    Over links neighbours on both sides get it by one command, the memory itself among them: two would cross the same
    links, one after the other.
    """
    before, behind = targets[:own], targets[own + 1 :]
    if before and behind and machine.has("link"):
        near, mine, far = targets[own - 1 : own + 2]
        in_row = near.slot.place + 1 == mine.slot.place == far.slot.place - 1
        if in_row and is_alike(mine, near, box) and is_alike(far, near, box):
            return [targets]
    return [its for its in (before, behind) if its]


def send_own(
    emitter: Emitter,
    source: Held,
    own: Slot,
    targets: Sequence[tuple[Held, Box]],
    queue: int,
    element_bytes: int,
    *,
    is_ahead: bool = False,
) -> None:
    """Send what a memory has by itself (`own`): nothing waits there for what others send to it meanwhile."""
    send(emitter, Held(own, *source[1:]), targets, queue, element_bytes, is_ahead=is_ahead)
    source.slot.mark(own.touched)


def deliver(
    emitter: Emitter, region: Held, targets: list[Held], units: list[int], box: Box, element_bytes: int, turn: int
) -> None:
    """Load a box for several units: by multicast; or each a part of it, which the others get from there.

    `turn`: whose it is to load the first part.
    """
    machine = emitter.machine
    in_sram = not machine.profile.units.are_cores
    engine = "gdma" if in_sram and machine.has("gdma") else "iodma"
    between = "cdma" if in_sram else "link"
    first, *rest = targets
    queues = [machine.queue_of[engine, unit] for unit in units]
    in_row = all(b.slot.place - a.slot.place == 1 and is_alike(a, b, box) for a, b in pairwise(targets))
    if rest and machine.profile.dram.multicast and in_row:
        also = [held.slot for held in rest]
        parts = shares(machine.profile, first.strides, box, len(targets), element_bytes, rate_of(machine, queues[0]))
        for number, part in enumerate(parts, turn):
            emitter.copy(Opcode.LOAD, queues[number % len(queues)], region, first, part, element_bytes, also)
    elif rest and machine.has(between):
        sending = [machine.queue_of[between, unit] for unit in units]
        share_out(emitter, region, targets, queues, sending, box, element_bytes, turn)
    else:
        for held, queue in zip(targets, queues, strict=True):
            emitter.copy(Opcode.LOAD, queue, region, held, box, element_bytes)


def deliver_each(
    emitter: Emitter, region: Held, wanted: Iterable[tuple[int, Held | None]], element_bytes: int, turn: int
) -> None:
    """Load boxes for units; what several want is loaded for them together. `turn`: whose it is to load the first."""
    for number, (box, targets) in enumerate(by_box(wanted).items(), turn):
        deliver(emitter, region, list(targets.values()), list(targets), box, element_bytes, number)


def by_box(wanted: Iterable[tuple[int, Held | None]]) -> dict[Box, dict[int, Held]]:
    """By box the units that want it, and where each of them has it lie."""
    boxes: dict[Box, dict[int, Held]] = {}
    for unit, held in wanted:
        if held is not None:
            boxes.setdefault(held.box, {})[unit] = held
    return boxes


def copy_common(
    emitter: Emitter,
    opcode: Opcode,
    queue: int,
    sources: Iterable[Held],
    targets: Sequence[Held],
    element_bytes: int,
) -> None:
    """Copy what boxes of sources and of targets have in common, but for what lies in one slot."""
    for source in sources:
        for target in targets:
            part = overlap(source.box, target.box)
            if part is not None and source.slot is not target.slot:
                emitter.copy(opcode, queue, source, target, part, element_bytes)


def share_out(
    emitter: Emitter,
    region: Held,
    targets: Sequence[Held],
    loading: Sequence[int],
    sending: Sequence[int],
    box: Box,
    element_bytes: int,
    first: int,
) -> int:
    """Each of some memories loads a part of a box by its own engine and sends it to the others, all at one time.

    `loading`, `sending`: the queues that belong to each of `targets`. `first`: whose turn it is, counted over all that
    is shared out; how many parts there are is what to add to it.
    """
    machine = emitter.machine
    rate = min(rate_of(machine, loading[0]), rate_of(machine, sending[0]))
    parts = shares(machine.profile, targets[0].strides, box, len(targets), element_bytes, rate)
    loaded: list[tuple[int, Box, Slot]] = []
    for number, part in enumerate(parts, first):
        at = number % len(targets)
        target = targets[at]
        emitter.copy(Opcode.LOAD, loading[at], region, target, part, element_bytes)
        # who sends a part waits for this part alone, not for what others send here
        loaded.append((at, part, target.slot.written_by((loading[at],))))
    for at, part, slot in loaded:
        others = [(held, part) for its in others_of(machine, targets, at, part) for held in its]
        send_own(emitter, targets[at], slot, others, sending[at], element_bytes, is_ahead=True)
    return len(parts)


def rate_of(machine: Machine, queue: int) -> float:
    """Bytes per cycle of an engine."""
    found: Engine | Link = getattr(machine.profile.engines, machine.queues[queue].engine)
    return found.bytes_per_cycle


def shares(
    profile: Profile, strides: Sequence[int], box: Box, count: int, element_bytes: int, bytes_per_cycle: float
) -> list[Box]:
    """A box in at most `count` parts of about equal size, on average no shorter than a start-up or a line of memory.

    It is cut along the outermost axis in memory that has so many positions, the innermost apart; if none has, along
    the outermost, into as many parts as that allows.
    """
    least = max(dram_startup_cycles(profile) * bytes_per_cycle, profile.line_bytes)
    sides = lengths(box)
    count = min(count, int(prod(sides) * element_bytes // least))
    axes = sorted((axis for axis, side in enumerate(sides) if side > 1), key=lambda axis: -strides[axis])
    if count < 2 or not axes:
        return [box]
    axis = next((axis for axis in axes[:-1] if sides[axis] >= count), axes[0])
    count, (start, stop) = min(count, sides[axis]), box[axis]
    cuts = [start + (stop - start) * number // count for number in range(count + 1)]
    return [(*box[:axis], found, *box[axis + 1 :]) for found in pairwise(cuts)]


def to_cores(
    emitter: Emitter, cluster: int, source: Held, targets: Mapping[int, Held], box: Box, element_bytes: int
) -> None:
    """From a cluster's SRAM to cores: by the bus to neighbours at once, else to each by its own engine.

    `targets`: by core of the chip where the box shall lie; of several neighbours at the same address.
    """
    machine = emitter.machine
    cores = list(targets)
    if len(cores) > 1 and machine.has("bus") and cores == list(range(cores[0], cores[0] + len(cores))):
        first, *rest = targets.values()
        also = [held.slot for held in rest]
        queue = machine.queue_of["bus", cluster]
        emitter.copy(Opcode.BROADCAST, queue, source, first, box, element_bytes, also)
        return
    for core, target in targets.items():
        emitter.copy(Opcode.MOVE, machine.queue_of["mvdma", core], source, target, box, element_bytes)


def are_connected(machine: Machine, owners: Owners, box: Box, receivers: Collection[int]) -> bool:
    """True if there is a way from every core that holds a part of a box to every one that needs it."""
    if machine.has("link"):
        return True
    senders = [owner for owner, held in owners if overlap(held.box, box) is not None]
    return all(
        owner == receiver or between_cores(machine, owner, receiver) is not None
        for owner in senders
        for receiver in receivers
    )


def from_peers(
    emitter: Emitter,
    owners: Owners,
    box: Box,
    targets: Mapping[int, Held],
    element_bytes: int,
    idle: Collection[int] = (),
) -> None:
    """Stationary weights: what has all of a box takes its own, the others get each part from the core that has it.

    A part goes over the links to all cores that need it at once, where it is to lie at one address in all of them.
    Of cores that are `idle` in the group those between receivers get it, too: one command to a rectangle of a mesh
    crosses each link once, where one a row crosses them once for every row. There, too, what lies apart from buffers of
    groups are stationary weights and parts held for other groups, and what other groups do waits by address.
    """
    machine = emitter.machine
    receivers: dict[int, Held] = {}
    parts = [(owner, held, part) for owner, held in owners if (part := overlap(held.box, box)) is not None]
    # of several parts of a core that are all of it the first one
    wholes = {owner: held for owner, held, part in reversed(parts) if part == box}
    for mine, target in targets.items():
        own = wholes.get(mine)
        if own is None:
            receivers[mine] = target
        else:
            emitter.copy(Opcode.MOVE, machine.queue_of["core", mine], own, target, box, element_bytes)
    if machine.has("link"):
        receivers |= _between(receivers, idle)
    in_order = sorted(receivers)
    rows = Known[tuple[int, ...], list[list[Held]]](lambda cores: _rows_of([receivers[core] for core in cores]))
    for owner, held, part in parts if receivers else ():
        for queue, cores in _ways(machine, owner, in_order).items():
            its = rows[tuple(cores)]
            if owner in cores and owner - 1 not in cores and owner + 1 not in cores:
                # no neighbour gets the part with it by the same engine
                own = receivers[owner]
                its = [row for row in its if row[0] is not own]
                emitter.copy(Opcode.MOVE, machine.queue_of["core", owner], held, own, part, element_bytes)
            send_to_runs(emitter, held, [(row, part) for row in its], queue, element_bytes)


def _ways(machine: Machine, sender: int, cores: list[int]) -> dict[int, list[int]]:
    """By queue the cores that it reaches from one."""
    if machine.has("link"):
        return {machine.queue_of["link", sender]: cores}
    ways: dict[int, list[int]] = {}
    for core in cores:
        queue = between_cores(machine, sender, core)
        if queue is not None:
            ways.setdefault(queue, []).append(core)
    return ways


def _rows_of(targets: Iterable[Held]) -> list[list[Held]]:
    """Targets in rows of neighbouring memories in which all lies alike."""
    rows: list[list[Held]] = []
    for held in targets:
        last = rows[-1][-1] if rows else None
        if last is not None and held.slot.place == last.slot.place + 1 and held[1:4] == last[1:4]:
            rows[-1].append(held)
        else:
            rows.append([held])
    return rows


def _between(receivers: Mapping[int, Held], idle: Collection[int]) -> dict[int, Held]:
    """Where idle cores between receivers get what these do: as many at most as receive it just before them."""
    found: dict[int, Held] = {}
    run = 0
    for core, after in pairwise(sorted(receivers)):
        run += 1
        gap = range(core + 1, after)
        held = receivers[core]
        if not gap:
            continue
        if len(gap) <= run and all(other in idle for other in gap):
            slot = held.slot
            for other in gap:
                mine = Slot(slot.place + other - core, slot.address, slot.size_bytes)
                mine.content = slot.content
                found[other] = Held(mine, *held[1:])
        run = 0
    return found
