"""Right: each pass a generator that stops where its exchange is under way."""

TASK = "a7.overlapped_forward_backward"
EXPECT = "passed"


def overlapped_forward_backward(forward, backward):
    def steps(phases):
        for phase in phases:
            work = phase.run()
            if phase.kind == "communicate":
                yield
                if work is not None:
                    work.wait()

    first, second = forward.phases, backward.phases
    if first and first[0].kind == "compute":
        first, second = second, first
    waiting = [steps(first), steps(second)]
    while waiting:
        current = waiting.pop(0)
        if next(current, "over") is None:
            waiting.append(current)
