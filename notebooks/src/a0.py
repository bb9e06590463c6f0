# %% [markdown]
# # Assignment 0: links, paths and networks · 作业 0：链路、路径与网络
#
# How long does a message take? Two numbers answer most of it: a latency α, which every message pays,
# and the seconds β that each byte occupies the link. This notebook measures both on simulated
# machines, and draws two networks. The tasks themselves are in `assignments/a0_interconnect`.
#
# 一条消息要多久？两个数基本就能回答：每条消息都要付的 latency α，以及每个字节占用链路的秒数 β。这个
# notebook 在模拟的机器上测出这两个数，再画两个网络。任务本身在 `assignments/a0_interconnect`。
# %%
import networkx as nx
import torch
import torch.distributed as dist

from grader import lab

lab.assignments_here()
# %% [markdown]
# ## Time against size · 时间与大小
#
# Rank 0 sends one message to the last rank. Small messages all take the same time (α); from some size
# on, twice the bytes take twice the time (β). Where the two meet, α = nβ: shorter messages waste the
# link, longer ones do not care about latency.
#
# rank 0 给最后一个 rank 发一条消息。小消息用时都一样（α）；超过某个大小后，字节翻倍时间就翻倍（β）。
# 两者相等处 α = nβ：更短的消息浪费链路，更长的消息不在乎 latency。
# %%
def one_message(nbytes: int, ranks: int) -> lab.Run:
    def program(rank: int) -> None:
        buffer = torch.empty(nbytes, dtype=torch.uint8, device="meta")
        if rank == 0:
            dist.send(buffer, dst=ranks - 1)
        elif rank == ranks - 1:
            dist.recv(buffer, src=0)

    return lab.run(program, ranks)


sizes = [4**k for k in range(3, 16)]
runs = {n: one_message(n, ranks=16) for n in sizes}
drawing, axes = lab.figure()
for cluster in ("dgx-h100*2", "dgx-a100*2", "pcie-4090x8*2"):
    axes.loglog(sizes, [runs[n].on(cluster).seconds * 1e6 for n in sizes], "o-", ms=3, label=cluster)
axes.set(xlabel="bytes", ylabel="µs", title="one message, from one node to another")
axes.legend(frameon=False)
lab.show(drawing)
# %% [markdown]
# ## Inside a node, between nodes · node 内与 node 间
#
# The same message to every other rank of two nodes: the path decides.
#
# 把同一条消息发给两个 node 的其他每个 rank：走哪条路径决定一切。
# %%
def to(target: int) -> lab.Run:
    def program(rank: int) -> None:
        buffer = torch.empty(64 << 20, dtype=torch.uint8, device="meta")
        if rank == 0:
            dist.send(buffer, dst=target)
        elif rank == target:
            dist.recv(buffer, src=0)

    return lab.run(program, 16)


targets = range(1, 16)
across = {target: to(target) for target in targets}
drawing, axes = lab.figure(columns=2, width=9)
for axis, cluster in zip(axes, ("dgx-h100*2", "pcie-4090x8*2")):
    axis.bar(targets, [across[t].on(cluster).seconds * 1e3 for t in targets], color=lab.COLOURS[0])
    axis.set(title=cluster, xlabel="from rank 0 to rank", ylabel="ms for 64 MiB")
lab.show(drawing)
# %% [markdown]
# ## Networks are graphs · 网络就是图
#
# Count hosts, links, the diameter, and the links that a cut through the middle meets. Here a
# hypercube, which is none of the tasks; yours are trees, leaf and spine, fat-trees and tori.
#
# 数一数主机、链路、直径，以及从中间切一刀会切断几条链路。这里画的是超立方体，它不是任务；你的任务是三层树、
# leaf–spine、fat-tree 和 torus。
# %%
cube = nx.hypercube_graph(4)
nodes = sorted(cube)
half = nodes[: len(nodes) // 2]
print(len(nodes), "hosts,", cube.number_of_edges(), "links, diameter", nx.diameter(cube),
      ", bisection", nx.cut_size(cube, half))
places = nx.spring_layout(cube, seed=3)
drawing, axes = lab.figure(width=5, height=4)
for a, b in cube.edges:
    axes.plot(*zip(places[a], places[b]), color=lab.COLOURS[5], lw=0.8)
axes.scatter(*zip(*(places[n] for n in nodes)), color=lab.COLOURS[0], zorder=2)
axes.set_axis_off()
lab.show(drawing)
# %% [markdown]
# ## Your turn · 轮到你了
#
# Fill in the cell, run the next one, then `grader notebook export a0` and
# `grader check a0.path_time`. 填好下面这个 cell，运行再下一个，然后执行上面两条命令。
# %%
from collections.abc import Sequence

from assignments.a0_interconnect.given import Link
# %% task=a0.path_time
# %%
hops = [Link(1e-6, 50e9), Link(2e-6, 12.5e9), Link(1e-6, 50e9)]
try:
    chunks = [4**k for k in range(5, 13)]
    drawing, axes = lab.figure()
    axes.semilogx(chunks, [path_time(16 << 20, hops, c) * 1e3 for c in chunks], "o-", label="chunks")
    axes.axhline(path_time(16 << 20, hops) * 1e3, color=lab.COLOURS[1], label="whole")
    axes.set(xlabel="bytes of a chunk", ylabel="ms for 16 MiB", title="three hops")
    axes.legend(frameon=False)
    picture = lab.show(drawing)
except NotImplementedError as task:
    picture = None
    print(task, "is not written yet")
picture
