"""The server waits for each worker before it turns to the next."""

import torch.distributed as dist

from .parameter_server import ParameterServerDataParallel

TASK = "a3.ParameterServerDataParallel"
EXPECT = {
    "status": "failed",
    "check": "link busy",
    "cause": "one worker after the other",
}


class ParameterServerDataParallel(ParameterServerDataParallel):
    def _batch(self, operation, messages):
        at_server = dist.get_rank(self._group) == self._server
        peers = self._workers if at_server else [self._server]
        for peer, theirs in zip(peers, messages):
            for message in theirs:
                if operation is dist.isend:
                    dist.send(message, group=self._group, group_dst=peer)
                else:
                    dist.recv(message, group=self._group, group_src=peer)
