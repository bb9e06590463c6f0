"""What runs beside the student's `initialize`, `shutdown` and `train`, on every rank.

Nothing is judged here. The world of these ranks is the environment's, as after `torchrun`.
"""

from __future__ import annotations

import importlib
import os
import random
import tempfile
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

# The first optimizer imports it, which takes seconds: not while a rank is timed.
import torch._dynamo
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from grader.checks.context import RankContext

#: What is looked at of a machine that is not there: calls of one rank, by its thread.
_bound: dict[int, list[int]] = {}
_device: dict[int, int] = {}


# initialize and shutdown ------------------------------------------------------------------------


def harness(ctx: RankContext, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """Go through `inputs["steps"]`, each a dict with `do`, and tell what is there after each.

    do: "initialize" with `arguments`; "shutdown"; "fail" (shutdown with an error); "wait" (until
    rank 0 has come to its `tell`); "tell". `environment`: variables to set (None: to remove).
    `cores`, `gpus`: how many the machine seems to have. `alone`: without the default group that the
    driver finds.
    An exception is an answer: `error`.
    """
    with _Machine(inputs["cores"], inputs["gpus"]):
        for name in ("initialize", "shutdown"):
            ctx.function(f"a9.{name}")
        if inputs["alone"]:
            dist.destroy_process_group()
        for name, value in inputs["environment"].items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        return [_step(ctx, step) for step in inputs["steps"]]


def _step(ctx: RankContext, step: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"error": None, "process": None}
    do = step["do"]
    try:
        if do == "initialize":
            process = ctx.call(ctx.function("a9.initialize"), **step["arguments"])
            answer["process"] = _described(process)
        elif do == "shutdown":
            ctx.call(ctx.function("a9.shutdown"))
        elif do == "fail":
            ctx.call(ctx.function("a9.shutdown"), RuntimeError("something went wrong on this rank"))
        elif do == "tell":
            ctx.store.set("the first one has left", "1")
        else:
            ctx.store.wait(["the first one has left"])
    except NotImplementedError:
        raise
    except Exception as error:
        answer["error"] = {
            "type": type(error).__name__,
            "message": str(error)[:600],
            "bases": [base.__name__ for base in type(error).__mro__],
        }
    return answer | _found(ctx, draws=do == "initialize" and answer["error"] is None)


def _described(process: Any) -> dict[str, Any] | None:
    try:
        return {
            "numbers": [
                int(getattr(process, name))
                for name in ("rank", "world_size", "local_rank", "local_world_size")
            ],
            "device": str(process.device),
            "cores": [int(core) for core in process.cores],
        }
    except (AttributeError, TypeError, ValueError):
        return None


def _found(ctx: RankContext, draws: bool) -> dict[str, Any]:
    """What a process can see of itself."""
    group = dist.is_initialized()
    found: dict[str, Any] = {
        "group": [dist.get_rank(), dist.get_world_size()] if group else None,
        "bound": list(_bound.get(threading.get_ident(), ())),
        "threads": torch.get_num_threads(),
        "device": _device.get(threading.get_ident(), -1),
        "sum": None,
    }
    if draws:
        number = torch.ones(1) * (dist.get_rank() + 1) if group else None
        if number is not None:
            dist.all_reduce(number)
            found["sum"] = float(number)
        found["draws"] = [
            float(torch.rand((), dtype=torch.float64)),
            random.random(),
            float(np.random.random()),
        ]
    return found


class _Machine:
    """A machine of `cores` cores and `gpus` GPUs, as far as `os` and `torch.cuda` tell.

    All ranks of a simulated world are threads of one process: the first puts the stand-ins in
    place, the last one takes them away.
    """

    _inside = 0
    _originals: ClassVar[list[tuple[Any, str, Any]]] = []

    def __init__(self, cores: int, gpus: int) -> None:
        self._cores, self._gpus = cores, gpus

    def __enter__(self) -> None:
        _Machine._inside += 1
        if _Machine._inside > 1:
            return
        everything = range(self._cores)

        def get(pid: int) -> set[int]:
            return set(_bound.get(threading.get_ident(), everything))

        def put(pid: int, mask: Any) -> None:
            chosen = sorted(int(core) for core in mask)
            if not chosen or not set(chosen) <= set(everything):
                raise OSError(f"no such cores: {chosen} of {len(everything)}")
            _bound[threading.get_ident()] = chosen

        def set_device(device: Any) -> None:
            index = device if isinstance(device, int) else torch.device(device).index
            _device[threading.get_ident()] = -1 if index is None else index

        self._replace(os, "sched_getaffinity", get)
        self._replace(os, "sched_setaffinity", put)
        if self._gpus:
            self._replace(torch.cuda, "device_count", lambda: self._gpus)
            self._replace(torch.cuda, "is_available", lambda: True)
            self._replace(torch.cuda, "set_device", set_device)
            here = threading.get_ident
            self._replace(torch.cuda, "current_device", lambda: max(_device.get(here(), 0), 0))

    def __exit__(self, *exc: object) -> None:
        _Machine._inside -= 1
        while not _Machine._inside and _Machine._originals:
            setattr(*_Machine._originals.pop())

    def _replace(self, module: Any, name: str, stand_in: Any) -> None:
        _Machine._originals.append((module, name, getattr(module, name)))
        setattr(module, name, stand_in)


# train -----------------------------------------------------------------------------------------


def train(ctx: RankContext, inputs: dict[str, Any]) -> dict[str, Any]:
    """Call `train` with the configuration `inputs["config"]`.

    `text`: uint8, written to a file for it. `checkpoint`: whether it gets a folder for one;
    `files`: name -> bytes that are in it at first. `counts`: whether FLOPs are counted.
    The answer: `losses`; `parameters`, `states`: bytes that the optimizer held, at most, of
    parameters and of its own; `steps`: how often it stepped; `flops`: of matrix products on this
    rank; `fallbacks`: part -> why; `files`: what is in the folder at the end (rank 0 only).
    """
    function = ctx.function("a9.train")
    package = function.__module__.rpartition(".")[0]
    config_module, parts = (
        ctx.call(importlib.import_module, f"{package}.{name}") for name in ("config", "parts")
    )
    folder = _shared_folder(ctx, inputs)
    place = str(folder / "checkpoint") if inputs["checkpoint"] else ""
    answer: dict[str, Any] = {"losses": None, "files": {}}
    held, products = _Held(), _Products()
    try:
        config = config_module.TrainConfig(
            **inputs["config"], text=str(folder / "text"), checkpoint=place
        )
        with products if inputs["counts"] else nullcontext():
            answer["losses"] = _numbers(ctx.call(function, config))
    finally:
        held.stop()
    decided = {str(part): str(why)[:200] for part, why in parts.decided.items() if why}
    if inputs["checkpoint"] and ctx.rank == 0:
        answer["files"] = _read(folder / "checkpoint")
    return answer | held.described() | {"flops": products.flops, "fallbacks": decided}


def _numbers(losses: Any) -> list[float] | None:
    if not isinstance(losses, (list, tuple)):
        return None
    if not all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in losses):
        return None
    return [float(x) for x in losses]


def _shared_folder(ctx: RankContext, inputs: dict[str, Any]) -> Path:
    """A folder that all ranks see, with the text and the checkpoint that is there at first."""
    if ctx.rank > 0:
        ctx.store.wait(["the folder"])
        return Path(ctx.store.get("the folder").decode())
    folder = Path(tempfile.mkdtemp(prefix="tinyparallel-train-"))
    (folder / "text").write_bytes(bytes(inputs["text"].to(torch.uint8).cpu().numpy()))
    for name, content in inputs["files"].items():
        file = folder / "checkpoint" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(content.to(torch.uint8).cpu().numpy()))
    ctx.store.set("the folder", str(folder))
    return folder


def _read(folder: Path) -> dict[str, torch.Tensor]:
    return {
        str(file.relative_to(folder)): torch.frombuffer(
            bytearray(file.read_bytes() or b"\0"), dtype=torch.uint8
        )
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """FLOPs of the matrix products that this rank computes, whoever asks for them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0.0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # what it does to this rank's part comes here again
        out = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.flops += float(count(*args, **(kwargs or {}), out_val=out))
        return out


class _Held:
    """What this rank's optimizers hold whenever they have made a step."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._parameters = self._states = self._steps = 0
        self._remove: Callable[[], None] = register_optimizer_step_post_hook(self._look).remove

    def stop(self) -> None:
        """Look no further."""
        self._remove()

    def described(self) -> dict[str, int]:
        """Bytes and steps."""
        return {
            "parameters": self._parameters,
            "states": self._states,
            "steps": self._steps,
        }

    def _look(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        states = [t for p in parameters for t in optimizer.state[p].values() if torch.is_tensor(t)]
        self._parameters = max(self._parameters, _nbytes(parameters))
        self._states = max(self._states, _nbytes([t for t in states if t.numel() > 1]))
        self._steps += 1


def _nbytes(tensors: list[torch.Tensor]) -> int:
    storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())
