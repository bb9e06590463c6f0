# %% [markdown]
# # Assignment 5: sequence and context parallelism · 作业 5：序列并行与上下文并行
#
# Who does how much of a causal attention, and what sequence parallelism saves. The tasks are in
# `assignments/a5_sequence_parallel`.
#
# causal attention 的工作怎样分给各 rank，以及序列并行省下了什么。任务在 `assignments/a5_sequence_parallel`。
# %%
import torch
import torch.distributed as dist

from grader import lab

lab.assignments_here()
# %% [markdown]
# ## A causal mask is a triangle · causal mask 是个三角形
#
# Rows are queries, columns keys; a query sees what stands before it. Cut the sequence into four
# contiguous shares and the last rank has seven times the work of the first. Cut it into eight chunks
# and give rank i chunks i and 7 − i, and all have the same. Colours are the ranks that own the query.
#
# 行是 query，列是 key；query 只看得见它之前的。把序列连续地切成四份，最后一个 rank 的工作是第一个的七倍。切成八个
# chunk、rank i 拿第 i 和第 7 − i 个，大家就一样多。颜色是拥有这个 query 的 rank。
# %%
owners = {"contiguous": [0, 0, 1, 1, 2, 2, 3, 3], "zigzag": [0, 1, 2, 3, 3, 2, 1, 0]}
drawing, axes = lab.figure(columns=4, width=11, height=2.9)
for axis, bars, (name, owner) in zip(axes[::2], axes[1::2], owners.items()):
    work = [0.0] * 4
    for query in range(8):
        for key in range(query + 1):
            axis.add_patch(lab.rectangle(key, 7 - query, 0.94, lab.COLOURS[owner[query]]))
            work[owner[query]] += 0.5 if key == query else 1.0
    axis.set(title=name, xlim=(0, 8), ylim=(0, 8), xticks=[], yticks=[], xlabel="keys", ylabel="queries")
    axis.grid(False)
    bars.bar(range(4), work, color=lab.COLOURS[:4])
    bars.set(title="blocks computed", xlabel="rank", xticks=range(4), ylim=(0, 16))
lab.show(drawing)
# %% [markdown]
# ## Two halves of a softmax · softmax 的两半
#
# A softmax over keys that arrive one block at a time needs two numbers per query beside the output:
# here the log of the sum of exponentials. exp(lse) is how much weight a half deserves.
#
# key 一块一块到达时，softmax 除了输出还要为每个 query 记住一个数：指数和的对数 lse。exp(lse) 就是这一半应得的权重。
# %%
scores = torch.tensor([2.0, -1.0, 0.5, 3.0, 1.0, -2.0])
for name, block in (("first half", scores[:3]), ("second half", scores[3:]), ("whole", scores)):
    print(f"{name:12} lse = {torch.logsumexp(block, 0).item():.4f}   sum of exp = {block.exp().sum():.3f}")
# %% [markdown]
# ## Activations per layer · 每层的激活
#
# Bytes of one layer, s = 8192, b = 1, h = 8192, a = 64 heads, t = 8 [Korthikanti et al. 2022].
# Tensor parallelism alone leaves norms and dropouts whole on every rank; cut along the sequence they
# shrink as well.
#
# 一层的字节数，s = 8192、b = 1、h = 8192、a = 64、t = 8 [Korthikanti et al. 2022]。只用张量并行时 norm 和 dropout 在每个
# rank 上都是完整的；沿序列切开后它们也会变小。
# %%
s, b, h, a, t = 8192, 1, 8192, 64, 8
attention = 5 * a * s / h
layer = {
    "one GPU": (34, attention),
    "TP": (10 + 24 / t, attention / t),
    "TP + SP": (34 / t, attention / t),
    "TP + SP,\nselective": (34 / t, 0.0),
}
drawing, axes = lab.figure()
rest = [s * b * h * each[0] / 1e9 for each in layer.values()]
scores_of = [s * b * h * each[1] / 1e9 for each in layer.values()]
axes.bar(list(layer), rest, label="everything else", color=lab.COLOURS[0])
axes.bar(list(layer), scores_of, bottom=rest, label="attention scores", color=lab.COLOURS[1])
axes.set(ylabel="GB per layer and GPU")
axes.legend(frameon=False)
lab.show(drawing)
# %% [markdown]
# ## The ring hides behind the blocks · 环藏在分块计算后面
#
# A block of keys and values travels while the block before is being computed. Longer sequences make
# the computation grow with s², the message with s: from some length on the ring costs nothing.
#
# 一块 key/value 在路上时，前一块正在计算。序列变长，计算按 s² 增长，消息按 s 增长：超过某个长度后环就是免费的。
# %%
lengths = [2**k for k in range(10, 21)]
ranks, heads_hidden, rate, bandwidth = 8, 4096, 400e12, 50e9
drawing, axes = lab.figure()
axes.loglog(lengths, [4 * (n / ranks) ** 2 * heads_hidden / rate * 1e3 for n in lengths],
            label="one block: computation")
axes.loglog(lengths, [4 * (n / ranks) * heads_hidden / bandwidth * 1e3 for n in lengths],
            label="one block: keys and values on the wire")
axes.set(xlabel="tokens in all, on 8 ranks", ylabel="ms")
axes.legend(frameon=False)
lab.show(drawing)
# %% [markdown]
# ## Your turn · 轮到你了
#
# Fill in the cell, run the next one, then `grader notebook export a5` and
# `grader check a5.merge_attention`. 填好 cell，运行下一个，再执行这两条命令。
# %% task=a5.merge_attention
# %%
torch.manual_seed(0)
query, key, value = torch.randn(5, 16), torch.randn(12, 16), torch.randn(12, 16)


def part(keys: slice) -> tuple[torch.Tensor, torch.Tensor]:
    products = query @ key[keys].T / 4
    return products.softmax(-1) @ value[keys], products.logsumexp(-1)


try:
    out, lse = merge_attention(*part(slice(0, 7)), *part(slice(7, 12)))
    print("largest difference:", (out - part(slice(0, 12))[0]).abs().max().item())
except NotImplementedError as task:
    print(task, "is not written yet")
