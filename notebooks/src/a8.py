# %% [markdown]
# # Assignment 8: expert parallelism · 作业 8：专家并行
#
# Who gets how many tokens, what a capacity drops, and what the exchange costs. The tasks are in
# `assignments/a8_expert_parallel`.
#
# 每个 expert 分到多少 token，capacity 丢掉多少，交换要花多少。任务在 `assignments/a8_expert_parallel`。
# %%
import torch
import torch.distributed as dist

from grader import lab

lab.assignments_here()
# %% [markdown]
# ## Load per expert · 每个 expert 的负载
#
# 4096 tokens choose 2 of 32 experts. Left alone, a router soon prefers some of them: here choices are
# drawn with popularities that differ by a factor. The line is the capacity at factor 1.25: what stands
# above it is dropped, what is missing below is computed for nothing.
#
# 4096 个 token 从 32 个 expert 里选 2 个。不加约束，router 很快就会偏爱其中几个：这里按不同的受欢迎程度随机抽取。横线是
# factor 为 1.25 的 capacity：线以上的被丢弃，线以下空着的是白算。
# %%
tokens, experts, k = 4096, 32, 2
generator = torch.Generator().manual_seed(0)
drawing, axes = lab.figure(columns=3, width=11, sharey=True)
for axis, skew in zip(axes, (0.0, 0.5, 1.0)):
    popularity = (torch.randn(experts, generator=generator) * skew).exp()
    chosen = torch.multinomial(popularity.expand(tokens, -1), k, generator=generator)
    load = torch.bincount(chosen.flatten(), minlength=experts)
    capacity = 1.25 * tokens * k / experts
    dropped = (load - capacity).clamp(min=0).sum().item() / (tokens * k)
    axis.bar(range(experts), load.tolist(), color=lab.COLOURS[0])
    axis.axhline(capacity, color=lab.COLOURS[4], ls=":")
    axis.set(title=f"skew {skew:g}: {100 * dropped:.0f} % dropped", xlabel="expert")
axes[0].set(ylabel="tokens")
lab.show(drawing)
# %% [markdown]
# ## What a factor costs · capacity factor 的代价
#
# A larger factor drops less and computes more empty rows.
#
# factor 越大，丢得越少，空行算得越多。
# %%
factors = [0.5 + 0.125 * step for step in range(21)]
drawing, axes = lab.figure()
for skew in (0.25, 0.5, 1.0):
    popularity = (torch.randn(experts, generator=generator) * skew).exp()
    chosen = torch.multinomial(popularity.expand(tokens, -1), k, generator=generator)
    load = torch.bincount(chosen.flatten(), minlength=experts).float()
    lost = [(load - f * tokens * k / experts).clamp(min=0).sum().item() / (tokens * k) for f in factors]
    axes.plot(factors, [100 * each for each in lost], label=f"skew {skew:g}")
axes.set(xlabel="capacity factor", ylabel="% of the assignments dropped")
axes.legend(frameon=False)
lab.show(drawing)
# %% [markdown]
# ## The exchange · 交换
#
# Every rank sends each other rank its tokens: an all-to-all with uneven sizes. The rank with the popular
# expert receives most, and everybody waits for it.
#
# 每个 rank 把 token 发给其他每个 rank：大小不等的 all-to-all。拥有热门 expert 的 rank 收得最多，所有人都等它。
# %%
def exchange(rows: list[int]):
    def program(rank: int) -> None:
        ranks, hidden = dist.get_world_size(), 1024
        sent = torch.empty(sum(rows), hidden, device="meta")
        received = torch.empty(ranks * rows[rank], hidden, device="meta")
        dist.all_to_all_single(received, sent, [rows[rank]] * ranks, rows)

    return program


even = lab.run(exchange([512] * 8), 8).on("dgx-h100")
skewed = lab.run(exchange([2048] + [292] * 7), 8).on("dgx-h100")
print("even:  ", lab.seconds_text(even.seconds))
print("skewed:", lab.seconds_text(skewed.seconds), "for as many tokens")
# %% [markdown]
# Over more nodes the slow links decide. 4096 tokens per rank, hidden 7168, bf16, to k experts anywhere;
# DeepSeek-V3 sends each token to at most 4 nodes for this reason.
#
# 跨 node 时慢链路说了算。每个 rank 4096 个 token、hidden 7168、bf16，发给任意位置的 k 个 expert；DeepSeek-V3 因此让每个
# token 最多去 4 个 node。
# %%
def spread(nodes: int) -> float:
    ranks = 8 * nodes

    def program(rank: int) -> None:
        rows = 4096 // ranks * ranks
        tensor = torch.empty(rows, 7168, dtype=torch.bfloat16, device="meta")
        dist.all_to_all_single(torch.empty_like(tensor), tensor)

    return lab.run(program, ranks).on(f"h800-v3*{nodes}").seconds


drawing, axes = lab.figure(height=3)
axes.bar([str(n) for n in (1, 2, 4, 8)], [spread(n) * 1e3 for n in (1, 2, 4, 8)], color=lab.COLOURS[0])
axes.set(xlabel="nodes of 8", ylabel="ms, one copy of each token")
lab.show(drawing)
# %% [markdown]
# ## Your turn · 轮到你了
#
# Fill in the cell, run the next one, then `grader notebook export a8` and
# `grader check a8.load_balancing_loss`. 填好 cell，运行下一个，再执行这两条命令。
# %% task=a8.load_balancing_loss
# %%
try:
    uniform = torch.full((64, 8), 1 / 8)
    spread_out = torch.arange(128).reshape(64, 2) % 8
    print("uniform:", load_balancing_loss(uniform, spread_out, 8), "(expected 1)")
    print("all to one:", load_balancing_loss(torch.eye(8)[[0] * 64], torch.zeros(64, 1, dtype=torch.long), 8))
except NotImplementedError as task:
    print(task, "is not written yet")
