# %% [markdown]
# # Assignment 6: pipeline parallelism · 作业 6：流水线并行
#
# A schedule as a picture beside its bubble. The tasks are in `assignments/a6_pipeline_parallel`.
#
# 把 schedule 画成图，旁边写上它的 bubble。任务在 `assignments/a6_pipeline_parallel`。
# %%
import torch

from grader import lab

lab.assignments_here()
from assignments.a6_pipeline_parallel.picture import to_svg, to_terminal
from assignments.a6_pipeline_parallel.schedule import parse_schedule
from assignments.a6_pipeline_parallel.timeline import Costs, time_schedule
# %% [markdown]
# ## No pipeline at all · 根本没有流水线
#
# One line per rank, one word per action: `F0.1` is the forward of stage 0 on micro-batch 1. Here every
# micro-batch goes all the way down and back before the next one starts: each rank works 1/4 of the time.
#
# 每个 rank 一行，每个动作一个词：`F0.1` 是 stage 0 在 micro-batch 1 上的 forward。这里每个 micro-batch 走完一个来回，
# 下一个才开始：每个 rank 只有 1/4 的时间在工作。
# %%
text = """
F0.0 B0.0 F0.1 B0.1 F0.2 B0.2
F1.0 B1.0 F1.1 B1.1 F1.2 B1.2
F2.0 B2.0 F2.1 B2.1 F2.2 B2.2
F3.0 B3.0 F3.1 B3.1 F3.2 B3.2
"""
timeline = time_schedule(parse_schedule(text.strip()), Costs())
print(f"makespan {timeline.makespan:g}, bubble {timeline.bubble:g}, peak {timeline.peak}")
lab.Svg(to_svg(timeline, "one micro-batch at a time"))
# %% [markdown]
# ## The formulas · 公式
#
# p ranks, m micro-batches, F, I, W the seconds of forward, input gradient and weight gradient of a
# chunk, B = I + W. The bubble of 1F1B does not depend on m: more micro-batches make it a smaller share.
#
# p 个 rank，m 个 micro-batch；F、I、W 是一个 chunk 的 forward、输入梯度、权重梯度的秒数，B = I + W。1F1B 的 bubble 与 m
# 无关：micro-batch 越多，它占的比例越小。
#
# | schedule | bubble | peak |
# |---|---|---|
# | GPipe | (p−1)(F+B) | m |
# | 1F1B | (p−1)(F+B) | min(p − rank, m) |
# | interleaved, v chunks | (p−1)(F+B)/v | (v−1)p + 2(p−1−r) + 1 |
# | ZB1P | (p−1)·max(F, I, F+I−W) | min(p, m) |
# %%
p, F, I, W = 8, 1.0, 1.0, 1.0
bubbles = {"GPipe, 1F1B": 21.0, "interleaved, v = 2": 10.5, "interleaved, v = 4": 5.25, "ZB1P": 7.0}
microbatches = [8, 16, 32, 64, 128]
drawing, axes = lab.figure()
for name, bubble in bubbles.items():
    axes.semilogx(microbatches, [100 * bubble / (3 * m + bubble) for m in microbatches], "o-", label=name)
axes.set(xlabel="micro-batches", ylabel="bubble, % of the step", xticks=microbatches,
         xticklabels=microbatches, title="8 ranks, F = I = W = 1")
axes.legend(frameon=False)
lab.show(drawing)
# %% [markdown]
# ## Memory against bubble · 内存换 bubble
#
# Activations of how many micro-batches must the first rank hold? GPipe's grow with m, the others' do not.
#
# 第一个 rank 要同时存多少个 micro-batch 的激活？GPipe 随 m 增长，其他的不会。
# %%
drawing, axes = lab.figure(columns=2, width=9)
names = ["GPipe", "1F1B", "interl. v=2", "ZB1P"]
axes[0].bar(names, [32, 8, 23, 8], color=lab.COLOURS[:4])
axes[0].set(title="peak on rank 0, m = 32, chunks")
axes[1].bar(names, [21, 21, 10.5, 7], color=lab.COLOURS[:4])
axes[1].set(title="bubble, seconds")
for axis in axes:
    axis.tick_params(axis="x", rotation=20)
lab.show(drawing)
# %% [markdown]
# ## Your turn · 轮到你了
#
# Fill in the cell and look at your schedule; `grader draw a6.gpipe_schedule` draws it, too. Then
# `grader notebook export a6` and `grader check a6.gpipe_schedule`.
#
# 填好 cell，看看你的 schedule；`grader draw a6.gpipe_schedule` 也能画。然后执行这两条命令。
# %%
from assignments.a6_pipeline_parallel.schedule import Action, Schedule
# %% task=a6.gpipe_schedule
# %%
try:
    timeline = time_schedule(gpipe_schedule(4, 6), Costs())
    print(f"makespan {timeline.makespan:g}, bubble {timeline.bubble:g} (formula: 9), peak {timeline.peak}")
    picture = lab.Svg(to_svg(timeline, "your gpipe_schedule(4, 6)"))
except NotImplementedError as task:
    picture = None
    print(task, "is not written yet")
picture
