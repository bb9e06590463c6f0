"""Published rates, looked up; for anything else one rate."""

TASK = "a9.step_time"
EXPECT = {"status": "failed", "check": "runs with ZeRO-3", "cause": "published times are looked up"}

_PUBLISHED = {
    (96, 12288, 384): 144,
    (96, 12288, 768): 88,
    (96, 12288, 1536): 44,
    (105, 20480, 640): 138,
    (105, 20480, 1120): 98,
    (105, 20480, 2240): 48,
}


def step_time(model, plan, cluster):
    layers, hidden = model.layers, model.hidden
    flops = 96 * plan.batch * model.sequence * layers * hidden**2
    flops *= 1 + model.sequence / (6 * hidden) + model.vocab / (16 * layers * hidden)
    rate = _PUBLISHED.get((layers, hidden, plan.devices), 145)
    return flops / plan.devices / (rate * 1e12)
