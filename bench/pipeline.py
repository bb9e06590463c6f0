"""Step time of the reference's pipeline executors beside torch's, and time to make a schedule.

    python -m bench pipeline            # on processes here, with gloo

Pairs of steps in turn (A B A B ...) of the same model and micro-batches; the median of the pairs'
ratios, theirs ÷ ours: above 1 we are faster. On a busy machine the ratio of CPU times is steadier.
"""

from __future__ import annotations

import time

from reference.a6_pipeline_parallel.schedule import Schedule, both_ways, in_line
from reference.a6_pipeline_parallel.schedules import zero_bubble_schedule
from reference.a6_pipeline_parallel.timeline import time_schedule, validate
from reference.a7_dualpipe.schedules import dualpipe_schedule
from tests.pipeline.gloo_world import run_world

RANKS, REPEATS = (2, 4), 9
WIDTH, ROWS = 256, 256  # of a layer, of a micro-batch
PAIRS = (
    ("1f1b", "Schedule1F1B"),
    ("interleaved", "ScheduleInterleaved1F1B"),
    ("dualpipev", "ScheduleZBVZeroBubble"),
    ("dualpipev", "ScheduleDualPipeV"),
    ("dualpipe", "1f1b"),
)


def main() -> None:
    """Print one line per comparison."""
    for name, make in (("dualpipe", dualpipe_schedule), ("zb1p", zero_bubble_schedule)):
        begin = time.perf_counter()
        schedule: Schedule = make(64, 512)
        validate(schedule, 64, 512, both_ways(64, 512) if name == "dualpipe" else in_line)
        makespan = time_schedule(schedule).makespan
        seconds = time.perf_counter() - begin
        print(f"{name}, 64 ranks x 512 micro-batches, made, validated and timed: {seconds:.2f} s "
              f"(makespan {makespan:g})")  # fmt: skip
    for ranks in RANKS:
        for ours, theirs in PAIRS:
            given = {
                "ours": ours,
                "theirs": theirs,
                "microbatches": 4 * ranks,
                "width": WIDTH,
                "rows": ROWS,
                "layers": 2,
                "repeats": REPEATS,
            }
            label = f"{ranks} ranks, {4 * ranks} micro-batches: {ours} against {theirs}"
            found = run_world(ranks, "bench._pipeline_ranks:compare", given, timeout=300)
            errors = [each["error"] for each in found if "error" in each]
            if errors:
                print(f"{label}: theirs does not run here: {errors[0]}")
                continue
            first = found[0]
            low, high = first["spread"]
            print(
                f"{label}: {1e3 * first['ours']:.1f} ms and {1e3 * first['theirs']:.1f} ms, ratio "
                f"{first['ratio']:.2f} ({low:.2f} ... {high:.2f}), of CPU time "
                f"{first['busy_ratio']:.2f}, gradients differ by at most "
                f"{max(each['difference'] for each in found):.1e}"
            )


if __name__ == "__main__":
    main()
