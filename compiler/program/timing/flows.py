"""How much passes shared resources over time: the rates of a timeline's moves, worked out again slice by slice (SIM-2).

The event loop (`events.py`) keeps when moves begin and end, not how fast they were in between. Between two such times
the rates are the max-min fair shares of those who move, so that the same function gives them again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.program.timing.events import NONE, compiled, share


@compiled
def run_flows(
    times: Any,
    events: Any,
    slice_cycles: float,
    slice_count: int,
    engines: int,
    kinds: Any,
    own_rates: Any,
    offsets: Any,
    resources: Any,
    weights: Any,
    capacities: Any,
) -> Any:
    """Amounts through each resource in each slice; shape (resources, slices).

    times, events: ascending; event 2 c + 1 says that command c begins to move, 2 c that it has ended. `engines`: how
    many may move at once. The rest are columns of `Demands`.
    """
    flows = np.zeros((len(capacities), slice_count))
    places = np.full(len(kinds), NONE, dtype=np.int64)
    moving, moving_kinds = np.empty(engines, dtype=np.int64), np.empty(engines, dtype=np.int64)
    moving_own, rates, count = np.empty(engines), np.empty(engines), 0
    left, users = np.empty(len(capacities)), np.empty(len(capacities))
    i = 0
    while i < len(times):
        now = times[i]
        while i < len(times) and times[i] == now:
            c = events[i] >> 1
            if events[i] & 1:
                places[c], moving[count], moving_kinds[count], moving_own[count] = count, c, kinds[c], own_rates[c]
                count += 1
            else:
                place, count = places[c], count - 1
                moving[place], moving_kinds[place] = moving[count], moving_kinds[count]
                moving_own[place] = moving_own[count]
                places[moving[place]] = place
            i += 1
        if i == len(times) or not count:
            continue
        share(moving_kinds, moving_own, count, rates, offsets, resources, weights, capacities, left, users)
        first = min(slice_count - 1, int(now / slice_cycles))
        last = min(slice_count - 1, int(times[i] / slice_cycles))
        for number in range(first, last + 1):
            begin, end = max(now, number * slice_cycles), times[i]
            if number < last:
                end = min(end, (number + 1) * slice_cycles)
            for j in range(count):
                for k in range(offsets[moving_kinds[j]], offsets[moving_kinds[j] + 1]):
                    flows[resources[k], number] += rates[j] * weights[k] * max(0.0, end - begin)
    return flows
