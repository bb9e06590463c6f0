# %% [markdown]
# # Assignment 9: all of it together · 作业 9：把一切合在一起
#
# Which ranks talk to whom, what fits, what a plan costs. The tasks are in `assignments/a9_hybrid_parallel`.
#
# 谁和谁通信，什么放得下，一个方案花多少。任务在 `assignments/a9_hybrid_parallel`。
# %%
import torch
import torch.distributed as dist

from grader import lab

lab.assignments_here()
# %% [markdown]
# ## Where the ranks are · rank 都在哪里
#
# 32 GPUs in four nodes of eight: tp = 4 inside a node, dp = 4, pp = 2. Colours are tensor-parallel
# groups; numbers are (pp, dp, tp). What talks most sits closest.
#
# 32 块 GPU、四个 node：tp = 4 在 node 内，dp = 4，pp = 2。颜色是张量并行组，数字是 (pp, dp, tp)。通信最多的放得最近。
# %%
drawing, axes = lab.figure(width=9, height=2.8)
for rank in range(32):
    node, place = divmod(rank, 8)
    pipe, rest = divmod(rank, 16)
    data, tensor = divmod(rest, 4)
    axes.add_patch(lab.rectangle(place, 3 - node, 0.92, lab.COLOURS[rank // 4]))
    axes.text(place + 0.46, 3.46 - node, f"{rank}: {pipe}, {data}, {tensor}", ha="center", va="center",
              fontsize=7, color="white")
axes.set(xlim=(-0.1, 8), ylim=(-0.1, 4), yticks=[0.5, 1.5, 2.5, 3.5], xticks=[],
         yticklabels=[f"node {n}" for n in (3, 2, 1, 0)])
axes.grid(False)
lab.show(drawing)
# %% [markdown]
# ## Memory by part · 显存构成
#
# A model of 70 billion parameters (80 layers, hidden 8192) on 64 GPUs of 80 GB, one sequence of 4096 per
# replica, activations 34·s·b·h bytes per layer ÷ t with sequence parallelism and selective
# recomputation. Each plan in GB: weights, gradients, optimizer, activations.
#
# 700 亿参数的模型（80 层、hidden 8192），64 块 80 GB 的 GPU，每个副本一条 4096 的序列，序列并行加 selective recomputation
# 时每层激活 34·s·b·h ÷ t 字节。各方案（GB）：权重、梯度、优化器、激活。
# %%
billions, layers, hidden, sequence = 70e9, 80, 8192, 4096
activation = 34 * sequence * hidden * layers / 1e9
plans = {  # weights, gradients, optimizer, activations, each of one GPU
    "dp 64": (140, 140, 840, activation),
    "dp 64\nZeRO-3": (140 / 64, 140 / 64, 840 / 64, activation),
    "tp 8, dp 8\nZeRO-1": (17.5, 17.5, 840 / 64, activation / 8),
    "tp 8, pp 4, dp 2\nZeRO-1": (140 / 32, 140 / 32, 840 / 64, activation / 8),
    "tp 2, pp 8, dp 4\nZeRO-1": (140 / 16, 140 / 16, 840 / 64, activation / 2),
}
drawing, axes = lab.figure(width=9)
bottom = [0.0] * len(plans)
for number, part in enumerate(("weights", "gradients", "optimizer", "activations")):
    height = [min(each[number], 200.0) for each in plans.values()]
    axes.bar(list(plans), height, bottom=bottom, label=part, color=lab.COLOURS[number])
    bottom = [a + b for a, b in zip(bottom, height)]
axes.axhline(80, color=lab.COLOURS[4], ls=":")
axes.set(ylabel="GB per GPU", ylim=(0, 200))
axes.tick_params(axis="x", labelsize=8)
axes.legend(frameon=False, fontsize=8)
lab.show(drawing)
# %% [markdown]
# (A pipeline stage holds 1/p of the layers of up to p micro-batches, hence no fewer activations.)
# （流水线的一个 stage 有 1/p 的层，但同时持有最多 p 个 micro-batch，所以激活并不变少。）
#
# ## What each dimension costs · 每个维度的代价
#
# Measured on the simulated cluster: one all-reduce of tp's activations, one of dp's gradients, one
# message of pp, for the model above.
#
# 在模拟集群上测：上面那个模型的一次 tp 激活 all-reduce，一次 dp 梯度 all-reduce，一条 pp 的消息。
# %%
def reduce_of(nbytes: int):
    def all_reduce(rank: int) -> None:
        dist.all_reduce(torch.empty(nbytes, dtype=torch.uint8, device="meta"))

    return all_reduce


activations = 2 * sequence * hidden
rows = [("dimension", "bytes", "times per step", "ms each", "ms in all")]
inside = lab.run(reduce_of(activations), 8).on("dgx-h100").seconds
rows.append(("tp 8, inside a node", f"{activations:,}", 4 * layers, f"{inside * 1e3:.2f}",
             f"{inside * 4 * layers * 1e3:.0f}"))
gradients = int(2 * billions / 8)
between = lab.run(reduce_of(gradients), 8, lab.uniform(8, 5e-6, 50e9)).seconds
rows.append(("dp 8, between nodes", f"{gradients:,}", 1, f"{between * 1e3:.0f}", f"{between * 1e3:.0f}"))


def boundary(rank: int) -> None:
    tensor = torch.empty(activations // 8, dtype=torch.uint8, device="meta")
    if rank == 0:
        dist.send(tensor, dst=1)
    else:
        dist.recv(tensor, src=0)


message = lab.run(boundary, 2, lab.uniform(2, 5e-6, 50e9)).seconds
rows.append(("pp, one boundary", f"{activations // 8:,}", "2 per micro-batch", f"{message * 1e3:.2f}", "—"))
lab.table(rows)
# %% [markdown]
# ## A plan's cost · 一个方案的代价
#
# A rough step of 512 sequences at 400 TFLOP/s: computation, the pipeline's bubble ((p − 1)/m of it),
# tp's all-reduces, and dp's where nothing hides it. Your `step_time` will do better; see how it differs.
#
# 512 条序列、400 TFLOP/s 的一步粗略估计：计算，流水线的 bubble（(p − 1)/m），tp 的 all-reduce，以及没有被藏住的 dp。你的
# `step_time` 会更准；看看差在哪里。
# %%
candidates = {"tp 8, dp 8": (8, 1, 8), "tp 8, pp 4, dp 2": (8, 4, 2), "tp 2, pp 8, dp 4": (2, 8, 4)}
per_rank = {8: inside, 2: lab.run(reduce_of(activations), 2).on("dgx-h100").seconds}
costs = {"computation": [], "bubble": [], "tp": [], "dp": []}
for t, p, d in candidates.values():
    microbatches = 512 // d
    compute = 8 * billions * sequence * 512 / (64 * 400e12)
    costs["computation"].append(compute)
    costs["bubble"].append(compute * (p - 1) / microbatches)
    costs["tp"].append(per_rank[t] * 4 * layers / p * microbatches)
    costs["dp"].append(between * 8 / (t * p))
drawing, axes = lab.figure()
bottom = [0.0] * len(candidates)
for number, (part, seconds) in enumerate(costs.items()):
    axes.bar(list(candidates), seconds, bottom=bottom, label=part, color=lab.COLOURS[number])
    bottom = [a + b for a, b in zip(bottom, seconds)]
axes.set(ylabel="seconds of a step", ylim=(0, 65))
axes.legend(frameon=False, ncols=4)
lab.show(drawing)
# %% [markdown]
# ## Your turn · 轮到你了
#
# Write `memory_per_device` and `step_time` in `assignments/a9_hybrid_parallel/planner.py`; then
# `grader plan` puts your planner to work. 在 `planner.py` 里写这两个函数，然后 `grader plan` 会使用你的 planner。
