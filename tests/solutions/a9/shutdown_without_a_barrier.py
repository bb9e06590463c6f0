"""Right: nobody waits for anybody, the store's server apart."""

import torch.distributed as dist

from .harness import _undo

TASK = "a9.shutdown"
EXPECT = "passed"


def shutdown(error=None):
    barrier, dist.barrier = dist.barrier, lambda: None
    try:
        while _undo:
            _undo.pop()(error)
    finally:
        dist.barrier = barrier
