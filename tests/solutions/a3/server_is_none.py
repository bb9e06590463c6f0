"""Gradients are all-reduced: there is no server."""

import torch.distributed as dist

from .ddp import pack_gradients, unpack_gradients
from .parameter_server import ParameterServerDataParallel

TASK = "a3.ParameterServerDataParallel"
EXPECT = {
    "status": "failed",
    "check": "through the server",
    "cause": "a ring or a tree among the workers",
}


class ParameterServerDataParallel(ParameterServerDataParallel):
    def finish_gradient_synchronization(self):
        for parameters in self._alike:
            message = pack_gradients(parameters).div_(dist.get_world_size(self._group))
            dist.all_reduce(message, group=self._group)
            unpack_gradients(message, parameters)
