"""What is known of a program's time only from its single commands: one walk over all of them (SIM-2, PROG-2, PROG-6).

How long a program takes is known without a walk, for what repeats is jumped over (`time_of`). Stalls, usage by slice of
time, and maps of memory need every command: they are sums over what the walk shows, window by window, so that memory
depends on statements, on the window and on the chip, and not on how often loops run.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.profile.schema import Profile
from compiler.program.loops.tiles import Tiles
from compiler.program.loops.time import WINDOW, Commands, ProgramTime, commands_of
from compiler.program.timing.occupancy import Occupancies, Occupancy
from compiler.program.timing.stalls import CommandStalls, Stalls
from compiler.program.timing.ticks import Ints
from compiler.program.timing.touches import StatementTouches
from compiler.program.timing.usage import SLICES, Usage, UsageFold


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observed:
    """What a walk has found. stalls: ticks by queue and `Spent`, each row adding up to the program's."""

    stalls: Ints
    usage: Usage
    occupancies: tuple[Occupancy, ...]


class Observation:
    """All that is summed in a walk; whoever walks hands over all commands."""

    def __init__(self, time: ProgramTime, profile: Profile, slices: int = SLICES) -> None:
        self.tiles = Tiles(time)
        touches = StatementTouches(self.tiles.instances)
        self._stalls = Stalls(time, self.tiles, touches)
        self._usage = UsageFold(time, self.tiles, profile, slices)
        self._occupancies = Occupancies(time, self.tiles, touches)

    def add(self, commands: Commands) -> CommandStalls:
        """Take in the next commands; what each of them waits for."""
        self._usage.add(commands)
        self._occupancies.add(commands)
        return self._stalls.add(commands)

    def found(self) -> Observed:
        """What all commands together say."""
        return Observed(
            stalls=self._stalls.engines(),
            usage=self._usage.usage(),
            occupancies=self._occupancies.occupancies(),
        )


def observe(time: ProgramTime, profile: Profile, *, slices: int = SLICES, window: int = WINDOW) -> Observed:
    """Walk over all commands of a program whose time is known, at least so many at a time."""
    observation = Observation(time, profile, slices)
    for commands in commands_of(time, window):
        observation.add(commands)
    return observation.found()
