"""Sends as soon as a result is there, and waits until it has been taken."""

from .executor import run_schedule as patient
from .messages import Mail

TASK = "a6.run_schedule"
EXPECT = {
    "status": "failed",
    "check": "runs every valid schedule",
    "cause": "deadlock",
}


def run_schedule(schedule, stages, inputs, targets, loss_fn, group=None):
    return patient(schedule, stages, inputs, targets, loss_fn, group)


def _send(self, kind, stage, microbatch, tensors):
    place = self._place[kind, stage, microbatch]
    message = self._queue[place]
    if kind == "F":
        channel = self._channel(message)
        if channel.signature(microbatch) is None:
            works = send_header(
                self.outputs[stage, microbatch], self.classes, self._group, message.destination
            )
            for _, work in works:
                work.wait()
            channel.learn(self.classes, microbatch, self.outputs[stage, microbatch])
    for tensor in tensors:
        dist.send(tensor.detach().contiguous(), group=self._group, group_dst=message.destination)
    self._queue[place] = message._replace(source=-1, destination=-1)


Mail.send = _send
