"""Of a weight that is used several times only one use counts."""

from .stage import PipelineStage as Right

TASK = "a6.PipelineStage"
EXPECT = {
    "status": "failed",
    "check": "takes modules of every kind",
    "cause": "leaves this parameter out",
}


class PipelineStage(Right):
    def backward_weight(self, microbatch):
        self._chunks[microbatch].shared.clear()
        super().backward_weight(microbatch)
