"""Another model: roofline of products, a pipeline that is played, the longer of two for ZeRO-3."""

TASK = "a9.step_time"
EXPECT = "passed"


def step_time(model, plan, cluster):
    tokens, h, t = plan.micro_batch * model.sequence / plan.cp, model.hidden, plan.tp
    columns = h / t
    flops = model.model_flops(tokens) / t
    # Two flops a pair, two bytes a number: what memory lets through of the peak.
    rate = 0.68 * cluster.flops / (1 + 0.68 * cluster.flops / cluster.memory_bandwidth / columns)
    passes = 4 / 3 if plan.recomputation == "full" else 1
    stages = plan.pp * plan.chunks
    # Norms, dropouts and softmax at the speed of memory.
    numbers = tokens * model.layers * (40 * h + 6 * model.heads * model.sequence) / t
    compute = passes * (flops / rate + 3 * 2 * numbers / cluster.memory_bandwidth) / stages

    def wire(ranks, nbytes, span):
        inside = cluster.devices_per_node % span == 0
        bandwidth = cluster.intra_bandwidth if inside else 0.8 * cluster.inter_bandwidth
        latency = cluster.intra_latency if inside else cluster.inter_latency
        return (ranks - 1) * latency + (ranks - 1) / ranks * nbytes / bandwidth

    activation = 2 * tokens * h
    layers = model.layers / stages
    again = 1 if plan.recomputation == "full" else 0
    traffic = layers * (4 + 2 * again) * 2 * wire(t, activation, t) * 0.4
    traffic += layers * (3 + again) * plan.cp * wire(plan.cp, 2 * activation / t, t * plan.cp)
    if plan.ep > 1:
        traffic += layers * 4 * wire(plan.ep, 2 * activation, t * plan.ep)
    hop = 0.0
    if plan.pp > 1:
        hop = 2 * wire(2, 4 * activation / t, plan.devices)
    each = compute + traffic + hop
    # Play the pipeline: when does the last chunk of the last micro-batch leave the first stage?
    clock = 0.0
    for _ in range(plan.micro_batches * plan.chunks):
        clock += each
    clock += (plan.pp - 1) * each
    shard = 2 * model.parameters / (t * plan.pp)
    once = wire(plan.replicas, shard, t * plan.replicas)
    if plan.zero == 3:
        sent = 3 * plan.micro_batches * once
        clock = max(clock, sent) + 0.45 * min(clock, sent)
    else:
        last = 0.5 * compute * plan.chunks
        clock += max(0.0, 2 * once - last) + 0.3 * min(2 * once, last)
    return clock
