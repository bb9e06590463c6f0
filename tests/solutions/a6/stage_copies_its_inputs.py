"""Right: the module works on a copy of its inputs."""

from .stage import PipelineStage as Right

TASK = "a6.PipelineStage"
EXPECT = "passed"


class PipelineStage(Right):
    def forward(self, microbatch, *inputs):
        copies = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
        return super().forward(microbatch, *copies)
