"""Every rank takes GPU 0."""

import torch

from .harness import initialize as right

TASK = "a9.initialize"
EXPECT = {
    "status": "failed",
    "check": "takes its share of the cores, and its own device",
    "cause": "all ranks take the same GPU",
}


def _choose_device(wanted, local_rank, local_world_size):
    gpus = torch.cuda.device_count() if wanted != "cpu" else 0
    if wanted not in ("auto", "cpu", "cuda") or (wanted == "cuda" and gpus < local_world_size):
        raise ValueError(f"device={wanted!r}, {local_world_size} ranks, {gpus} GPUs")
    return torch.device("cuda", 0) if gpus >= local_world_size else torch.device("cpu")


def initialize(device="auto", seed=0, timeout=300.0):
    return right(device, seed, timeout)
