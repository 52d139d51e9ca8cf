"""Batches over several chips, worked out by hand (SIM-2, PART-5)."""

from __future__ import annotations

import numpy as np

from compiler.program.timing.chips import Task, stream_of


def chain(*ticks: int, link: int = 0, places: tuple[str, ...] = ()) -> tuple[Task, ...]:
    """Segments one after another, each on a chip of its own unless placed, with links between different ones."""
    on = places or tuple(f"chip {number}" for number in range(len(ticks)))
    tasks: list[Task] = []
    for number, (length, place) in enumerate(zip(ticks, on, strict=True)):
        before: tuple[int, ...] = (len(tasks) - 1,) if number else ()
        if number and link and place != on[number - 1]:
            tasks.append(Task(segment=None, resource=f"{on[number - 1]} to {place}", ticks=link, after=before))
            before = (len(tasks) - 1,)
        tasks.append(Task(segment=f"s{number}", resource=place, ticks=length, after=before))
    return tuple(tasks)


def test_three_chips_in_steady_state_keep_the_pace_of_the_busiest() -> None:
    """A batch takes 100 + 30 + 250 + 30 + 150; one comes out every 250 ticks."""
    found = stream_of(chain(100, 250, 150, link=30))
    assert found.latency_ticks == 560
    assert found.interval_ticks == 250
    assert list(found.begins) == [0, 100, 130, 380, 410]
    assert found.busy == {"chip 0": 100, "chip 0 to chip 1": 30, "chip 1": 250, "chip 1 to chip 2": 30, "chip 2": 150}


def test_a_link_can_be_what_bounds_a_pipeline() -> None:
    found = stream_of(chain(100, 250, link=400))
    assert (found.latency_ticks, found.interval_ticks) == (750, 400)


def test_a_chip_that_runs_two_segments_takes_both_for_each_batch() -> None:
    """Chip 0 runs the first and the third segment: 100 + 100 for each batch, while chip 1 does 100."""
    found = stream_of(chain(100, 100, 100, places=("chip 0", "chip 1", "chip 0")))
    assert (found.latency_ticks, found.interval_ticks) == (300, 200)


def test_segments_of_one_chip_run_one_after_another() -> None:
    found = stream_of(chain(70, 30, places=("chip 0", "chip 0")))
    assert (found.latency_ticks, found.interval_ticks) == (100, 100)


def test_no_pipeline_is_faster_than_its_busiest_resource_nor_slower_than_a_batch_after_another() -> None:
    random = np.random.default_rng(2)
    for _ in range(100):
        count = int(random.integers(1, 9))
        tasks = tuple(
            Task(
                segment=str(number),
                resource=f"chip {int(random.integers(4))}",
                ticks=int(random.integers(0, 100)),
                after=tuple(sorted(set(random.integers(number, size=2).tolist()))) if number else (),
            )
            for number in range(count)
        )
        found = stream_of(tasks)
        assert max(found.busy.values()) <= found.interval_ticks
        assert found.interval_ticks <= sum(task.ticks for task in tasks)
        assert found.latency_ticks <= sum(task.ticks for task in tasks)
        for task, begin in zip(tasks, found.begins, strict=True):
            assert all(begin >= found.begins[before] + tasks[before].ticks for before in task.after)
    assert found.latency_ticks == max(begin + task.ticks for begin, task in zip(found.begins, tasks, strict=True))


def test_a_rhythm_that_does_not_last_is_no_pace() -> None:
    """Chip 1 does 100 ticks, and 1 that waits for nothing; it falls behind chip 0's 100 by one tick per batch."""
    tasks = [("0", 100, ()), ("1", 100, (0,)), ("2", 10, (0, 1)), ("3", 5, ()), ("1", 1, ()), ("0", 0, (3, 4))]
    found = stream_of(
        [
            Task(segment=str(number), resource=f"chip {chip}", ticks=ticks, after=after)
            for number, (chip, ticks, after) in enumerate([*tasks, ("3", 2, (4, 5))])
        ]
    )
    assert found.busy["chip 1"] == 101
    assert found.interval_ticks == 101
