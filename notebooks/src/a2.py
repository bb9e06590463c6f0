# %% [markdown]
# # Assignment 2: all-reduce on rings, trees and hierarchies · 作业 2：环、超立方体与分层的 all-reduce
#
# The steps of a ring, drawn; and which algorithm is fastest at which size. The tasks are in
# `assignments/a2_ring_all_reduce`.
#
# 把环的每一步画出来；再看哪个算法在哪个大小上最快。任务在 `assignments/a2_ring_all_reduce`。
# %%
import torch
import torch.distributed as dist

from grader import lab

lab.assignments_here()
# %% [markdown]
# ## The steps of a ring · 环的每一步
#
# Four ranks, four chunks. A cell holds how many ranks' parts are added up in that chunk of that rank
# after the step: the reduce-scatter ends with one complete chunk (4) on each rank, the all-gather
# spreads them. The index rules are in the handout; the figures below are the handout's table.
#
# 四个 rank，四个 chunk。每格写的是这一步之后该 rank 的该 chunk 里累加了几个 rank 的份：reduce-scatter 结束时每个
# rank 有一个完整的 chunk（4），all-gather 再把它们散开。下标规则在讲义里，下图就是讲义里的那张表。
# %%
after = {
    "begin": ["1111", "1111", "1111", "1111"],
    "step 0": ["1121", "1112", "2111", "1211"],
    "step 1": ["1321", "1132", "2113", "3211"],
    "step 2": ["4321", "1432", "2143", "3214"],
    "step 3": ["4324", "4432", "2443", "3244"],
    "step 4": ["4344", "4434", "4443", "3444"],
    "step 5": ["4444", "4444", "4444", "4444"],
}
drawing, axes = lab.figure(columns=len(after), width=11, height=2.2)
for axis, (name, rows) in zip(axes, after.items()):
    axis.imshow([[int(cell) for cell in row] for row in rows], cmap="Blues", vmin=0, vmax=6)
    for rank, row in enumerate(rows):
        for chunk, cell in enumerate(row):
            axis.text(chunk, rank, cell, ha="center", va="center", fontsize=8)
    axis.set(title=name, xticks=[], yticks=range(4))
    axis.grid(False)
axes[0].set(ylabel="rank", xlabel="chunk")
lab.show(drawing)
# %% [markdown]
# ## Time against size, and the crossover · 时间与大小，以及交叉点
#
# The table of the handout for p = 12 ranks: how many α, how many nβ. At small sizes the number of
# rounds decides, at large ones the bytes; in between the curves cross.
#
# 讲义里的表取 p = 12 个 rank：多少个 α，多少个 nβ。小的时候轮数决定快慢，大的时候字节数决定；中间曲线相交。
# %%
alpha, beta = 5e-6, 1 / 50e9
costs = {
    "every pair": (11, 11),
    "parameter server": (2, 22),
    "ring": (22, 1.83),
    "recursive doubling": (5, 5),
    "halving-doubling": (8, 3.75),
}
sizes = [2**k for k in range(8, 31)]
drawing, axes = lab.figure(height=4)
for name, (alphas, betas) in costs.items():
    axes.loglog(sizes, [(alphas * alpha + betas * n * beta) * 1e6 for n in sizes], label=name)
cross = (22 - 8) * alpha / ((3.75 - 1.83) * beta)
axes.axvline(cross, color=lab.COLOURS[5], ls=":")
axes.annotate(f"ring and halving-doubling\ncross at {cross / 1e6:.2f} MB", (cross, 20), fontsize=8)
axes.set(xlabel="bytes of the vector", ylabel="µs", title="12 ranks, α = 5 µs, 50 GB/s")
axes.legend(frameon=False, fontsize=8)
lab.show(drawing)
# %% [markdown]
# ## What a library does · 库是怎么做的
#
# `dist.all_reduce` on the presets: inside one node, then over more and more of them. busbw is what
# nccl-tests print; it is flat where the links are busy all the time.
#
# 在各个 preset 上的 `dist.all_reduce`：先在一个 node 内，再跨越更多 node。busbw 就是 nccl-tests 打印的那个数；链路
# 一直忙的时候它是平的。
# %%
def library(ranks: int, nbytes: int) -> lab.Run:
    def all_reduce(rank: int) -> None:
        dist.all_reduce(torch.empty(nbytes // 4, device="meta"))

    return lab.run(all_reduce, ranks)


sizes = [4**k for k in range(8, 15)]
drawing, axes = lab.figure()
for nodes in (1, 2, 4):
    ranks = 8 * nodes
    seconds = [library(ranks, n).on(f"dgx-h100*{nodes}").seconds for n in sizes]
    busbw = [n / s * 2 * (ranks - 1) / ranks / 1e9 for n, s in zip(sizes, seconds)]
    axes.loglog(sizes, busbw, "o-", ms=3, label=f"{nodes} × dgx-h100")
axes.set(xlabel="bytes", ylabel="busbw, GB/s")
axes.legend(frameon=False)
lab.show(drawing)
# %% [markdown]
# ## Your turn · 轮到你了
#
# Fill in the cell; the next one draws your own run and compares it with the bound 2(p − 1)/p · n that
# nobody can beat. Then `grader notebook export a2` and `grader check a2.ring_all_reduce`.
#
# 填好 cell；下一个 cell 画出你自己的运行，并与谁也无法突破的下界 2(p − 1)/p · n 比较。然后执行上面两条命令。
# %%
from assignments.a2_ring_all_reduce.given import check_op, combine, place
# %% task=a2.ring_all_reduce
# %%
def mine(rank: int) -> None:
    tensor = torch.full((400_000,), float(rank))
    ring_all_reduce(tensor)
    assert (tensor == 6).all(), f"rank {rank} holds {tensor[0]:g}, expected 6"


own = lab.run(mine, ranks=4, title="your ring")
print("sent per rank:", own.timed.bytes_sent, "bound:", 2 * 3 * 1_600_000 // 4)
own
