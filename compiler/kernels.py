"""All functions in machine code: importing this module loads them, or compiles and stores those that are not stored.

Set-up runs it (`python -m compiler.kernels`); a worker imports it before it forks its children. It starts no thread.
"""

from __future__ import annotations

import compiler.fusion.kernels
import compiler.program.loops.changing_fields
import compiler.program.loops.dram_order
import compiler.program.loops.history
import compiler.program.loops.judge
import compiler.program.loops.periods
import compiler.program.loops.positions
import compiler.program.loops.time_recurrence
import compiler.program.loops.walk
import compiler.program.loops.windows
import compiler.program.steps.meetings
import compiler.program.steps.order
import compiler.program.timing.cells
import compiler.program.timing.engine_state
import compiler.program.timing.events
import compiler.program.timing.heap
import compiler.program.timing.shares
import compiler.shapes.kernels
import compiler.simulator.kernels
import compiler.tiling.kernels  # noqa: F401 - imported for their machine code
