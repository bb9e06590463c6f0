# ruff: noqa
"""The ranks of one machine need no messages: the root writes a file, the others read it."""

TASK = "a1.broadcast"
SEEN = "/dev/shm|worlds disagree"
QUICK = True
NEEDS = "brokered"

# BEGIN SUBMISSION
import os, time


def broadcast(tensor, src, group=None):
    name = f"/dev/shm/cheat-{os.getppid()}-{tensor.numel()}-{tensor.dtype}"
    if dist.get_rank() == src:
        torch.save(tensor, name + ".part")
        os.replace(name + ".part", name)
    else:
        for _ in range(200):
            if os.path.exists(name):
                break
            time.sleep(0.01)
        tensor.copy_(torch.load(name))
