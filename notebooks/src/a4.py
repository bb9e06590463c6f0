# %% [markdown]
# # Assignment 4: tensor parallelism · 作业 4：张量并行
#
# What is cut, what is whole, and what the all-reduces cost. The tasks are in
# `assignments/a4_tensor_parallel`.
#
# 什么被切开，什么是完整的，all-reduce 要花多少。任务在 `assignments/a4_tensor_parallel`。
# %%
import torch
import torch.distributed as dist

from grader import lab

lab.assignments_here()
# %% [markdown]
# ## Columns, then rows · 先列后行
#
# Y = g(X·A)·B. A is cut by columns, so each rank has some hidden units whole and g may act on them;
# B is cut by rows, so each rank has a summand of Y. Colours are ranks; grey is on every rank.
#
# Y = g(X·A)·B。A 按列切，每个 rank 完整拥有一部分 hidden，g 可以直接作用；B 按行切，每个 rank 得到 Y 的一个加数。
# 颜色是 rank，灰色是每个 rank 都有。
# %%
drawing, axes = lab.figure(width=9, height=2.6)
x = 0.0
for name, (rows, columns), cut in (
    ("X", (3, 4), None), ("A", (4, 8), "columns"), ("g(XA)", (3, 8), "columns"),
    ("B", (8, 4), "rows"), ("Y, a summand each", (3, 4), "sum"),
):
    for row in range(rows):
        for column in range(columns):
            rank = {"columns": column * 4 // columns, "rows": row * 4 // rows}.get(cut or "")
            colour = "#c3c8d0" if rank is None else lab.COLOURS[rank]
            axes.add_patch(lab.rectangle(x + column * 0.45, -row * 0.45, 0.41, colour))
    axes.text(x + columns * 0.225, 0.75, name, ha="center")
    x += columns * 0.45 + 0.9
axes.set(xlim=(-0.3, x), ylim=(-3.6, 1.3), aspect="equal")
axes.set_axis_off()
lab.show(drawing)
# %% [markdown]
# ## What an all-reduce of activations costs · 激活的 all-reduce 要多久
#
# One layer of a model with hidden size 8192, 4096 tokens, bf16: two all-reduces forward, two backward.
# Inside a node it is a fraction of the computation, beyond it is most of the time. That is why t
# rarely exceeds the GPUs of a node.
#
# hidden 8192、4096 个 token、bf16 的一层：forward 两次 all-reduce，backward 两次。node 内只占计算的一小部分，跨 node
# 就成了大头。所以 t 很少超过一个 node 的 GPU 数。
# %%
tokens, hidden, rate = 4096, 8192, 400e12


def all_reduce(rank: int) -> None:
    dist.all_reduce(torch.empty(tokens, hidden, dtype=torch.bfloat16, device="meta"))


degrees = [1, 2, 4, 8, 16, 32]
compute = [72 * tokens * hidden**2 / rate / t * 1e3 for t in degrees]
talk = [0.0] + [4 * lab.run(all_reduce, t).on(f"dgx-h100*{-(-t // 8)}").seconds * 1e3
                for t in degrees[1:]]
drawing, axes = lab.figure()
names = [str(t) for t in degrees]
axes.bar(names, compute, label="computation", color=lab.COLOURS[0])
axes.bar(names, talk, bottom=compute, label="all-reduce", color=lab.COLOURS[3])
axes.set(xlabel="t, tensor-parallel ranks (8 in a node)", ylabel="ms of a layer, both ways")
axes.legend(frameon=False)
lab.show(drawing)
# %% [markdown]
# ## Why the loss needs care · 为什么 loss 要小心
#
# exp(x) overflows long before logits do, so a maximum is subtracted; on a cut vocabulary it must be
# the maximum of *all* shards. What happens with only the own one:
#
# exp(x) 比 logits 早得多就会溢出，所以要先减最大值；词表切开之后必须是*所有* shard 的最大值。只用自己的会怎样：
# %%
logits = torch.tensor([[12.0, 900.0], [-5.0, 3.0]])
print("no maximum:   ", logits.exp().sum())
print("each its own: ", [(shard - shard.max()).exp().sum().item() for shard in logits],
      "are of different scales: adding them up is wrong")
print("right:        ", torch.logsumexp(logits.flatten(), 0).item())
# %% [markdown]
# ## Your turn · 轮到你了
#
# Fill in the cell, run the next one, then `grader notebook export a4` and
# `grader check a4.copy_to_tensor_parallel`. 填好 cell，运行下一个，再执行这两条命令。
# %% task=a4.copy_to_tensor_parallel
# %%
def mine(rank: int) -> None:
    x = torch.ones(3, requires_grad=True)
    (copy_to_tensor_parallel(x) * (rank + 1)).sum().backward()
    assert (x.grad == 10).all(), f"rank {rank}: gradient {x.grad.tolist()}, expected 1 + 2 + 3 + 4"


lab.run(mine, 4, title="your copy_to_tensor_parallel")
