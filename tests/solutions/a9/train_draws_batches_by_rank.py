"""Every replica draws a batch of its own: what is trained on depends on the layout."""

import torch.distributed as dist

from .train import batch_of_step

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "trains as one device does",
    "cause": "every dp replica draws a batch of its own",
}

_right = batch_of_step


def batch_of_step(text, config, step):
    place = dist.get_rank() // config.tp % config.dp
    return _right(text, config, step * config.dp + place)
