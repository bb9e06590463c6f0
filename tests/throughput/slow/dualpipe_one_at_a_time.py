"""No micro-batch enters before the one before it has left."""

from ..a6_pipeline_parallel.schedule import actions_of
from .executor import run_dualpipe as published

TASK = "a7.run_dualpipe"
EXPECT = 0.2


def run_dualpipe(schedule, stages, inputs, targets, loss_fn, group=None):
    in_turn = [
        sorted(
            (action for step in steps for action in actions_of(step)),
            key=lambda action: (action.microbatch, action.kind != "F", action.stage),
        )
        for steps in schedule
    ]
    return published(in_turn, stages, inputs, targets, loss_fn, group)
