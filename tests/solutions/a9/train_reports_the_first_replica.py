"""The loss of one replica, not the mean."""

import torch
import torch.distributed as dist

from .train import _Training

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "trains as one device does",
    "cause": "the loss is one replica's",
}


class _OfTheFirst(_Training):
    def step(self, number):
        kept = torch.zeros((), dtype=torch.float64)
        run = self.parts.run_schedule

        def watched(*arguments):
            loss = run(*arguments)
            if loss is not None and self.at["dp"] == self.at["tp"] == 0:
                kept.add_(loss)
            return loss

        self.parts.run_schedule = watched
        _, norm = super().step(number)
        self.parts.run_schedule = run
        dist.all_reduce(kept)
        return kept.item(), norm


_Training = _OfTheFirst
