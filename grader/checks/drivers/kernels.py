"""What runs in a worker: launches of a student's kernels, on the CPU or on a GPU.

Nothing is judged here; what a kernel may have changed goes back as it is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from kernels import cache
from kernels.compilers import CompileError
from kernels.contracts import Parameter
from kernels.faults import KernelFault
from kernels.library import ArgumentError, KernelFile, Mode

_BOUNDARY = 256  # bytes; alignments are counted from a multiple of it
_MARGIN = 1024  # bytes before and after each tensor, so that a wrong kernel rarely kills the worker


def launches(payload: dict[str, Any]) -> dict[str, Any]:
    """Launch `payload["calls"]` one after the other.

    payload: cache (folder of builds), folder, file ("a2_ring_all_reduce/kernels.cu"), mode
    ("fast", "checked"), device.
    A call: kernel, arguments (tensors and numbers), shifts (per argument, elements by which a
    tensor lies off a multiple of 256 bytes), grid, block, shared_bytes.

    Returns outputs (per call, by parameter name, all tensors that the kernel may change), fault
    (of the call after those, or None) and refused (the compiler's message, or None).
    """
    use_cache(payload)
    file = KernelFile(Path(payload["folder"]) / payload["file"], mode=payload["mode"])
    outputs: list[dict[str, torch.Tensor]] = []
    try:
        for number, call in enumerate(payload["calls"]):
            # A kernel must not depend on the order of blocks and threads: try several. Faults are
            # looked for in the natural one, so that they name the first thread that is wrong.
            order = number if payload["mode"] == "fast" else 0
            outputs.append(_launch(file, call, payload["mode"], payload["device"], order))
        if payload["mode"] == "checked":
            # Some faults show in another order only: where there are several blocks, look there.
            for number, call in enumerate(payload["calls"]):
                if call["grid"] > 1 and number % 2:
                    again = _launch(file, call, "checked", payload["device"], order=1)
                    outputs[number] = again
    except CompileError as error:
        return {"outputs": [], "fault": None, "refused": str(error)}
    except KernelFault as fault:
        return {"outputs": outputs[:number], "fault": _plain(fault), "refused": None}
    return {"outputs": outputs, "fault": None, "refused": None}


def use_cache(payload: dict[str, Any]) -> None:
    """Builds are kept where the examiner keeps them: a worker's own home is gone after the call.

    In a sandbox the examiner hands them over with each call: a cache that all calls can write to
    would let one put a build of its own in the place of another's.
    """
    if payload["cache"] is not None:
        os.environ[cache.ENVIRONMENT] = payload["cache"]
        return
    top = Path("builds").absolute()
    top.mkdir()
    os.environ[cache.ENVIRONMENT] = str(top)
    native = Path(payload["native"])
    (top / native.name).symlink_to(native)
    for name, files in payload["builds"].items():
        (top / name).mkdir()
        for file, data in files.items():
            (top / name / file).write_bytes(data.numpy().tobytes())


def built(payload: dict[str, Any]) -> dict[str, Any]:
    """Build for later launches; no code of the student's is loaded.

    Returns builds (folder of the cache -> file -> its bytes, uint8) and refused, as `launches`.
    """
    use_cache(payload | {"builds": {}})
    file = KernelFile(Path(payload["folder"]) / payload["file"], mode=payload["mode"])
    try:
        file.build(torch.device(payload["device"]), payload["mode"])
    except CompileError as error:
        return {"builds": {}, "refused": str(error)}
    folders = [path for path in cache.cache_folder().iterdir() if not path.is_symlink()]
    return {"builds": {folder.name: _contents(folder) for folder in folders}, "refused": None}


def _contents(folder: Path) -> dict[str, torch.Tensor]:
    return {
        file.name: torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8)
        for file in folder.iterdir()
        if file.stat().st_size
    }


def _launch(
    file: KernelFile, call: dict[str, Any], mode: Mode, device: str, order: int
) -> dict[str, torch.Tensor]:
    given = [
        place(value, shift, device) if isinstance(value, torch.Tensor) else value
        for value, shift in zip(call["arguments"], call["shifts"], strict=True)
    ]
    parameters = file.parameters(call["kernel"])
    try:
        file.launch(
            call["kernel"],
            given,
            grid=call["grid"],
            block=call["block"],
            shared_bytes=call["shared_bytes"],
            mode=mode,
            order=order,
        )
    except ArgumentError as error:
        raise RuntimeError(f"the kit called {call['kernel']} wrongly: {error}") from error
    return {
        parameter.name: value.cpu().clone()
        for parameter, value in zip(parameters, given, strict=True)
        if _changes(parameter) and isinstance(value, torch.Tensor)
    }


def _changes(parameter: Parameter) -> bool:
    return parameter.kind == "p" and parameter.role != "in"


def place(value: torch.Tensor, shift: int, device: str) -> torch.Tensor:
    """A copy of `value` whose address lies `shift` elements after a multiple of 256 bytes."""
    width = value.element_size()
    space = torch.zeros(
        value.numel() * width + 2 * _MARGIN + 2 * _BOUNDARY, dtype=torch.uint8, device=device
    )
    begin = _MARGIN + (-(space.data_ptr() + _MARGIN)) % _BOUNDARY + shift * width
    there = space[begin : begin + value.numel() * width].view(value.dtype).view(value.shape)
    there.copy_(value)
    return there


def _plain(fault: KernelFault) -> dict[str, Any]:
    return {
        "kind": fault.kind,
        "text": str(fault),
        "line": fault.line,
        "other_line": fault.other_line,
        "barrier_line": fault.barrier_line,
    }
