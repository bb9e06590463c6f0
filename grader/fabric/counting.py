"""FLOPs and bytes of one PyTorch operation.

Products and convolutions by the formulas of torch's own FLOP counter; everything else counts one
FLOP for each element it writes. Bytes are those of all tensors read and written; views move none.
"""

from __future__ import annotations

from collections.abc import Iterator
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


def count(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Count | None:
    """The cost of `func(*args, **kwargs)` that returned `result`; `None` when it has none."""
    costs = _costs.get(func)
    if costs is None:
        costs = _costs[func] = _has_cost(func)
    if not costs:
        return None
    read = sum(t.numel() * t.element_size() for t in _tensors((*args, *kwargs.values())))
    written = 0
    elements = 0
    for tensor in _tensors(result):
        written += tensor.numel() * tensor.element_size()
        elements += tensor.numel()
    formula = flop_registry.get(func.overloadpacket)
    if formula is not None:
        return Count(int(formula(*args, **kwargs, out_val=result)), read + written)
    return Count(elements, read + written)
