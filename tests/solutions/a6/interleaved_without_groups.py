"""All micro-batches go through one chunk before the next."""

from .schedule import Action

TASK = "a6.interleaved_schedule"
EXPECT = {
    "status": "failed",
    "check": "keeps no more",
    "cause": "forwards before its first backward",
}


def interleaved_schedule(ranks, microbatches, chunks):
    if microbatches % ranks:
        raise ValueError(f"{microbatches} micro-batches for {ranks} ranks")
    schedule = []
    for rank in range(ranks):
        order = [(chunk, i) for chunk in range(chunks) for i in range(microbatches)]
        steps = [Action("F", chunk * ranks + rank, i) for chunk, i in order]
        steps += [Action("B", (chunks - 1 - chunk) * ranks + rank, i) for chunk, i in order]
        schedule.append(steps)
    return schedule
