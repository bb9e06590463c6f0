"""Right: one gather to the server and one scatter from it."""

import torch
import torch.distributed as dist

from .ddp import pack_gradients, unpack_gradients
from .parameter_server import ParameterServerDataParallel

TASK = "a3.ParameterServerDataParallel"
EXPECT = "passed"


class ParameterServerDataParallel(ParameterServerDataParallel):
    def finish_gradient_synchronization(self):
        size = dist.get_world_size(self._group)
        at_server = dist.get_rank(self._group) == self._server
        for parameters in self._alike:
            message = pack_gradients(parameters)
            gathered = [torch.empty_like(message) for _ in range(size)] if at_server else None
            dist.gather(message, gathered, group=self._group, group_dst=self._server)
            if at_server:
                mean = torch.stack(gathered).mean(0)
                gathered = [mean] * size
            dist.scatter(message, gathered, group=self._group, group_src=self._server)
            unpack_gradients(message, parameters)
