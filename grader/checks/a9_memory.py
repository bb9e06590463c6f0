"""What a device must hold, by the formulas of the handout, and by well-known slips in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

Fields = Mapping[str, Any]

MODEL: dict[str, Any] = {
    "name": "", "layers": 1, "hidden": 1, "heads": 1, "vocab": 1, "sequence": 1, "ffn_hidden": 0,
    "gated": False, "kv_heads": 0, "tied": True, "learned_positions": True, "biases": True,
    "experts": 0, "expert_hidden": 0, "top_k": 0, "shared_experts": 0, "dense_layers": 0,
    "attention_parameters": 0,
}  # fmt: skip
PLAN: dict[str, Any] = {
    "dp": 1, "pp": 1, "tp": 1, "cp": 1, "ep": 1, "sequence_parallel": False, "micro_batch": 1,
    "micro_batches": 1, "chunks": 1, "zero": 0, "recomputation": "none",
}  # fmt: skip

STATES = ("weights", "gradients", "optimizer")


def model(**fields: Any) -> dict[str, Any]:
    """A model, with the fields that `given.Model` has."""
    return MODEL | fields


def plan(**fields: Any) -> dict[str, Any]:
    """A plan, with the fields that `given.Plan` has."""
    return PLAN | fields


def words(fields: Fields, of: Fields) -> str:
    """What is not usual in a plan or model."""
    return ", ".join(f"{name}={value}" for name, value in fields.items() if value != of[name])


def sized(nbytes: float) -> str:
    """ "29,871,112,192 bytes (29.87 GB)"."""
    unit, name = next(
        (each for each in ((1e9, "GB"), (1e6, "MB")) if abs(nbytes) >= each[0]), (1e3, "kB")
    )
    return f"{nbytes:,.0f} bytes ({nbytes / unit:.2f} {name})"


def layer_parameters(m: Fields) -> tuple[int, int, int, int]:
    """Of one layer: (attention, norms and biases), (dense MLP), (router, shared), (an expert)."""
    h = m["hidden"]
    matrices = 3 if m["gated"] else 2
    key_value = (m["kv_heads"] or m["heads"]) * h // m["heads"]
    attention = m["attention_parameters"] or 2 * h * (h + key_value)
    attention += (13 if m["biases"] else 2) * h
    expert = matrices * h * m["expert_hidden"]
    mlp = matrices * h * (m["ffn_hidden"] or 4 * h)
    return attention, mlp, h * m["experts"] + m["shared_experts"] * expert, expert


def parameters(m: Fields, p: Fields, twist: str = "") -> tuple[float, float]:
    """On a device of the first stage: (of no expert, of experts)."""
    attention, mlp, router, expert = layer_parameters(m)
    stages = p["pp"] * p["chunks"]
    each = m["layers"] // stages if twist == "rounded down" else -(-m["layers"] // stages)
    layers = min(m["layers"], each * p["chunks"])
    if twist == "pp left out":
        layers = m["layers"]
    sparse = min(layers, m["layers"] - m["dense_layers"]) if m["experts"] else 0
    dense = layers * attention + (layers - sparse) * mlp + sparse * router
    if twist != "no embedding":
        dense += (m["vocab"] + (m["sequence"] if m["learned_positions"] else 0)) * m["hidden"]
    with_head = p["pp"] == 1 or twist == "head on the first stage"
    if not m["tied"] and with_head and twist != "no head":
        dense += m["vocab"] * m["hidden"]
    tp = 1 if twist == "tp left out" else p["tp"]
    ep = 1 if twist == "ep left out" else p["ep"]
    return dense / tp, sparse * m["experts"] * expert / (tp * ep)


def states(m: Fields, p: Fields, twist: str = "") -> dict[str, float]:
    """Bytes of weights, gradients and the optimizer's states."""
    dense, experts = parameters(m, p, twist)
    replicas = p["dp"] * p["cp"]
    if twist == "without cp":
        replicas = p["dp"]
    if twist == "by all devices":
        replicas *= p["pp"] * p["tp"]
    groups = ((dense, replicas), (experts, replicas / p["ep"]))
    if twist == "experts as the rest":
        groups = ((dense, replicas), (experts, replicas))
    bytes_of = {
        "weights": 2,
        "gradients": 4 if twist == "gradients in fp32" else 2,
        "optimizer": 8 if twist == "no fp32 copy" else 12,
    }
    least = {"weights": 3, "gradients": 2, "optimizer": 1}  # the stage that divides it
    stage = p["zero"] - 1 if twist == "one stage later" else p["zero"]
    if twist == "nothing sharded":
        stage = 0
    if twist == "everything sharded" and stage:
        stage = 3
    return {
        name: sum(bytes_of[name] * n / (ranks if stage >= least[name] else 1)
                  for n, ranks in groups)
        for name in STATES
    }  # fmt: skip


def activations(m: Fields, p: Fields, twist: str = "") -> float:
    """Bytes of what the layers keep for backward, of all micro-batches in flight."""
    s, h, t, v, pp, micro = (
        m["sequence"], m["hidden"], p["tp"], p["chunks"], p["pp"], p["micro_batches"],
    )  # fmt: skip
    cp = 1 if twist == "cp ignored" else p["cp"]
    size = 1 if twist == "micro-batch of one" else p["micro_batch"]
    cells = size * s / cp * h
    scores = 5 * m["heads"] * s / h / (cp if twist == "cp twice" else 1)
    kind = p["recomputation"]
    if (kind == "selective" and twist != "scores kept") or twist == "scores dropped":
        scores = 0
    split = p["sequence_parallel"] or twist == "sp always"
    if twist == "sp ignored":
        split = False
    one = cells * ((34 + scores) / t if split else 10 + (24 + scores) / t)
    if kind == "full":
        one = 2 * cells
    layers = min(m["layers"], -(-m["layers"] // (pp * v)) * v)
    if twist == "all layers":
        layers = m["layers"]
    flying = min(pp, micro) if v == 1 else min(pp * v + pp - 1, micro * v) / v
    flying = {
        "one micro-batch": 1, "all micro-batches": micro, "pp micro-batches": pp,
        "as without chunks": min(pp, micro),
    }.get(twist, flying)  # fmt: skip
    return float(flying * layers * one)


def expected(m: Fields, p: Fields, part: str, twist: str = "") -> float:
    """Bytes of one part; twist: a key of `causes_a9.TWISTS`."""
    return activations(m, p, twist) if part == "activations" else states(m, p, twist)[part]


def near(got: float, wanted: float) -> bool:
    """Equal up to roundings, and to whole bytes."""
    return abs(got - wanted) <= 1 + 1e-9 * abs(wanted)


def likely(
    m: Fields,
    p: Fields,
    part: str,
    got: float,
    twists: Collection[str],
    told: Sequence[tuple[Fields, Fields, Mapping[str, float | None]]] = (),
) -> str | None:
    """The slip that gives just this number; of several the one that fits most of what was told.

    told: (model, plan, bytes by part).
    """
    right = expected(m, p, part)

    def fits(twist: str) -> int:
        return sum(
            each is not None and near(each, expected(of, cut, name, twist))
            for of, cut, parts in told
            for name, each in parts.items()
        )

    wrong = [(twist, expected(m, p, part, twist)) for twist in twists]
    found = [twist for twist, each in wrong if near(got, each) and not near(each, right)]
    return max(found, key=fits, default=None)
