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


class Count(NamedTuple):
    """What one operation costs: floating-point operations, and bytes moved."""

    flops: int
    nbytes: int


_NO_COST_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "prim", "fsdp")
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
    return not (namespace in _NO_COST_NAMESPACES or name in _NO_COST or view)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


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


_OWN_FORMULAS: dict[Any, Callable[..., int]] = {
    _attention: attention_flops,
    _attention_backward: _backward_flops,
}


def count(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Count | None:
    """The cost of `func(*args, **kwargs)` that returned `result`; `None` when it has none."""
    costs = _costs.get(func)
    if costs is None:
        costs = _costs[func] = _has_cost(func)
    if not costs:
        return None
    inputs = (*args, *(value for name, value in kwargs.items() if name != "out"))
    read = sum(t.numel() * t.element_size() for t in _tensors(inputs))
    written = 0
    elements = 0
    for tensor in _tensors(result):
        written += tensor.numel() * tensor.element_size()
        elements += tensor.numel()
    own = _OWN_FORMULAS.get(func.overloadpacket)
    if own is not None:
        return Count(own(*args, **kwargs), read + written)
    formula = flop_registry.get(func.overloadpacket)
    if formula is not None:
        return Count(int(formula(*args, **kwargs, out_val=result)), read + written)
    return Count(elements, read + written)
