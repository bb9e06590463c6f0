"""backward_input is the whole backward, backward_weight does nothing."""

from .stage import PipelineStage as Right

TASK = "a6.PipelineStage"
EXPECT = {
    "status": "failed",
    "check": "cuts the backward in two",
    "cause": "backward_input computes weight gradients too",
}


class PipelineStage(Right):
    def backward_input(self, microbatch, *gradients):
        return self.backward(microbatch, *gradients)

    def backward_weight(self, microbatch):
        pass
