# %% [markdown]
# # Assignment 7: DualPipe · 作业 7：DualPipe
#
# Two directions at once, and communication beside computation. The tasks are in `assignments/a7_dualpipe`.
#
# 两个方向同时走，通信与计算并行。任务在 `assignments/a7_dualpipe`。
# %%
import torch

from grader import lab

lab.assignments_here()
from assignments.a6_pipeline_parallel.picture import to_svg
from assignments.a6_pipeline_parallel.schedule import parse_schedule
from assignments.a6_pipeline_parallel.timeline import Costs, time_schedule
# %% [markdown]
# ## Two ends · 两端
#
# Two ranks, two stages, each rank holds both: micro-batches 0 and 1 enter at rank 0, micro-batches 2
# and 3 at rank 1. Written by hand, which is easy with two ranks: while one direction is away, the other
# has work. With more ranks it is not, and nothing is overlapped yet: a step such as `F1.3+B0.0`, a
# forward of one direction and a backward of the other at once, is what DualPipe is built around.
#
# 两个 rank、两个 stage，每个 rank 两个都有：micro-batch 0、1 从 rank 0 进，2、3 从 rank 1 进。这是手写的，两个 rank 时很容易：
# 一个方向不在时另一个方向有事做。rank 多了就不容易了，而且这里还没有重叠：像 `F1.3+B0.0` 这样把一个方向的 forward 和另一个
# 方向的 backward 合成一步，才是 DualPipe 的核心。
# %%
text = """
F0.0 F1.2 B1.2 F0.1 B0.0 F1.3 B1.3 B0.1
F0.2 F1.0 B1.0 F0.3 B0.2 F1.1 B1.1 B0.3
"""
timeline = time_schedule(parse_schedule(text.strip()), Costs(1, 1, 1, 3))
print(f"makespan {timeline.makespan:g}, bubble {timeline.bubble:g}, peak {timeline.peak}")
lab.Svg(to_svg(timeline, "two directions, by hand"))
# %% [markdown]
# ## The bubble, side by side · 各种 bubble 的比较
#
# PP = 8 stages, F = I = W = 1, FB the cost of an overlapped pair: 3 when nothing overlaps, 2 when a
# forward hides completely. DualPipe keeps two copies of the parameters for it.
#
# PP = 8 个 stage，F = I = W = 1，FB 是重叠对的代价：3 表示完全不重叠，2 表示一个 forward 完全被藏住。为此 DualPipe 存两份
# 参数。
# %%
names = ["1F1B", "ZB1P", "DualPipe\nFB = 3", "DualPipe\nFB = 2"]
drawing, axes = lab.figure(columns=3, width=10)
for axis, title, values in zip(
    axes,
    ("bubble", "peak activations", "copies of parameters"),
    ((21, 7, 6, 3), (8, 8, 9, 9), (1, 1, 2, 2)),
):
    axis.bar(names, values, color=lab.COLOURS[:4])
    axis.set(title=title)
    axis.tick_params(axis="x", labelsize=8)
lab.show(drawing)
# %% [markdown]
# ## What an overlapped pair gains · 重叠对的收益
#
# A forward and a backward of a MoE layer alternate between computing (c) and communicating (m). One
# after the other they take the sum; together at best the larger of all computation and all
# communication.
#
# MoE 层的 forward 和 backward 在计算（c）和通信（m）之间交替。先后执行用时相加；一起执行，最好是全部计算与全部通信中较大的。
# %%
phases = [("c", 2), ("m", 2), ("c", 2), ("m", 2)]
drawing, axes = lab.figure(height=2.4)


def bars(row: float, start: float, colours: dict[str, str]) -> float:
    for kind, length in phases:
        axes.barh(row, length - 0.06, left=start, color=colours[kind], height=0.7)
        start += length
    return start


forward, backward = {"c": "#2f6fd0", "m": "#e08a1e"}, {"c": "#2a9d6f", "m": "#f0c37a"}
end = bars(3, 0, forward)
end = bars(3, end, backward)
bars(1, 0, forward)
bars(0, 2, backward)
axes.set(yticks=[3, 1, 0], yticklabels=["in turn", "forward", "backward"], xlabel="time")
lab.show(drawing)
# %% [markdown]
# ## Your turn · 轮到你了
#
# Fill in the cell; the next one draws it beside the handout's makespan (26 for 4 ranks, 8
# micro-batches). Then `grader notebook export a7` and `grader check a7.dualpipe_schedule`.
#
# 填好 cell；下一个 cell 画出来，并与讲义里的 makespan（4 个 rank、8 个 micro-batch 时为 26）对照。然后执行这两条命令。
# %%
from collections.abc import Sequence

from assignments.a6_pipeline_parallel.schedule import Action, Overlapped, Schedule, Step
# %% task=a7.dualpipe_schedule
# %%
try:
    timeline = time_schedule(dualpipe_schedule(4, 8), Costs(1, 1, 1, 3))
    print(f"makespan {timeline.makespan:g} (26), bubble {timeline.bubble:g}, peak {timeline.peak}")
    picture = lab.Svg(to_svg(timeline, "your dualpipe_schedule(4, 8)"))
except NotImplementedError as task:
    picture = None
    print(task, "is not written yet")
picture
