"""Right: the first half of the ranks of a DualPipe twice as long."""

from ..a6_pipeline_parallel.schedule import Overlapped
from .schedules import dualpipe_schedule

TASK = "a7.dualpipev_schedule"
EXPECT = "passed"


def dualpipev_schedule(ranks, microbatches):
    if ranks < 1 or microbatches < 2 * ranks:
        raise ValueError(f"ranks={ranks}, microbatches={microbatches}: at least {2 * ranks}")
    whole = dualpipe_schedule(2 * ranks, 2 * microbatches)
    return [[_folded(step, microbatches) for step in steps] for steps in whole[:ranks]]


def _folded(step, microbatches):
    if isinstance(step, Overlapped):
        return Overlapped(*(_folded(action, microbatches) for action in step))
    return step._replace(microbatch=step.microbatch % microbatches)
