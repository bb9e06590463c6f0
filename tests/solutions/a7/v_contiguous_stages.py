"""Rank r holds stages 2r and 2r + 1."""

from ..a6_pipeline_parallel.schedule import Action

TASK = "a7.dualpipev_schedule"
EXPECT = {
    "status": "failed",
    "check": "does everything once",
    "cause": "other ranks than the docstring",
}


def dualpipev_schedule(ranks, microbatches):
    return [
        [
            Action(kind, stage, i)
            for kind in "FB"
            for i in range(microbatches)
            for stage in ((2 * rank, 2 * rank + 1) if kind == "F" else (2 * rank + 1, 2 * rank))
        ]
        for rank in range(ranks)
    ]
