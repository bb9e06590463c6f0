"""A forward and a backward of two micro-batches, run together so that each hides the other's
communication [DeepSeek-AI 2024, DeepSeek-V3 Technical Report, section 3.2.1 and figure 4].
"""

from __future__ import annotations

from collections import deque

import torch.distributed as dist

from .phases import Phase, PhasedPass


def overlapped_forward_backward(forward: PhasedPass, backward: PhasedPass) -> None:
    """Run two passes so that one computes while the other communicates.

    The phases of each pass run in order, a phase after the works of all earlier ones of its pass
    have been waited for; when this returns, every work has been. Where computing and communicating
    phases of equal length alternate, it takes hardly longer than the larger of all computation and
    all communication. All ranks that run passes of the same form start the phases in the same
    order, so that their collectives meet.

    Args:
        forward, backward: passes of two micro-batches; either may be empty.
    """
    # BEGIN SOLUTION
    passes = [deque(forward.phases), deque(backward.phases)]
    in_flight: dict[int, dist.Work] = {}  # of each pass, in the order of their start
    while any(passes) or in_flight:
        started = _start_communication(passes, in_flight)
        free = [i for i, phases in enumerate(passes) if phases and i not in in_flight]
        if free:
            # While the other one communicates; where neither does, the one that began last waits.
            passes[free[0]].popleft().run()
            if len(free) > 1:
                _start_communication(passes, in_flight)
        elif in_flight and not started:
            first = next(iter(in_flight))
            in_flight.pop(first).wait()
    # END SOLUTION


# BEGIN SOLUTION
def _start_communication(passes: list[deque[Phase]], in_flight: dict[int, dist.Work]) -> bool:
    """Start every communicate phase whose turn has come; whether there was one."""
    started = False
    for i, phases in enumerate(passes):
        while phases and i not in in_flight and phases[0].kind == "communicate":
            work = phases.popleft().run()
            started = True
            if work is not None:
                in_flight[i] = work
    return started


# END SOLUTION
