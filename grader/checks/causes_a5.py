"""From a wrong attention to its likely cause, in one line."""

from __future__ import annotations

import torch

from grader.checks import a4_dense as dense
from grader.checks.a5_cases import CallCase, cut, zigzag_chunks

Suspects = list[tuple[torch.Tensor, str]]


def attention_suspects(case: CallCase, place: int) -> Suspects:
    """Wrong outputs of ring attention on a group rank."""
    size, layout, causal = len(case.members), case.facts["layout"], case.facts["causal"]
    q, k, v = (case.facts[name].double() for name in ("q", "k", "v"))
    parts = [[t.double() for t in case.tensors[i]] for i in range(size)]
    mine = parts[place][0]
    scale = q.shape[-1] ** 0.5

    def own(out: torch.Tensor) -> torch.Tensor:
        return cut(out, place, size, layout)

    found: Suspects = [
        (own(dense.attention(q * scale, k, v, causal)[0]), "scores are not divided by √head_dim"),
    ]
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        tiled = [t.repeat(1, groups, 1, 1) for t in (k, v)]
        why = "query head i reads key-value head i mod kv_heads, not i // (heads / kv_heads)"
        found.append((own(dense.attention(q, tiled[0], tiled[1], causal)[0]), why))
    if causal:
        found.append((own(dense.attention(q, k, v, False)[0]), "the causal mask is left out"))
    if size == 1:
        return found
    if causal:
        keys = torch.cat([part[1] for part in parts], 2)
        values = torch.cat([part[2] for part in parts], 2)
        for name, mask in _wrong_masks(mine.shape[2], place, size, layout):
            found.append((_masked(mine, keys, values, mask), name))
    alone = dense.attention(mine, parts[place][1], parts[place][2], causal)[0]
    found.append((alone, "the rank's own block only: no other block came into the result"))
    blocks = [dense.attention(mine, part[1], part[2], False)[0] for part in parts]
    found += [
        (torch.stack(blocks).sum(0), "blocks are added without the weights exp(lse_block − lse)"),
        (torch.stack(blocks).mean(0), "blocks are averaged, not weighted by exp(lse_block − lse)"),
    ]
    return found


def _wrong_masks(length: int, place: int, size: int, layout: str) -> list[tuple[str, torch.Tensor]]:
    """(cause, which of all keys, in order of ranks, this rank's tokens see)."""
    diagonal = torch.ones(length, length, dtype=torch.bool).tril()
    everything = torch.ones(length, length, dtype=torch.bool)
    nothing = ~everything
    every = torch.cat([diagonal] * size, 1)
    own = torch.cat([diagonal if i == place else everything for i in range(size)], 1)
    rank = torch.cat(
        [everything if i < place else diagonal if i == place else nothing for i in range(size)], 1
    )
    found = [
        ("every block is masked as if it were the rank's own", every),
        ("only the rank's own block is masked; blocks that lie later are seen", own),
    ]
    if layout == "zigzag":
        found.append(
            (
                "the mask follows the order of ranks, but a zigzag share has tokens of both ends",
                rank,
            )
        )
    else:
        positions = torch.arange(2 * size * length).chunk(2 * size)
        zigzag = [torch.cat([positions[c] for c in zigzag_chunks(i, size)]) for i in range(size)]
        here = zigzag[place][:length].unsqueeze(1)
        there = torch.cat([z[:length] for z in zigzag]).unsqueeze(0)
        found.append(("the layout is contiguous, but masked as zigzag", here >= there))
    return found


def _masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    groups = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(groups, 1) for t in (k, v))
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, float("-inf"))
    out: torch.Tensor = scores.softmax(-1).nan_to_num() @ v
    return out


def gradient_suspects(case: CallCase, which: int, gradient: torch.Tensor, place: int) -> Suspects:
    """Wrong gradients of q, k or v (0, 1, 2) on a group rank; gradient: the whole right one."""
    size, layout = len(case.members), case.facts["layout"]
    right = cut(gradient, place, size, layout)
    found: Suspects = [
        (right * q_scale(case), "the gradient is not divided by √head_dim"),
        (torch.zeros_like(right), "no gradient arrives: it is all zeros"),
    ]
    if size == 1:
        return found
    name = ("queries", "keys", "values")[which]
    for other in range(size):
        if other != place:
            why = f"the gradient of the {name} of group rank {other}: it is not home yet"
            found.append((cut(gradient, other, size, layout), why))
    if which:
        q, k, v = (case.facts[n].double().requires_grad_() for n in ("q", "k", "v"))
        out, _ = dense.attention(q, k, v, case.facts["causal"])
        mine = cut(out, place, size, layout)
        upstream = cut(case.facts["g"].double(), place, size, layout)
        (part,) = torch.autograd.grad(mine, (k, v)[which - 1], upstream)
        why = f"only this rank's queries count in the gradient of its {name}: gradients must travel"
        found.append((cut(part, place, size, layout), why))
    return found


def q_scale(case: CallCase) -> float:
    """√head_dim."""
    return float(case.facts["q"].shape[-1] ** 0.5)
