"""The next micro-batch enters when the one before has come back."""

from .schedule import Action

TASK = "a6.gpipe_schedule"
EXPECT = {
    "status": "failed",
    "check": "idles no longer",
    "cause": "no rank runs ahead",
}


def gpipe_schedule(stages, microbatches):
    if min(stages, microbatches) < 1:
        raise ValueError(f"stages={stages}, microbatches={microbatches}")
    return [
        [Action(kind, stage, i) for i in range(microbatches) for kind in "FB"]
        for stage in range(stages)
    ]
