"""Right: ends of all steps by going over them until nothing changes."""

from .schedule import actions_of, count_chunks
from .timeline import Costs

TASK = "a6.bubble_ratio"
EXPECT = "passed"


def bubble_ratio(schedule, costs):
    costs, last = Costs(*costs), count_chunks(schedule)[0] - 1
    ends, changed = {}, True
    while changed:
        changed = False
        for steps in schedule:
            clock = 0.0
            for step in steps:
                for kind, stage, i in actions_of(step):
                    need = None
                    if kind == "F" and stage > 0:
                        need = ("F", stage - 1, i)
                    elif kind in ("B", "I") and stage < last:
                        need = ("I", stage + 1, i)
                    clock = max(clock, ends.get(need, 0.0))
                clock += costs.of(step)
                for kind, stage, i in actions_of(step):
                    made = ("I" if kind == "B" else kind, stage, i)
                    if ends.get(made) != clock:
                        ends[made], changed = clock, True
    makespan = max(ends.values())
    busy = [sum(map(costs.of, steps)) for steps in schedule]
    return (makespan - min(busy)) / makespan
