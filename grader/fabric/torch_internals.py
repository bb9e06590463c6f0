"""Every private name of PyTorch that the simulated cluster leans on, in one place.

tests/fabric/test_torch_internals.py asks of each what the fabric needs of it, so that a PyTorch
release that moves one says which, and not just that something hangs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn.functional
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed import distributed_c10d as c10d
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

#: Leaves out every Python dispatch mode and tensor subclass while it is held.
NoDispatch: Callable[[], Any] = torch._C._DisableTorchDispatch

#: Below autograd: no graph is recorded and no version counter moves while it is held.
BelowAutograd: Callable[[], Any] = torch._C._AutoDispatchBelowADInplaceOrView

_WORLD_FIELDS = (
    "default_pg",
    "pg_map",
    "pg_names",
    "pg_group_ranks",
    "pg_backend_config",
    "group_count",
    "tags_to_pg",
    "pg_to_tag",
    "pg_coalesce_state",
    "comms",
)


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that does not bring in torch's compiler.

    Torch otherwise wraps `__torch_dispatch__` so that the first operation imports the compiler
    (about 1 s) and every later one costs microseconds more.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def works_out_shapes(types: Iterable[type]) -> bool:
    """Whether torch is only working out a shape, on stand-ins for tensors, as DTensor does."""
    return torch._C._meta_in_tls_dispatch_include() or any(
        issubclass(kind, FakeTensor) for kind in types
    )


def dispatches(kind: type) -> bool:
    """Whether a tensor subclass handles operations itself, as DTensor does."""
    own = getattr(kind, "__torch_dispatch__", None)
    return own not in (
        None,
        torch.Tensor.__torch_dispatch__,
        torch._C._disabled_torch_dispatch_impl,
    )


def dtensor_handlers() -> dict[Any, Any] | None:
    """Operators that DTensor handles specially now; `loss_parallel` adds some while it is open.

    `None` as long as nobody has imported DTensor.
    """
    api = sys.modules.get("torch.distributed.tensor._api")
    return None if api is None else api.DTensor._op_dispatcher._custom_op_handlers


def set_dtensor_handlers(handlers: dict[Any, Any]) -> None:
    """Put these in the place of `dtensor_handlers`."""
    dispatcher = sys.modules["torch.distributed.tensor._api"].DTensor._op_dispatcher
    dispatcher._custom_op_handlers = handlers


class RankWorld:
    """`torch.distributed`'s bookkeeping of process groups, for one rank."""

    def __init__(self) -> None:
        self.default_pg: dist.ProcessGroup | None = None
        self.pg_map: dict[Any, Any] = {}
        self.pg_names: dict[Any, str] = {}
        self.pg_group_ranks: dict[Any, dict[int, int]] = {}
        self.pg_backend_config: dict[Any, str] = {}
        self.group_count = 0
        self.tags_to_pg: dict[str, list[Any]] = {}
        self.pg_to_tag: dict[Any, str] = {}
        self.pg_coalesce_state: dict[Any, list[Any]] = {}
        self.comms: list[Any] = []


class WorldByThread(threading.local):
    """Stands in for `distributed_c10d._world`: each rank's thread sees its own `RankWorld`.

    A thread that is no rank sees the fields of the real one.
    """

    def __init__(self, real: Any) -> None:
        super().__init__()
        self.real = real
        for name in _WORLD_FIELDS:
            setattr(self, name, getattr(real, name))

    @property
    def pg_config_info(self) -> list[dict[str, Any]]:
        """As torch's own: a description of each group, for its logs."""
        return c10d._World.pg_config_info.fget(self)  # type: ignore[attr-defined, no-any-return]

    def enter(self, world: RankWorld) -> None:
        """Give the calling thread this world."""
        vars(self).update(vars(world))


def install_world() -> WorldByThread:
    """Put a `WorldByThread` in the place of torch's world object."""
    world = WorldByThread(c10d._world)
    c10d._world = world  # type: ignore[assignment]
    torch._C._distributed_c10d._set_thread_isolation_mode(True)  # type: ignore[attr-defined]
    return world


def uninstall_world(world: WorldByThread) -> None:
    """Undo `install_world`."""
    c10d._world = world.real
    torch._C._distributed_c10d._set_thread_isolation_mode(False)  # type: ignore[attr-defined]


def release_groups() -> None:
    """Forget the calling thread's process groups in the native registry."""
    torch._C._distributed_c10d._unregister_all_process_groups()


def group_of(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """`group`, or the calling rank's default group."""
    return c10d._group_or_default_group(group)


def reduce_op_name(op: Any) -> tuple[str, float | torch.Tensor | None]:
    """("SUM", None) for a `ReduceOp`, its `RedOpType`, or the factor of a PREMUL_SUM."""
    kind = getattr(op, "op", op)
    name = getattr(kind, "name", None) or str(kind).rsplit(".", 1)[-1]
    factor: float | torch.Tensor | None = None
    if name == "PREMUL_SUM":
        state = op.__getstate__()
        factor = state[1] if len(state) > 1 else None
    return name, factor


def push_mode(mode: Any) -> None:
    """Put a dispatch mode on top of the calling thread's stack."""
    _push_mode(mode)


def pop_mode_if_top(mode: Any) -> bool:
    """Take `mode` off the stack if it is on top; a mode of the user's above it stays."""
    length = torch._C._len_torch_dispatch_stack()
    if length == 0 or torch._C._get_dispatch_stack_at(length - 1) is not mode:
        return False
    _pop_mode()
    return True
