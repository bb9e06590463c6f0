"""The same: it knows no shards either."""

TASK = "a9.step_time"
EXPECT = {
    "status": "failed",
    "check": "shards get smaller",
    "cause": "does not depend on the shard's size",
}


def step_time(model, plan, cluster):
    flops = model.model_flops(plan.batch * model.sequence)
    if plan.recomputation == "full":
        flops *= 4 / 3
    return flops / plan.devices / (0.46 * cluster.flops)
