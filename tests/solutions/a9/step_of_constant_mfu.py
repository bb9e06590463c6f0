"""FLOPs ÷ (devices × 46 % of the peak): right enough for all rows of Megatron's table."""

TASK = "a9.step_time"
EXPECT = {"status": "failed", "check": "ZeRO-3", "cause": "one constant rate (MFU)"}


def step_time(model, plan, cluster):
    flops = model.model_flops(plan.batch * model.sequence)
    if plan.recomputation == "full":
        flops *= 4 / 3
    return flops / plan.devices / (0.46 * cluster.flops)
