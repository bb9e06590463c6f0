"""Parameters are averaged after every step, although they are equal."""

import torch.distributed as dist

from .train import _Training

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "sends no more than its layout must",
    "cause": "parameters are sent, too",
}


class _Averaging(_Training):
    def step(self, number):
        result = super().step(number)
        for weight in self.stage.weights:
            if not weight.expert:
                dist.all_reduce(weight.parameter.data, group=self.mesh.get_group("dp"))
                weight.parameter.data /= self.config.dp
        return result


_Training = _Averaging
