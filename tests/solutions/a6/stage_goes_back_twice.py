"""backward_weight goes through all layers again."""

import torch

TASK = "a6.PipelineStage"
EXPECT = {
    "status": "failed",
    "check": "does not compute anything twice",
    "cause": "computed again for the weights",
}


class PipelineStage:
    def __init__(self, module):
        self.module, self.chunks = module, {}

    def forward(self, microbatch, *inputs):
        leaves = [x.detach().requires_grad_(x.requires_grad) for x in inputs]
        entering = [x * 1.0 if x.requires_grad else x for x in leaves]
        returned = self.module(*entering)
        outputs = returned if isinstance(returned, tuple) else (returned,)
        self.chunks[microbatch] = leaves, outputs
        return returned

    def backward(self, microbatch, *gradients):
        found = self.backward_input(microbatch, *gradients)
        self.backward_weight(microbatch)
        return found

    def flowing(self, outputs, gradients):
        pairs = [
            (y, g)
            for y, g in zip(outputs, gradients, strict=True)
            if g is not None and y.requires_grad
        ]
        return [y for y, _ in pairs], [g for _, g in pairs]

    def backward_input(self, microbatch, *gradients):
        leaves, outputs = self.chunks[microbatch]
        roots, values = self.flowing(outputs, gradients)
        self.chunks[microbatch] = leaves, roots, values
        wanted = [x for x in leaves if x.requires_grad]
        found = iter(())
        if wanted and roots:
            found = iter(
                torch.autograd.grad(roots, wanted, values, retain_graph=True, allow_unused=True)
            )
        return tuple(next(found, None) if x.requires_grad else None for x in leaves)

    def backward_weight(self, microbatch):
        _, roots, values = self.chunks.pop(microbatch)
        wanted = [p for p in self.module.parameters() if p.requires_grad]
        if roots and wanted:
            torch.autograd.backward(roots, values, inputs=wanted)
