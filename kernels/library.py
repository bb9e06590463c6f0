"""A kernels.cu as Python sees it: kernels by name, launched on the tensors they are given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import torch

from kernels import build, faults, native
from kernels.contracts import FILES, Contract, Parameter

Mode = Literal["fast", "checked"]
Argument = torch.Tensor | int | float
Dim = int | tuple[int, ...]


class ArgumentError(ValueError, TypeError):
    """A tensor of the wrong device, dtype, size or layout; the message names the argument."""


class _Module(Protocol):
    def launch(self, **arguments: Any) -> Any: ...


class KernelFile:
    """One kernels.cu. Builds it at the first launch on each kind of device.

    path: the file. contracts: its kernels; by default those of the assignment whose folder it is
    in. mode: how launches on the CPU are run: "fast", or "checked" (every access is watched and
    the first fault raises `KernelFault`).
    """

    def __init__(
        self, path: Path | str, contracts: Sequence[Contract] | None = None, mode: Mode = "fast"
    ) -> None:
        self.path = Path(path).absolute()
        if contracts is None:
            if self.path.parent.name not in FILES:
                raise ValueError(f"no kernels are known of {self.path.parent.name}/")
            contracts = FILES[self.path.parent.name]
        self.mode: Mode = mode
        self._contracts = {contract.name: contract for contract in contracts}
        self._source: build.Source | None = None
        self._modules: dict[object, tuple[_Module, Path]] = {}

    @property
    def source(self) -> build.Source:
        """The file's text, read once."""
        if self._source is None:
            prototypes = [contract.prototype for contract in self._contracts.values()]
            self._source = build.Source.read(self.path, prototypes)
        return self._source

    def parameters(self, kernel: str) -> tuple[Parameter, ...]:
        """What `kernel` takes, in order."""
        return self._contracts[kernel].parameters

    def launch(
        self,
        kernel: str,
        arguments: Sequence[Argument],
        *,
        grid: Dim,
        block: Dim = 256,
        shared_bytes: int = 0,
        mode: Mode | None = None,
        order: int = 0,
        timed: bool = False,
    ) -> float:
        """Launch `kernel` where its tensors are; on the CPU, wait for its end.

        arguments: in the prototype's order. shared_bytes: dynamic shared memory per block.
        order: on the CPU, blocks and threads take turns in their natural order (0) or another.
        timed: wait for the end and return the seconds it took (0.0 on a GPU otherwise).
        Raises `ArgumentError`, `CompileError`, `NoCompiler`, `NotBuilt` or `KernelFault`.
        """
        contract = self._contracts[kernel]
        device = check_arguments(contract, arguments)
        module, library = self._module(device, mode or self.mode)
        kinds = "".join(parameter.kind for parameter in contract.parameters)
        integers = [0] * len(kinds)
        reals = [0.0] * len(kinds)
        buffers: list[Any] = []
        make_buffer = native.launcher().Buffer
        for i, (parameter, value) in enumerate(zip(contract.parameters, arguments, strict=True)):
            if isinstance(value, torch.Tensor):
                integers[i] = len(buffers)
                nbytes = value.numel() * value.element_size()
                address, width = value.data_ptr(), value.element_size()
                buffers.append(make_buffer(parameter.name, address, nbytes, width, parameter.role))
            elif parameter.kind == "i":
                integers[i] = int(value)
            else:
                reals[i] = float(value)
        stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
        outcome = module.launch(
            kernel=kernel,
            grid=_three(grid),
            block=_three(block),
            shared_bytes=shared_bytes,
            order=order,
            kinds=kinds,
            integers=integers,
            reals=reals,
            buffers=buffers,
            stream=stream,
            timed=timed,
        )
        if outcome.fault is not None:
            raise faults.describe(outcome.fault, kernel, library)
        return float(outcome.seconds)

    def _module(self, device: torch.device, mode: Mode) -> tuple[_Module, Path]:
        key = device if device.type == "cuda" else mode
        if key not in self._modules:
            self._modules[key] = self._load(device, mode)
        return self._modules[key]

    def build(self, device: torch.device, mode: Mode) -> None:
        """Build what a launch there would load, and load nothing. Raises as `launch` does."""
        if device.type == "cuda":
            self._cubin(device)
        else:
            build.build_cpu(self.source, checked=mode == "checked")

    def _cubin(self, device: torch.device) -> tuple[bytes, int]:
        number = device.index if device.index is not None else torch.cuda.current_device()
        info = native.launcher().device_info(number)
        return build.build_cubin(self.source, arch=f"sm_{info.major}{info.minor}"), number

    def _load(self, device: torch.device, mode: Mode) -> tuple[_Module, Path]:
        launcher = native.launcher()
        if device.type == "cuda":
            cubin, number = self._cubin(device)
            return cast(_Module, launcher.CudaModule(cubin, number)), self.path
        made = build.build_cpu(self.source, checked=mode == "checked")
        return cast(
            _Module, launcher.CpuModule(str(made.path), made.shared, made.device)
        ), made.path


def check_arguments(contract: Contract, arguments: Sequence[Argument]) -> torch.device:
    """The one device of all tensors. Raises `ArgumentError` for what the kernel cannot take."""
    parameters = contract.parameters
    if len(arguments) != len(parameters):
        raise ArgumentError(
            f"{contract.name} takes {len(parameters)} arguments, was given {len(arguments)}"
        )
    device: torch.device | None = None
    for parameter, value in zip(parameters, arguments, strict=True):
        where = f"{contract.name}: {parameter.name}"
        if not isinstance(value, torch.Tensor):
            if parameter.kind == "p":
                raise ArgumentError(f"{where} must be a tensor, got {type(value).__name__}")
            continue
        _check_tensor(where, parameter, value)
        if device is not None and value.device != device:
            raise ArgumentError(f"{where} is on {value.device}, the tensors before it on {device}")
        device = value.device
    if device is None or device.type not in ("cpu", "cuda"):
        raise ArgumentError(f"{contract.name} runs on cpu and cuda tensors, got {device}")
    return device


def _check_tensor(where: str, parameter: Parameter, value: torch.Tensor) -> None:
    if parameter.kind != "p":
        raise ArgumentError(f"{where} must be a number, got a tensor")
    if value.dtype != parameter.dtype:
        raise ArgumentError(f"{where} must be {parameter.dtype}, got {value.dtype}")
    if not value.is_contiguous():
        raise ArgumentError(
            f"{where} must be contiguous, got shape {tuple(value.shape)}, "
            f"strides {tuple(value.stride())}"
        )


def _three(dim: Dim) -> list[int]:
    given = [dim] if isinstance(dim, int) else list(dim)
    return [*given, 1, 1][:3]
