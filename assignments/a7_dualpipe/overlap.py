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
    raise NotImplementedError("a7.overlapped_forward_backward")
