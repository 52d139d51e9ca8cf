"""From what a group does with a tile, as a function of counters, to statements that loop (SCHED-2, PROG-7)."""
