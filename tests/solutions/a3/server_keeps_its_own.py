"""The server trains on its own gradients, its workers on the average."""

import torch.distributed as dist

from .parameter_server import ParameterServerDataParallel

TASK = "a3.ParameterServerDataParallel"
EXPECT = {
    "status": "failed",
    "check": "trains as one process",
    "cause": "this rank's own",
}


class ParameterServerDataParallel(ParameterServerDataParallel):
    def finish_gradient_synchronization(self):
        own = {p: p.grad.clone() for each in self._alike for p in each if p.grad is not None}
        super().finish_gradient_synchronization()
        if dist.get_rank(self._group) == self._server:
            for parameter, gradient in own.items():
                parameter.grad.copy_(gradient)
