"""FLOPs and bytes of one PyTorch operation.

Products and convolutions by the formulas of torch's own FLOP counter; fused attention on the CPU,
for which it has none, by ours; everything else counts one FLOP for each element it writes. Bytes
are those of all tensors read and written; views move none.

Attention counts only the pairs of query and key that its mask lets through. PyTorch takes it
apart on meta tensors, where its two products count whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import flop_registry

from grader.fabric.torch_internals import NoDispatch


class Count(NamedTuple):
    """What one operation costs: floating-point operations, and bytes moved."""

    flops: int
    nbytes: int


#: Operators of these carry out communication, or nothing.
NO_COST_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "prim", "fsdp")
_NO_COST = (
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "set_",
    "resize_",
    "is_same_size",
    "_local_scalar_dense",
)
_costs: dict[Any, bool] = {}


def _has_cost(func: Any) -> bool:
    schema = func._schema
    namespace, _, name = schema.name.partition("::")
    mutates = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    view = bool(func.is_view) and not mutates
    return not (namespace in NO_COST_NAMESPACES or name in _NO_COST or view)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an argument: itself, or those in nested lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_attention_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def causal_pairs(queries: int, keys: int) -> int:
    """Pairs (query i, key j) with j <= i."""
    full = max(queries - keys, 0)
    part = queries - full
    return part * (part + 1) // 2 + full * keys


def attention_flops(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    **_: Any,
) -> int:
    """FLOPs of q kᵀ and of its product with v, over the pairs that are not masked.

    query: (batch, heads, queries, head dim), key and value alike; attn_mask: additive, −inf hides.
    """
    batch, heads, queries, width = query.shape
    keys = key.shape[-2]
    pairs = batch * heads * (causal_pairs(queries, keys) if is_causal else queries * keys)
    if attn_mask is not None and not attn_mask.is_meta:
        visible = int((attn_mask != float("-inf")).sum())
        pairs = visible * (batch * heads * queries * keys // max(attn_mask.numel(), 1))
    return 2 * pairs * (width + value.shape[-1])


def _backward_flops(
    _grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _out: torch.Tensor,
    _lse: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    **_: Any,
) -> int:
    """Five products where forward has two: the scores again, and two for each gradient pair."""
    forward = attention_flops(query, key, value, dropout_p, is_causal, attn_mask=attn_mask)
    return forward * 5 // 2


class _MetaAttention(torch.autograd.Function):
    """Shapes and costs of fused attention, for tensors without data."""

    @staticmethod
    def forward(
        ctx: Any,
        note: Callable[[Count], None],
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        flops: int,
    ) -> torch.Tensor:
        out = query.new_empty((*query.shape[:-1], value.shape[-1]))
        ctx.note, ctx.flops = note, flops
        ctx.save_for_backward(query, key, value)
        note(Count(flops, sum(_nbytes(t) for t in (query, key, value, out))))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        inputs = tuple(torch.empty_like(tensor) for tensor in saved)
        ctx.note(Count(ctx.flops * 5 // 2, sum(map(_nbytes, (*saved, *grads, *inputs)))))
        return (None, *inputs, None)


def meta_attention(
    note: Callable[[Count], None],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """`F.scaled_dot_product_attention` on meta tensors (batch, heads, sequence, head dim).

    note: gets the cost, forward and backward. A mask on meta has no data and hides nothing.
    """
    batch = query.reshape(1, -1, *query.shape[-2:])
    flops = attention_flops(batch, key, value, dropout_p, is_causal)
    if attn_mask is not None and not attn_mask.is_meta:
        with NoDispatch():
            seen = attn_mask if attn_mask.dtype == torch.bool else attn_mask != float("-inf")
            flops = int(flops * float(seen.double().mean()))
    apply: Callable[..., torch.Tensor] = _MetaAttention.apply
    return apply(note, query, key, value, flops)


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


_OWN_FORMULAS: dict[Any, Callable[..., int]] = {
    _attention: attention_flops,
    _attention_backward: _backward_flops,
}


#: Writes its first argument without reading it.
_OVERWRITES = frozenset(
    ("copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_")
)
#: Reads of its first argument (the second, of an embedding) only what it returns.
_PICKS = frozenset(("embedding", "index_select", "index", "gather", "take", "_unsafe_index"))


def count(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Count | None:
    """The cost of `func(*args, **kwargs)` that returned `result`; `None` when it has none."""
    costs = _costs.get(func)
    if costs is None:
        costs = _costs[func] = _has_cost(func)
    if not costs:
        return None
    name = func._schema.name.partition("::")[2]
    if result is None and name.startswith("_foreach_"):
        result = args[0]  # its tensors are changed in place
    written = sum(map(_nbytes, tensors_in(result)))
    if name in _PICKS:
        whole = max(map(_nbytes, tensors_in(args)), default=0)
        inputs = sum(map(_nbytes, tensors_in(args))) - whole + written
    else:
        inputs = sum(
            _nbytes(tensor)
            for place, value in (*enumerate(args), *kwargs.items())
            if place != "out" and not (place == 0 and name in _OVERWRITES)
            for tensor in tensors_in(value)
        )
    own = _OWN_FORMULAS.get(func.overloadpacket)
    if own is not None:
        return Count(own(*args, **kwargs), inputs + written)
    formula = flop_registry.get(func.overloadpacket)
    if formula is not None:
        return Count(int(formula(*args, **kwargs, out_val=result)), inputs + written)
    return Count(sum(tensor.numel() for tensor in tensors_in(result)), inputs + written)
