"""The group is left to the interpreter's end."""

import torch.distributed as dist

from .harness import shutdown as right

TASK = "a9.shutdown"
EXPECT = {
    "status": "failed",
    "check": "leaves the process as it was found",
    "cause": "destroy_process_group is not called",
}


def shutdown(error=None):
    destroy, dist.destroy_process_group = dist.destroy_process_group, lambda: None
    try:
        right(error)
    finally:
        dist.destroy_process_group = destroy
