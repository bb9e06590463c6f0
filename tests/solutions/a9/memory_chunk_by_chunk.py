# ruff: noqa: F821 (names of the reference)
"""Plays the warm-up of the first stage, and adds up parameters layer by layer."""

TASK = "a9.memory_per_device"
EXPECT = "passed"


def memory_per_device(model, plan):
    stages = plan.pp * plan.chunks
    chunk = (model.layers + stages - 1) // stages
    layers = min(model.layers, chunk * plan.chunks)
    kinds = ["moe"] * min(layers, model.moe_layers)
    kinds += ["dense"] * (layers - len(kinds))
    common, experts = float(model.embedding), 0.0
    for kind in kinds:
        common += model.attention_layer + (model.router if kind == "moe" else model.mlp)
        experts += model.experts / plan.ep * model.expert if kind == "moe" else 0
    common += model.head if plan.pp == 1 else 0
    parts = {}
    for name, each, stage in (("weights", 2, 3), ("gradients", 2, 2), ("optimizer", 12, 1)):
        cut = plan.zero >= stage
        parts[name] = each * common / plan.tp / (plan.dp * plan.cp if cut else 1)
        parts[name] += each * experts / plan.tp / (plan.dp * plan.cp // plan.ep if cut else 1)
    # How many chunks the first device has begun before its first backward.
    warmup = plan.pp - 1
    if plan.chunks > 1:
        warmup = 2 * (plan.pp - 1) + (plan.chunks - 1) * plan.pp
    begun = min(warmup + 1, plan.micro_batches * plan.chunks)
    tokens, h, t = plan.micro_batch * model.sequence / plan.cp, model.hidden, plan.tp
    inside = 24 * tokens * h
    if plan.recomputation == "none":
        inside += 5 * tokens * model.heads * model.sequence
    outside = 10 * tokens * h
    layer = inside / t + outside / (t if plan.sequence_parallel else 1)
    if plan.recomputation == "full":
        layer = 2 * tokens * h
    return Memory(**parts, activations=begun * layers / plan.chunks * layer)
