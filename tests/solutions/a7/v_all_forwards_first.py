"""Down and up with all micro-batches, then back."""

from ..a6_pipeline_parallel.schedule import Action

TASK = "a7.dualpipev_schedule"
EXPECT = {
    "status": "failed",
    "check": "keeps no more",
    "cause": "as GPipe does",
}


def dualpipev_schedule(ranks, microbatches):
    schedule = []
    for rank in range(ranks):
        near, far = rank, 2 * ranks - 1 - rank
        order = [("F", near), ("F", far), ("B", far), ("B", near)]
        schedule.append([Action(k, s, i) for k, s in order for i in range(microbatches)])
    return schedule
