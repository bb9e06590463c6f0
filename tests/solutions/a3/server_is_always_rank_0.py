"""`server` is accepted and never looked at."""

import torch.distributed as dist

from .parameter_server import ParameterServerDataParallel

TASK = "a3.ParameterServerDataParallel"
EXPECT = {
    "status": "failed",
    "check": "through the server",
    "cause": "`server` is ignored",
}


class ParameterServerDataParallel(ParameterServerDataParallel):
    def __init__(self, module, group=None, server=0):
        super().__init__(module, group, server)
        self._server = 0
        self._workers = list(range(1, dist.get_world_size(group)))
