"""CUDA kernels that run with and without a GPU: one kernels.cu, two builds.

Importing this needs neither a compiler nor a driver nor torch: what is used first builds or says
what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from kernels.compilers import CompileError as CompileError
    from kernels.compilers import NoCompiler as NoCompiler
    from kernels.faults import KernelFault as KernelFault
    from kernels.library import ArgumentError as ArgumentError
    from kernels.library import KernelFile as KernelFile
    from kernels.native import NotBuilt as NotBuilt
    from kernels.ops import Kernels as Kernels
    from kernels.ops import beside as beside

__all__ = [
    *("beside", "usable", "Kernels", "KernelFile", "cuda_available", "cuda_problem"),
    *("ArgumentError", "CompileError", "KernelFault", "NoCompiler", "NotBuilt"),
]

_HOMES = {
    "beside": "ops",
    "Kernels": "ops",
    "KernelFile": "library",
    "ArgumentError": "library",
    "CompileError": "compilers",
    "NoCompiler": "compilers",
    "KernelFault": "faults",
    "NotBuilt": "native",
}


def cuda_problem() -> str | None:
    """Why kernels cannot run on a GPU here, in plain words; None when they can."""
    from kernels import compilers, native

    try:
        problem: str | None = native.launcher().cuda_problem()
        if problem is None:
            compilers.nvcc()
    except (compilers.NoCompiler, native.NotBuilt) as reason:
        return str(reason)
    return problem


def cuda_available() -> bool:
    """Whether kernels can be built for and launched on a GPU here."""
    return cuda_problem() is None


def usable(file: str, *tensors: torch.Tensor) -> Kernels | None:
    """The kernels beside the Python file `file`, where they can do the work on these tensors.

        fused = kernels.usable(__file__, dst, src)
        if fused is None:
            dst.add_(src)
        else:
            fused.reduce_add(dst, src)

    None unless all tensors are contiguous, on one CUDA device, and of one dtype, float32 or
    bfloat16; None too when autograd would have to follow (a gradient is wanted of a tensor, outside
    `torch.no_grad` and of an `autograd.Function`), and where there is no driver, no compiler, or
    `python -m kernels.setup` has not run. On CPU tensors it costs a look at each. Whether the
    kernels are *written* it does not know: a stub leaves its results as they were.
    """
    if not tensors or not all(tensor.is_cuda for tensor in tensors):
        return None
    from kernels import ops

    return ops.beside_on_gpu(file) if ops.fit(*tensors) else None


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"kernels.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'kernels' has no attribute {name!r}")
