# ruff: noqa: F821 (names of the reference)
"""Takes plans as they come into a heap, and has an order of its own in which it tries them."""

TASK = "a9.plan"
EXPECT = "passed"


def _own(model, devices, batch):
    from itertools import product

    for pp, tp, cp in product([n for n in range(1, devices + 1) if devices % n == 0], repeat=3):
        if devices % (pp * tp * cp):
            continue
        dp = devices // (pp * tp * cp)
        experts = range(1, dp * cp + 1) if model.experts else [1]
        for ep in [n for n in experts if dp * cp % n == 0]:
            sizes = {"dp": dp, "pp": pp, "tp": tp, "cp": cp, "ep": ep}
            if batch % dp:
                yield Plan(**sizes)
                continue
            for micro_batch in [n for n in (1, 2, 3, 4, 8) if batch // dp % n == 0]:
                count = batch // dp // micro_batch
                for chunks in (1, 2, 3, 4, 6) if pp > 1 else (1,):
                    for zero, kind, sp in product(range(4), RECOMPUTATIONS, (False, True)):
                        if sp == (tp > 1):
                            yield Plan(**sizes, sequence_parallel=sp, micro_batch=micro_batch,
                                       micro_batches=count, chunks=chunks, zero=zero,
                                       recomputation=kind)  # fmt: skip


def plan(model, cluster, batch_tokens, candidates=None):
    import heapq

    batch = batch_tokens // model.sequence
    if batch_tokens <= 0 or batch * model.sequence != batch_tokens:
        raise ValueError(f"{batch_tokens} tokens are no whole sequences")
    heap, refused = [], []
    plans = _own(model, cluster.devices, batch) if candidates is None else candidates
    for number, each in enumerate(plans):
        why = _refusal(model, each, cluster, batch)
        memory = None if why else memory_per_device(model, each)
        if memory and memory.total > cluster.usable_memory:
            needed, usable = memory.total / 1e9, cluster.usable_memory / 1e9
            why = ("memory", f"{needed:,.1f} GB of {usable:,.1f}")
        if why:
            refused.append(Refused(each, *why))
        else:
            heapq.heappush(heap, (step_time(model, each, cluster), number, each, memory))
    best = []
    while heap:
        seconds, _, each, memory = heapq.heappop(heap)
        best.append(Ranked(each, memory, seconds))
    return Ranking(best, refused)
