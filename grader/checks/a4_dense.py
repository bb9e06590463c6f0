"""What assignments 4 and 5 must come to: the dense modules on one device, in float64.

Functions of a state dict, apart from the modules that students are given. `masks` are what dropout
draws, in the order in which a block draws them: attention probabilities (batch, heads, sequence,
sequence), output of the attention, output of the MLP (sequence, batch, hidden); true = kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional as F

State = Mapping[str, torch.Tensor]
Spec = Mapping[str, Any]


def spec(kind: str, **options: Any) -> dict[str, Any]:
    """A module as data: kind is "linear", "embedding", "norm", "mlp", "attention" or "block"."""
    return {"kind": kind, "options": options}


def shapes(of: Spec) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the module's parameters."""
    kind, o = of["kind"], of["options"]
    if kind == "embedding":
        return {"weight": (o["num_embeddings"], o["embedding_dim"])}
    if kind == "norm":
        whole: dict[str, tuple[int, ...]] = {"weight": (o["normalized_shape"],)}
        if o.get("bias", True):
            whole["bias"] = whole["weight"]
        return whole if o.get("elementwise_affine", True) else {}
    if kind == "linear":
        return _linear("", o["in_features"], o["out_features"], o.get("bias", True))
    if kind == "mlp":
        hidden, bias = o["hidden"], o.get("bias", True)
        inner = o["intermediate"]
        return _linear("up.", hidden, inner, bias) | _linear("down.", inner, hidden, bias)
    if kind == "attention":
        hidden, bias = o["hidden"], o.get("bias", True)
        head = o.get("head_dim") or hidden // o["heads"]
        queries, keys = o["heads"] * head, (o.get("kv_heads") or o["heads"]) * head
        return (
            _linear("query.", hidden, queries, bias)
            | _linear("key.", hidden, keys, bias)
            | _linear("value.", hidden, keys, bias)
            | _linear("output.", queries, hidden, bias)
        )
    found: dict[str, tuple[int, ...]] = {}
    for part in ("attention", "mlp"):
        norm = shapes(spec("norm", normalized_shape=o["hidden"]))
        found |= {f"{part}_norm.{name}": shape for name, shape in norm.items()}
        found |= {f"{part}.{name}": shape for name, shape in shapes(spec(part, **o[part])).items()}
    return found


def _linear(prefix: str, inputs: int, outputs: int, bias: bool) -> dict[str, tuple[int, ...]]:
    whole: dict[str, tuple[int, ...]] = {f"{prefix}weight": (outputs, inputs)}
    return whole | ({f"{prefix}bias": (outputs,)} if bias else {})


def random_state(of: Spec, rng: torch.Generator) -> dict[str, torch.Tensor]:
    """Parameters that keep activations near 1; those of a norm lie around 1 and 0."""
    state = {}
    for name, shape in shapes(of).items():
        value = torch.randn(shape, generator=rng, dtype=torch.float64)
        if of["kind"] == "norm" or "norm" in name:
            state[name] = value / 3 + (1 if name.endswith("weight") else 0)
        else:
            state[name] = value * shape[-1] ** -0.5 if len(shape) > 1 else value
    return state


def forward(
    of: Spec, state: State, x: torch.Tensor, masks: Sequence[torch.Tensor] | None = None
) -> torch.Tensor:
    """The module's output; dropout by `masks`, none without them."""
    kind, o = of["kind"], of["options"]
    if kind == "embedding":
        return F.embedding(x, state["weight"])
    if kind == "norm":
        return _norm("", state, x)
    if kind == "linear":
        return F.linear(x, state["weight"], state.get("bias"))
    if kind == "mlp":
        return _mlp("", state, x)
    if kind == "attention":
        return _attention("", o, state, x, None if masks is None else masks[0])
    attended = _attention(
        "attention.", o["attention"], state, _norm("attention_norm.", state, x),
        None if masks is None or not o["attention"].get("dropout") else masks[0],
    )  # fmt: skip
    x = x + _drop(attended, masks, -2, o["dropout"])
    return x + _drop(_mlp("mlp.", state, _norm("mlp_norm.", state, x)), masks, -1, o["dropout"])


def _drop(
    x: torch.Tensor, masks: Sequence[torch.Tensor] | None, which: int, p: float
) -> torch.Tensor:
    return x if masks is None or not p else x * masks[which] / (1 - p)


def _layer(prefix: str, state: State, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, state[f"{prefix}.weight"], state.get(f"{prefix}.bias"))


def _norm(prefix: str, state: State, x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(
        x, x.shape[-1:], state.get(f"{prefix}weight"), state.get(f"{prefix}bias"), 1e-5
    )


def _mlp(prefix: str, state: State, x: torch.Tensor) -> torch.Tensor:
    return _layer(f"{prefix}down", state, F.gelu(_layer(f"{prefix}up", state, x)))


def _heads(x: torch.Tensor, head: int) -> torch.Tensor:
    return x.view(*x.shape[:-1], -1, head).permute(1, 2, 0, 3)


def _attention(
    prefix: str, o: Spec, state: State, x: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    head = o.get("head_dim") or o["hidden"] // o["heads"]
    query, key, value = (
        _heads(_layer(f"{prefix}{name}", state, x), head) for name in ("query", "key", "value")
    )
    out, _ = attention(query, key, value, o.get("causal", True), mask, o.get("dropout", 0.0))
    return _layer(f"{prefix}output", state, out.permute(2, 0, 1, 3).flatten(2))


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    causal: bool,
    mask: torch.Tensor | None = None,
    p: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) of whole tensors (batch, heads, sequence, head dim), grouped-query heads too."""
    groups = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    probabilities = scores.softmax(-1)
    if mask is not None:
        probabilities = probabilities * mask / (1 - p)
    return probabilities @ value, scores.logsumexp(-1)
