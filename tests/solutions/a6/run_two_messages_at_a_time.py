"""Right: has at most two sends under way, in the order that all share."""

from .executor import run_schedule as several_in_flight
from .messages import Mail as SeveralInFlight

TASK = "a6.run_schedule"
EXPECT = "passed"


def run_schedule(schedule, stages, inputs, targets, loss_fn, group=None):
    return several_in_flight(schedule, stages, inputs, targets, loss_fn, group)


class Mail(SeveralInFlight):  # takes the place of the one that the executor uses
    WINDOW = 2
