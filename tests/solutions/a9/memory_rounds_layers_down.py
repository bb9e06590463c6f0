"""A stage has ⌊l/pp⌋ layers, whatever is left over."""

TASK = "a9.memory_per_device"
EXPECT = {"status": "failed", "check": "chunks and experts", "cause": "are rounded down"}


def _stage_layers(model, plan):
    return model.layers // (plan.pp * plan.chunks) * plan.chunks
