"""One 1F1B pipeline for each direction, the second after the first."""

from ..a6_pipeline_parallel.schedules import one_f_one_b_schedule

TASK = "a7.dualpipe_schedule"
EXPECT = {
    "status": "failed",
    "check": "takes no longer",
    "cause": "as two independent pipelines",
}


def dualpipe_schedule(ranks, microbatches):
    half = microbatches // 2
    up = one_f_one_b_schedule(ranks, half)
    return [
        up[rank] + [s._replace(microbatch=s.microbatch + half) for s in up[ranks - 1 - rank]]
        for rank in range(ranks)
    ]
