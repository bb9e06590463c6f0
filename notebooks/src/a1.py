# %% [markdown]
# # Assignment 1: collectives from send and receive · 作业 1：用 send/recv 实现集合通信
#
# Every collective is messages between pairs of ranks. This notebook shows what the simulated cluster
# sees of them: time, rounds, bytes, and what goes wrong. The tasks are in `assignments/a1_collectives`.
#
# 每个集合通信都是 rank 之间两两的消息。这个 notebook 展示模拟集群看到的东西：时间、轮数、字节数，以及哪里会出错。
# 任务在 `assignments/a1_collectives`。
# %%
import torch
import torch.distributed as dist

from grader import lab

lab.assignments_here()
# %% [markdown]
# ## A message in virtual time · 虚拟时间里的一条消息
#
# The upper bar of a lane is what the rank does, the bars below are its messages. Here a note is passed
# from rank to rank: a chain of p − 1 messages, each waiting for the one before.
#
# 每条泳道上面的条表示 rank 在做什么，下面的条是它的消息。这里一张字条逐个传下去：p − 1 条消息成一串，每条都等前一条。
# %%
def chain(rank: int) -> None:
    note = torch.full((250_000,), float(rank))
    if rank > 0:
        dist.recv(note, src=rank - 1)
    if rank < dist.get_world_size() - 1:
        dist.send(note, dst=rank + 1)


passed_on = lab.run(chain, ranks=6)
print(passed_on.timed.rounds, "rounds,", lab.seconds_text(passed_on.seconds))
passed_on
# %% [markdown]
# A tree needs ⌈log₂ p⌉ rounds instead of p − 1: in every round all who know tell somebody who does not.
# How much that is:
#
# 树只要 ⌈log₂ p⌉ 轮而不是 p − 1 轮：每一轮里，知道的人都去告诉一个还不知道的人。差别有多大：
# %%
drawing, axes = lab.figure()
ranks = [2, 4, 8, 16, 32, 64, 128]
axes.plot(ranks, [p - 1 for p in ranks], "o-", label="chain")
axes.plot(ranks, [(p - 1).bit_length() for p in ranks], "o-", label="tree")
axes.set(xlabel="ranks", ylabel="rounds", yscale="log", xscale="log")
axes.legend(frameon=False)
lab.show(drawing)
# %% [markdown]
# ## What goes wrong · 会出什么错
#
# Everybody sends first, nobody receives: the cluster says who waits for whom, and where.
#
# 所有人都先发，没有人收：模拟集群会说出谁在等谁、在哪一行。
# %%
def everybody_sends_first(rank: int) -> None:
    peer = rank ^ 1
    mine, theirs = torch.ones(4), torch.empty(4)
    dist.send(mine, dst=peer)
    dist.recv(theirs, src=peer)


stuck = lab.run(everybody_sends_first, ranks=2)
# %% [markdown]
# And a buffer that is read before it has arrived holds NaN, so that luck never hides the fault.
#
# 还没到就去读的缓冲区里是 NaN，所以不会因为侥幸而掩盖错误。
# %%
def too_early(rank: int) -> None:
    buffer = torch.zeros(4)
    if rank == 0:
        dist.isend(torch.ones(4), dst=1).wait()
    else:
        work = dist.irecv(buffer, src=0)
        total = buffer.sum()
        work.wait()


early = lab.run(too_early, ranks=2)
# %% [markdown]
# ## One rank in the middle · 中间有一个 rank
#
# All send to rank 0 at once: its port takes one after the other. This is why a parameter server is slow.
#
# 所有 rank 同时发给 rank 0：它的端口只能一个一个地收。这就是 parameter server 慢的原因。
# %%
def all_to_zero(rank: int) -> None:
    if rank > 0:
        dist.send(torch.ones(250_000), dst=0)
        return
    buffers = [torch.empty(250_000) for _ in range(1, dist.get_world_size())]
    works = [dist.irecv(buffer, src=peer) for peer, buffer in enumerate(buffers, start=1)]
    for work in works:
        work.wait()


lab.run(all_to_zero, ranks=6)
# %% [markdown]
# ## Your turn · 轮到你了
#
# Fill in the cell and run the next one: it shows your own tree. Then `grader notebook export a1` and
# `grader check a1.broadcast`. 填好下面的 cell，再运行下一个，看看你自己的树；然后执行上面两条命令。
# %% task=a1.broadcast
# %%
def mine(rank: int) -> None:
    tensor = torch.full((250_000,), float(rank))
    broadcast(tensor, src=0)
    assert (tensor == 0).all(), f"rank {rank} holds {tensor[0]:g}"


own = lab.run(mine, ranks=8, title="your broadcast")
own
