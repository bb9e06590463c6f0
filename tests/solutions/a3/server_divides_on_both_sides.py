"""Workers divide before they send, and the server divides again."""

import torch.distributed as dist

from .parameter_server import ParameterServerDataParallel

TASK = "a3.ParameterServerDataParallel"
EXPECT = {
    "status": "failed",
    "check": "trains as one process",
    "cause": "averaged twice",
}


class ParameterServerDataParallel(ParameterServerDataParallel):
    def finish_gradient_synchronization(self):
        for parameters in self._alike:
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.div_(dist.get_world_size(self._group))
        super().finish_gradient_synchronization()
