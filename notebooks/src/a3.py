# %% [markdown]
# # Assignment 3: data parallelism, from DDP to fully sharded · 作业 3：数据并行，从 DDP 到全切分
#
# Where the memory goes, and why gradients should leave before backward has ended. The tasks are in
# `assignments/a3_data_parallel`.
#
# 显存都去哪儿了；为什么梯度应该在 backward 结束之前就出发。任务在 `assignments/a3_data_parallel`。
# %%
import torch
import torch.distributed as dist

from grader import lab

lab.assignments_here()
# %% [markdown]
# ## Memory per GPU, by part · 每块 GPU 的显存构成
#
# Adam in mixed precision keeps 16 bytes per parameter: 2 for the weight, 2 for its gradient, 12 for the
# optimizer. ZeRO cuts one part after the other over the N ranks. 7.5 billion parameters:
#
# 混合精度的 Adam 每个参数 16 字节：权重 2，梯度 2，优化器 12。ZeRO 把各部分依次在 N 个 rank 上切开。75 亿参数：
# %%
parameters = 7.5e9
stages = {"replicas": (2, 2, 12), "ZeRO-1": (2, 2, "12"), "ZeRO-2": (2, "2", "12"),
          "ZeRO-3": ("2", "2", "12")}  # what stands in quotes is divided by N
parts = ("weights", "gradients", "optimizer")
drawing, axes = lab.figure(columns=3, width=10, sharey=True)
for axis, ranks in zip(axes, (4, 16, 64)):
    bottom = [0.0] * len(stages)
    for number, part in enumerate(parts):
        share = [row[number] if isinstance(row[number], int) else int(row[number]) / ranks
                 for row in stages.values()]
        height = [each * parameters / 1e9 for each in share]
        axis.bar(list(stages), height, bottom=bottom, label=part, color=lab.COLOURS[number])
        bottom = [a + b for a, b in zip(bottom, height)]
    axis.axhline(80, color=lab.COLOURS[4], ls=":")
    axis.set(title=f"N = {ranks}")
    axis.tick_params(axis="x", rotation=35)
axes[0].set(ylabel="GB per GPU")
axes[0].legend(frameon=False, fontsize=8)
lab.show(drawing)
# %% [markdown]
# The dotted line is one H100. 虚线是一块 H100 的容量。
#
# ## Communication behind computation · 把通信藏在计算后面
#
# A toy: four products of backward, each followed by a message of the same length. First one after the
# other; then every message is started and waited for only at the end.
#
# 一个玩具：backward 的四次乘积，每次之后有一条同样长的消息。先是一个接一个；然后每条消息只发起，到最后才等。
# %%
machine = lab.uniform(4, 2e-6, 25e9, flops=60e12)


def layers(overlap: bool):
    def backward(rank: int) -> None:
        a = torch.empty(2048, 2048, device="meta")
        works = []
        for _ in range(4):
            gradient = a @ a
            work = dist.all_reduce(gradient, async_op=True)
            if overlap:
                works.append(work)
            else:
                work.wait()
        for work in works:
            work.wait()

    return backward


apart = lab.run(layers(False), 4, machine, compute=True, title="one after the other")
together = lab.run(layers(True), 4, machine, compute=True, title="started early, waited for late")
print(lab.seconds_text(apart.seconds), "and", lab.seconds_text(together.seconds))
apart
# %%
together
# %% [markdown]
# ## How large should a bucket be? · 桶应该多大？
#
# Many small messages pay α each; one large one cannot begin before the last gradient. 100 MB of
# gradients, made in 100 equal steps within 10 ms:
#
# 很多小消息每条都付一个 α；一条大消息要等最后一个梯度才能出发。100 MB 梯度，10 ms 内分 100 步均匀产生：
# %%
alpha, beta, backward_seconds, total = 50e-6, 1 / 20e9, 10e-3, 100e6
buckets = [1e6 * k for k in (1, 2, 5, 10, 20, 25, 50, 100)]


def finish(bucket: float) -> float:
    free, made = 0.0, 0.0
    while made < total:
        made += bucket
        ready = backward_seconds * min(made, total) / total
        free = max(free, ready) + 2 * alpha + 2 * bucket * beta
    return free


drawing, axes = lab.figure()
axes.semilogx([b / 1e6 for b in buckets], [finish(b) * 1e3 for b in buckets], "o-")
axes.axhline(backward_seconds * 1e3, color=lab.COLOURS[5], ls=":")
axes.set(xlabel="MB in a bucket", ylabel="ms until all gradients are averaged")
lab.show(drawing)
# %% [markdown]
# ## Your turn · 轮到你了
#
# The tasks are classes: write them in `assignments/a3_data_parallel`. This cell draws a step of your
# DDP. 任务都是类：直接写在 `assignments/a3_data_parallel` 里。下面的 cell 画出你的 DDP 的一步。
# %%
def step(rank: int) -> None:
    from assignments.a3_data_parallel.ddp import DistributedDataParallel

    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 256) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_bytes=300_000)
    model(torch.ones(64, 256)).sum().backward()
    model.finish_gradient_synchronization()


own = lab.run(step, 4, lab.uniform(4, 2e-6, 5e9, flops=1e12), compute=True, title="your DDP")
own
