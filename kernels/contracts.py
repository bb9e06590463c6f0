"""What the kit launches: the kernels that each assignment's kernels.cu must hold.

A prototype is the whole contract of a kernel. `const` pointers are inputs that stay as they are;
other pointers are changed in place, or, where `outputs` names them, written without being read.
Kernels must be right for any grid and for any block of 32, 64, … 512 threads in x.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch

from kernels.build import kernel_name

Role = Literal["in", "out", "inout"]

_DTYPES = {
    "float": torch.float32,
    "__nv_bfloat16": torch.bfloat16,
    "int": torch.int32,
    "int64_t": torch.int64,
}


@dataclass(frozen=True)
class Parameter:
    """One parameter. kind: "p" pointer, "i" 64-bit integer, "f" float.

    dtype, role: of what a pointer points to.
    """

    name: str
    kind: str
    dtype: torch.dtype | None = None
    role: Role = "in"


@dataclass(frozen=True)
class Contract:
    """One kernel. prototype: in C++, `void name(…)`. outputs: parameters that are only written."""

    prototype: str
    outputs: frozenset[str] = field(default_factory=frozenset)

    @property
    def name(self) -> str:
        """The name it is launched by."""
        return kernel_name(self.prototype)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """In the order of the prototype."""
        inside = self.prototype[self.prototype.index("(") + 1 : self.prototype.rindex(")")]
        return tuple(self._parameter(text.strip()) for text in inside.split(","))

    def _parameter(self, text: str) -> Parameter:
        match = re.fullmatch(r"(const\s+)?(\w+)\s*(\*?)\s*(\w+)", text)
        if match is None:
            raise ValueError(f"{self.name}: cannot read the parameter {text!r}")
        const, type_name, star, name = match.groups()
        if star:
            role: Role = "in" if const else "out" if name in self.outputs else "inout"
            return Parameter(name, "p", _DTYPES[type_name], role)
        kind = {"int64_t": "i", "float": "f"}.get(type_name)
        if kind is None:
            raise ValueError(f"{self.name}: {name} must be a pointer, int64_t or float")
        return Parameter(name, kind)


def _both(prototype: str, *outputs: str) -> tuple[Contract, Contract]:
    """For float and for bfloat16: `@` in the prototype is the suffix, `T` the type."""
    return (
        Contract(_typed(prototype, "fp32", "float"), frozenset(outputs)),
        Contract(_typed(prototype, "bf16", "__nv_bfloat16"), frozenset(outputs)),
    )


def _typed(prototype: str, suffix: str, type_name: str) -> str:
    return re.sub(r"\bT\b", type_name, prototype.replace("@", suffix))


REDUCE_ADD = _both("void reduce_add_@(T* dst, const T* src, int64_t n)")

ADAMW = _both(
    "void adamw_@(T* param, const T* grad, float* exp_avg, float* exp_avg_sq, int64_t n, "
    "float lr, float beta1, float beta2, float eps, float weight_decay, "
    "float bias_correction1, float bias_correction2)"
)

VOCAB_CROSS_ENTROPY = (
    *_both(
        "void vocab_cross_entropy_forward_@(float* row_max, float* sum_exp, float* target_logit, "
        "const T* logits, const int64_t* target, int64_t tokens, int64_t vocab, "
        "int64_t vocab_start)",
        *("row_max", "sum_exp", "target_logit"),
    ),
    *_both(
        "void vocab_cross_entropy_backward_@(T* grad_logits, const T* logits, "
        "const int64_t* target, const float* logsumexp, const float* grad_loss, int64_t tokens, "
        "int64_t vocab, int64_t vocab_start, int64_t ignore_index)",
        "grad_logits",
    ),
)

ATTENTION_MERGE = _both(
    "void attention_merge_@(T* out, float* lse, const T* out_a, const float* lse_a, "
    "const T* out_b, const float* lse_b, int64_t rows, int64_t dim)",
    *("out", "lse"),
)

LAYER_NORM = (
    *_both(
        "void layer_norm_forward_@(T* out, float* mean, float* rstd, const T* input, "
        "const T* weight, const T* bias, int64_t rows, int64_t hidden, float eps)",
        *("out", "mean", "rstd"),
    ),
    *_both(
        "void layer_norm_backward_@(T* grad_input, float* grad_weight, float* grad_bias, "
        "const T* grad_out, const T* input, const T* weight, const float* mean, "
        "const float* rstd, int64_t rows, int64_t hidden)",
        "grad_input",
    ),
)

MOE_PERMUTE = (
    Contract(
        "void moe_permute_count(int* counts, const int* experts, int64_t assignments, "
        "int64_t num_experts)"
    ),
    Contract(
        "void moe_permute_position(int* position, const int* experts, const int* begin, "
        "int64_t assignments, int64_t num_experts)",
        frozenset({"position"}),
    ),
    *_both(
        "void moe_permute_@(T* rows, const T* tokens, const int* position, int64_t assignments, "
        "int64_t k, int64_t hidden)",
        "rows",
    ),
)

MOE_UNPERMUTE = _both(
    "void moe_unpermute_@(T* out, const T* rows, const float* weights, const int* position, "
    "int64_t tokens, int64_t k, int64_t hidden)",
    "out",
)

#: Assignment -> what its kernels.cu holds.
FILES: dict[str, tuple[Contract, ...]] = {
    "a2_ring_all_reduce": REDUCE_ADD,
    "a3_data_parallel": ADAMW,
    "a4_tensor_parallel": VOCAB_CROSS_ENTROPY,
    "a5_sequence_parallel": (*ATTENTION_MERGE, *LAYER_NORM),
    "a8_expert_parallel": (*MOE_PERMUTE, *MOE_UNPERMUTE),
}
