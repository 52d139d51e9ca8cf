"""The spike of issue 26: today's groups as statements with intervals, proved and timed in loops (SCHED-2, PROG-5, 6).

It answers whether looped programs are short, touch the same bytes, and are proved and timed by recurrence with the
verdict and the ticks of the expanded program. `docs/decisions/0017-schedules-and-loops.md` has the measures, which
`python -m tests.spike.measure` makes. It is removed when steps 3 and 4 of the issue land: then the compiler does this.
"""
