"""Whether two outputs are the same, bit for bit."""

from __future__ import annotations

from typing import Any

import torch


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    whole = tensor.detach().contiguous()
    # A tensor of one element is contiguous whatever its stride says; a view asks for stride 1.
    flat = whole.as_strided((whole.numel(),), (1,), whole.storage_offset())
    return flat.view(torch.uint8)


def same(a: Any, b: Any) -> bool:
    """Whether two outputs (nested data) are equal bit for bit."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.shape != b.shape or a.dtype != b.dtype or a.is_meta != b.is_meta:
            return False
        if a.is_meta:
            return True
        return torch.equal(_bits(a), _bits(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and (a == b or a != a)
