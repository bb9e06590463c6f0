"""Context parallelism: attention over a sequence that no rank holds as a whole.

Keys and values travel around the ring; each rank lets its queries attend to one block after the
other and merges the partial results by their log-sum-exp [Liu et al. 2023; Dao et al. 2022]. With
a causal mask contiguous shares are unbalanced (the last rank attends to everything), so rank i
takes chunks i and 2n − 1 − i of 2n, and every rank has the same work: "zigzag" [Zhu 2024].

    contiguous, n = 4      0 0 1 1 2 2 3 3
    zigzag,     n = 4      0 1 2 3 3 2 1 0        the rank that holds each of 8 chunks
"""

from __future__ import annotations

# BEGIN SOLUTION
from typing import Any

# END SOLUTION
import torch
import torch.distributed as dist

# BEGIN SOLUTION
import kernels

# END SOLUTION


def merge_attention(
    out_a: torch.Tensor, lse_a: torch.Tensor, out_b: torch.Tensor, lse_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two attentions of the same queries over different keys as one over all of them.

    With lse = log Σ exp(score): lse = log(exp(lse_a) + exp(lse_b)), and the outputs are weighted by
    exp(lse_a − lse) and exp(lse_b − lse) [Dao et al. 2022].

    Args:
        out_a, out_b: ``(…, head_dim)``, the same shape and dtype.
        lse_a, lse_b: ``(…)``, float32 or wider. A side that attended to nothing has lse −inf and
            out 0.

    Returns:
        (out, lse), shapes and dtypes as given. No overflow, whatever the magnitude of lse; where
        neither side attended to anything, lse is −inf and out 0.
    """
    # BEGIN SOLUTION
    fused = kernels.usable(__file__, out_a, out_b)
    if fused is not None and kernels.usable(__file__, lse_a, lse_b) is not None:
        return fused.attention_merge(out_a, lse_a, out_b, lse_b)
    most = torch.maximum(lse_a, lse_b)
    # −inf − (−inf) is not a number; any finite number does where neither side saw a key.
    most = most.masked_fill(most == float("-inf"), 0.0)
    weight_a, weight_b = (lse_a - most).exp(), (lse_b - most).exp()
    total = weight_a + weight_b
    lse = most + total.log()
    total = total.masked_fill(total == 0, 1.0).unsqueeze(-1)
    out = (weight_a.unsqueeze(-1) * out_a + weight_b.unsqueeze(-1) * out_b) / total
    return out.to(out_a.dtype), lse
    # END SOLUTION


def zigzag_shard(
    tensor: torch.Tensor, dim: int, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """This rank's share of a sequence for causal attention: chunks i and 2n − 1 − i of 2n.

    Args:
        tensor: any shape and dtype, the same on all ranks.
        dim: the dimension that is cut; may be negative.
        group: n ranks; i is this one's number in it.

    Returns:
        The two chunks, one after the other along ``dim``, in memory of their own. Nothing is sent.

    Raises:
        ValueError: 2n does not divide the dimension; the message names both numbers.
    """
    # BEGIN SOLUTION
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if tensor.shape[dim] % (2 * size):
        raise ValueError(
            f"dimension {dim} of {tensor.shape[dim]} cannot be divided into {2 * size} equal "
            f"chunks, two for each of {size} ranks"
        )
    chunk = tensor.shape[dim] // (2 * size)
    parts = [tensor.narrow(dim, at * chunk, chunk) for at in (rank, 2 * size - 1 - rank)]
    return torch.cat(parts, dim)
    # END SOLUTION


def zigzag_unshard(
    tensor: torch.Tensor, dim: int, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """The whole sequence out of all ranks' zigzag shares, on every rank, by one all-gather.

    Args:
        tensor: this rank's two chunks, as ``zigzag_shard`` gives them; the same shape and dtype on
            all ranks.
        dim: the dimension that was cut; may be negative.
        group: the n ranks that share it.

    Returns:
        The tensor that was cut, n times as long in ``dim``. Outside autograd's graph.

    Raises:
        ValueError: the dimension is odd; the message names it.
    """
    # BEGIN SOLUTION
    size = dist.get_world_size(group)
    if tensor.shape[dim] % 2:
        raise ValueError(f"dimension {dim} of {tensor.shape[dim]} is no two chunks of equal length")
    tensor = tensor.detach().contiguous()
    shares = [torch.empty_like(tensor) for _ in range(size)]
    if size == 1:
        shares[0].copy_(tensor)
    else:
        dist.all_gather(shares, tensor, group=group)
    halves = [share.chunk(2, dim) for share in shares]
    return torch.cat([first for first, _ in halves] + [last for _, last in halves[::-1]], dim)
    # END SOLUTION


# BEGIN SOLUTION
Group = dist.ProcessGroup | None
Slices = tuple[slice, slice, bool]


def visible(rank: int, owner: int, length: int, causal: bool, layout: str) -> Slices | None:
    """What of a block of keys the queries of a rank see: (queries, keys, causal mask or not).

    ``None`` when they see nothing. length: tokens of a share.
    """
    everything = slice(0, length)
    if not causal:
        return everything, everything, False
    if owner == rank:
        return everything, everything, True  # the order of tokens in a share is that of positions
    if layout == "contiguous":
        return (everything, everything, False) if owner < rank else None
    if owner < rank:  # the owner's first chunk lies before both of ours, its second after both
        return everything, slice(0, length // 2), False
    # Its first chunk lies after our first, and both of its chunks before our second.
    return slice(length // 2, length), everything, False


def _scores(query: torch.Tensor, key: torch.Tensor, causal: bool) -> torch.Tensor:
    """(batch, kv heads, group, queries, keys): scaled, hidden pairs −inf."""
    scores = query @ key.unsqueeze(2).transpose(-1, -2) * query.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores


def _grouped(tensor: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """(batch, heads, …) as (batch, kv heads, heads of each, …)."""
    return tensor.unflatten(1, (kv_heads, -1))


def block_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) of one block. A fused kernel that returns its lse (FlashAttention) fits here."""
    wide = torch.promote_types(query.dtype, torch.float32)
    query = _grouped(query, key.shape[1]).to(wide)
    scores = _scores(query, key.to(wide), causal)
    lse = scores.logsumexp(-1)
    out = (scores - lse.unsqueeze(-1)).exp() @ value.to(wide).unsqueeze(2)
    return out.flatten(1, 2), lse.flatten(1, 2)


def block_attention_backward(
    grad_out: torch.Tensor,
    delta: torch.Tensor,
    lse: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of one block's query, key and value.

    lse: of the whole attention, so that exp(score − lse) is a probability among *all* keys.
    delta: (grad_out · out) of the whole, summed over head_dim.
    """
    kv_heads, wide = key.shape[1], lse.dtype
    query, grad_out = (_grouped(each, kv_heads).to(wide) for each in (query, grad_out))
    lse, delta = (_grouped(each, kv_heads).unsqueeze(-1) for each in (lse, delta))
    key, value = key.to(wide), value.to(wide)
    probabilities = (_scores(query, key, causal) - lse).exp()
    grad_value = (probabilities.transpose(-1, -2) @ grad_out).sum(2)
    grad_scores = grad_out @ value.unsqueeze(2).transpose(-1, -2)
    grad_scores = probabilities * (grad_scores - delta) * query.shape[-1] ** -0.5
    grad_query = (grad_scores @ key.unsqueeze(2)).flatten(1, 2)
    grad_key = (grad_scores.transpose(-1, -2) @ query).sum(2)
    return grad_query, grad_key, grad_value


class Neighbours:
    """Posts a tensor to the next rank of the ring together with the one from the previous."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def post(self, leaving: torch.Tensor) -> tuple[torch.Tensor, list[dist.Work]]:
        """(what will arrive, works to wait for). ``leaving`` belongs to the message until then."""
        arriving = torch.empty_like(leaving)
        following, previous = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, leaving, group=self.group, group_peer=following),
                dist.P2POp(dist.irecv, arriving, group=self.group, group_peer=previous),
            ]
        )
        return arriving, works


def _wait(works: list[dist.Work]) -> None:
    for work in works:
        work.wait()


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        causal: bool,
        layout: str,
        group: Group,
    ) -> torch.Tensor:
        ring = Neighbours(group)
        length = query.shape[2]
        wide = torch.promote_types(query.dtype, torch.float32)
        out = torch.zeros_like(query, dtype=wide, memory_format=torch.contiguous_format)
        lse = torch.full(query.shape[:3], float("-inf"), dtype=wide, device=query.device)
        block = torch.stack([key, value])
        for step in range(ring.size):
            arriving, works = ring.post(block) if step < ring.size - 1 else (block, [])
            owner = (ring.rank - step) % ring.size
            seen = visible(ring.rank, owner, length, causal, layout)
            if seen is not None:
                rows, columns, masked = seen
                part = block_attention(
                    query[:, :, rows], block[0][:, :, columns], block[1][:, :, columns], masked
                )
                sofar = out[:, :, rows].contiguous(), lse[:, :, rows].contiguous()
                out[:, :, rows], lse[:, :, rows] = merge_attention(*sofar, *part)
            _wait(works)
            block = arriving
        out = out.to(query.dtype)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.causal, ctx.layout, ctx.group = causal, layout, group
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        ring = Neighbours(ctx.group)
        length = query.shape[2]
        delta = (grad_out.to(lse.dtype) * out).sum(-1)
        grad_query = torch.zeros_like(query, dtype=lse.dtype)
        block = torch.stack([key, value])
        # Gradients of keys and values follow their block one step behind, and each rank adds its
        # part; after the last step they need one more to be home.
        travelling, travels = None, []
        for step in range(ring.size):
            arriving, works = ring.post(block) if step < ring.size - 1 else (block, [])
            owner = (ring.rank - step) % ring.size
            own = torch.zeros_like(block)
            seen = visible(ring.rank, owner, length, ctx.causal, ctx.layout)
            if seen is not None:
                rows, columns, masked = seen
                grad_rows, own[0][:, :, columns], own[1][:, :, columns] = block_attention_backward(
                    grad_out[:, :, rows], delta[:, :, rows], lse[:, :, rows], query[:, :, rows],
                    block[0][:, :, columns], block[1][:, :, columns], masked,
                )  # fmt: skip
                grad_query[:, :, rows] += grad_rows
            _wait(travels)
            if travelling is not None:
                own += travelling
            travelling, travels = ring.post(own) if ring.size > 1 else (own, [])
            _wait(works)
            block = arriving
        _wait(travels)
        grad_key, grad_value = travelling
        return grad_query.to(query.dtype), grad_key, grad_value, None, None, None


def _check(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool, layout: str
) -> None:
    if layout not in ("zigzag", "contiguous"):
        raise ValueError(f'layout={layout!r}: expected "zigzag" or "contiguous"')
    if key.shape != value.shape or query.shape[0::2] != key.shape[0::2]:
        raise ValueError(
            f"q {tuple(query.shape)}, k {tuple(key.shape)} and v {tuple(value.shape)} do not fit: "
            f"expected one batch and one sequence for all, and k and v alike"
        )
    if query.shape[1] % key.shape[1]:
        raise ValueError(f"{query.shape[1]} heads of q are no multiple of {key.shape[1]} of k")
    if causal and layout == "zigzag" and query.shape[2] % 2:
        raise ValueError(f"a sequence of {query.shape[2]} on a rank is no two chunks for zigzag")


# END SOLUTION


def ring_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    layout: str = "zigzag",
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Attention of this rank's queries to the keys of all ranks, which travel around the ring.

    softmax(q kᵀ / √head_dim) v over the whole sequence. While a block of keys and values is
    attended to, the next is on its way. Blocks that the causal mask hides entirely are not computed
    (they travel on). Forward sends at most n − 1 times this rank's bytes of k and v, backward
    2n − 1 times. A rank never holds more than a constant number of other ranks' blocks, and keeps
    none of them for backward.

    Args:
        q: ``(batch, heads, sequence / n, head_dim)``, floating point: this rank's tokens.
        k, v: ``(batch, kv_heads, sequence / n, head_dim)``; ``kv_heads`` divides ``heads``, and
            head i reads key-value head i // (heads / kv_heads).
        causal: a token sees tokens up to itself only, by their places in the whole sequence.
        layout: which tokens a rank has: "zigzag" as ``zigzag_shard`` cuts, or "contiguous", rank i
            the i-th of n shares. Without ``causal`` both come to the same.
        group: n ranks that share the sequence.

    Returns:
        This rank's part of the output, shape and dtype of ``q``. Differentiable in q, k and v.

    Raises:
        ValueError: another ``layout``; shapes that do not fit; heads no multiple of kv_heads; an
            odd number of tokens for "zigzag" with ``causal``. The message names the values.
    """
    # BEGIN SOLUTION
    _check(q, k, v, causal, layout)
    return _RingAttention.apply(q, k, v, causal, layout, group)
    # END SOLUTION
