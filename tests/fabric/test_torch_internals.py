"""Each private name of PyTorch that the fabric leans on does what the fabric needs of it.

A failure here names what a PyTorch release has moved or changed.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from grader.fabric import torch_internals as internals
from tests.fabric.ranks import run


class Seen(internals.DispatchMode):
    """Notes the operators that reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def in_a_thread(call: Callable[[], Any]) -> Any:
    """What `call` returns in a thread of its own; what it raises is raised here."""
    outcome: list[Any] = []

    def body() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


# Dispatch -----------------------------------------------------------------------------------------


def test_push_mode_and_pop_mode_if_top() -> None:
    seen = Seen()
    internals.push_mode(seen)
    try:
        torch.ones(2) + 1
    finally:
        popped = internals.pop_mode_if_top(seen)
    torch.ones(2) * 2
    assert "aten::add" in seen.names, (
        "torch.utils._python_dispatch._push_mode: a pushed mode no longer sees operations"
    )
    assert popped and "aten::mul" not in seen.names, (
        "torch.utils._python_dispatch._pop_mode: a popped mode still sees operations"
    )
    assert not internals.pop_mode_if_top(seen), "torch._C._len_torch_dispatch_stack has changed"


def test_pop_mode_leaves_a_mode_above_alone() -> None:
    below, above = Seen(), Seen()
    internals.push_mode(below)
    with above:
        popped = internals.pop_mode_if_top(below)
    assert internals.pop_mode_if_top(below)
    assert not popped, "torch._C._get_dispatch_stack_at no longer gives the mode on top last"


def test_a_mode_belongs_to_its_thread() -> None:
    seen = Seen()
    internals.push_mode(seen)
    try:
        in_a_thread(lambda: torch.ones(2) + 1)
    finally:
        internals.pop_mode_if_top(seen)
    assert seen.names == [], "dispatch modes are no longer per thread"


def test_a_mode_sees_the_operations_of_backward_in_the_same_thread() -> None:
    seen = Seen()
    torch.autograd.set_multithreading_enabled(False)
    try:
        internals.push_mode(seen)
        (torch.ones(2, requires_grad=True) * 3).sum().backward()
    finally:
        internals.pop_mode_if_top(seen)
        torch.autograd.set_multithreading_enabled(True)
    assert seen.names.count("aten::mul") == 2, (
        "torch.autograd.set_multithreading_enabled: backward is no longer seen by the mode"
    )


def test_no_dispatch_hides_the_mode() -> None:
    seen = Seen()
    internals.push_mode(seen)
    try:
        with internals.NoDispatch():
            torch.ones(2).add_(1)
    finally:
        internals.pop_mode_if_top(seen)
    assert seen.names == [], "torch._C._DisableTorchDispatch no longer hides dispatch modes"


def test_below_autograd_records_nothing() -> None:
    leaf = torch.zeros(2, requires_grad=True)
    version = leaf._version
    with internals.BelowAutograd():
        leaf.fill_(3.0)
        copy = leaf.clone()
    assert leaf.tolist() == [3.0, 3.0] and not copy.requires_grad, (
        "torch._C._AutoDispatchBelowADInplaceOrView: operations are recorded for autograd again"
    )
    assert leaf._version == version, (
        "torch._C._AutoDispatchBelowADInplaceOrView: writing moves the version counter"
    )


def test_only_fakes_and_their_kernels_work_out_shapes() -> None:
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    def seen_by_meta_kernel(func: Any, types: Any) -> bool:
        return internals.works_out_shapes(types)

    class Asks(Seen):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):  # type: ignore[no-untyped-def]
            answers.append((func._schema.name, seen_by_meta_kernel(func, types)))
            return func(*args, **(kwargs or {}))

    answers: list[tuple[str, bool]] = []
    asks = Asks()
    internals.push_mode(asks)
    try:
        torch.ones(2) + 1
        torch.ones(2, device="meta") + 1
        with FakeTensorMode() as fakes:
            fake = fakes.from_tensor(torch.ones(2))
            assert isinstance(fake, FakeTensor)
            real, answers = answers, answers[:0]
            fake @ fake
    finally:
        internals.pop_mode_if_top(asks)
    assert ("aten::add", False) in real and not any(found for name, found in real if "add" in name)
    assert all(found for _, found in answers), (
        "torch._C._meta_in_tls_dispatch_include or FakeTensor: shapes count as computation"
    )


def test_dispatches_tells_dtensor_from_parameters() -> None:
    assert internals.dispatches(DTensor), "DTensor no longer has a __torch_dispatch__ of its own"
    for kind in (torch.Tensor, torch.nn.Parameter):
        assert not internals.dispatches(kind), f"{kind} now has a __torch_dispatch__ of its own"


def test_the_mode_does_not_import_the_compiler() -> None:
    program = """
import sys
import torch
import torch.distributed as dist
from grader.fabric import simulate

def program(rank, _):
    buffer = torch.zeros(2)
    work = dist.irecv(buffer, 0) if rank else dist.isend(torch.ones(2), 1)
    torch.ones(2) + 1
    work.wait()
    (torch.ones(2, requires_grad=True) * 2).sum().backward()

result = simulate(program, 2, compute=True)
assert not result.findings, result.findings[0].message
assert any(event.kind == "compute" for event in result.record.events[0])
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False"], (
        "TorchDispatchMode._should_skip_dynamo: the first operation under a mode imports "
        "torch._dynamo (about 1 s)"
    )


def test_torch_still_asks_whether_to_skip_the_compiler() -> None:
    assert hasattr(TorchDispatchMode, "_should_skip_dynamo"), (
        "TorchDispatchMode._should_skip_dynamo is gone: is the wrapper around __torch_dispatch__?"
    )
    assert Seen.__dict__["__torch_dispatch__"].__name__ == "__torch_dispatch__"
    assert not hasattr(Seen.__torch_dispatch__, "__wrapped__"), (
        "__torch_dispatch__ of our mode is wrapped again"
    )


# torch.distributed's bookkeeping ------------------------------------------------------------------


def test_our_world_has_every_field_of_torchs() -> None:
    real = {name for name in dir(c10d._World) if not name.startswith("__")}
    ours = set(internals._WORLD_FIELDS)
    assert real - {"pg_config_info"} == ours, (
        f"torch.distributed.distributed_c10d._World: fields {sorted(real ^ ours)} differ"
    )
    assert set(vars(internals.RankWorld())) == ours


def test_a_replaced_world_is_seen_by_torch() -> None:
    real = c10d._world
    world = internals.install_world()
    try:

        def rank_of(size: int) -> tuple[bool, int]:
            world.enter(internals.RankWorld())
            before = dist.is_initialized()
            c10d._world.default_pg = dist.ProcessGroup(size - 1, size)
            c10d._world.pg_group_ranks[c10d._world.default_pg] = {r: r for r in range(size)}
            return before, dist.get_rank()

        assert [in_a_thread(lambda n=n: rank_of(n)) for n in (2, 5)] == [(False, 1), (False, 4)], (
            "distributed_c10d._world: torch no longer reads its state from there"
        )
        assert not dist.is_initialized() and c10d._world.default_pg is None
    finally:
        internals.uninstall_world(world)
    assert c10d._world is real


def test_the_native_registry_of_groups_is_apart_for_each_thread() -> None:
    def ask(name: str) -> bool:
        try:
            c10d._resolve_process_group(c10d.GroupName(name))
        except (RuntimeError, ValueError):
            return False
        return True

    def register() -> tuple[bool, bool]:
        group = dist.ProcessGroup(0, 1)
        c10d._register_process_group(c10d.GroupName("ours"), group)
        there = ask("ours")
        other = in_a_thread(lambda: ask("ours"))
        internals.release_groups()
        assert not ask("ours"), "_unregister_all_process_groups leaves groups in the registry"
        return there, other

    world = internals.install_world()
    try:
        there, other = in_a_thread(register)
    finally:
        internals.uninstall_world(world)
    assert there, "_register_process_group: a registered group is not found"
    assert not other, "_set_thread_isolation_mode: threads share the registry of groups"


def test_group_of() -> None:
    def program(rank: int, _: Any) -> None:
        group = dist.new_group([0, 1])
        assert internals.group_of(None) is dist.group.WORLD, "c10d._group_or_default_group"
        assert internals.group_of(group) is group, "c10d._group_or_default_group"

    run(program, 2)


@pytest.mark.parametrize("name", ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"])
def test_reduce_op_names(name: str) -> None:
    op = getattr(dist.ReduceOp, name)
    for form in (op, dist.ReduceOp(op)):
        assert internals.reduce_op_name(form) == (name, None), f"ReduceOp.{name} in form {form!r}"


def test_the_factor_of_premul_sum() -> None:
    name, factor = internals.reduce_op_name(dist._make_nccl_premul_sum(0.125))
    assert (name, factor) == ("PREMUL_SUM", 0.125), (
        "ReduceOp.__getstate__ of a PREMUL_SUM no longer holds its factor"
    )


def test_dtensor_handlers_are_read_at_every_operation() -> None:
    def program(rank: int, _: Any) -> None:
        tensor = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])
        before = internals.dtensor_handlers()
        assert before is not None, "torch.distributed.tensor._api.DTensor has moved"
        called: list[str] = []

        def handler(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
            called.append(func._schema.name)
            return torch.zeros(1)

        internals.set_dtensor_handlers({**before, torch.ops.aten.neg.default: handler})
        torch.neg(tensor)
        internals.set_dtensor_handlers(before)
        torch.neg(tensor)
        assert called == ["aten::neg"], (
            "DTensor._op_dispatcher._custom_op_handlers is no longer where DTensor looks"
        )

    run(program, 2)


# What calls arrive at a process group -------------------------------------------------------------


def test_a_python_process_group_is_called_by_native_code() -> None:
    def program(rank: int, _: Any) -> None:
        ops = torch.ops._c10d_functional
        name = dist.group.WORLD.group_name
        tensor = ops.wait_tensor(ops.all_reduce(torch.ones(2), "sum", name))
        assert tensor.tolist() == [2.0, 2.0], "_c10d_functional no longer calls the group"

    run(program, 2)


def test_stores_keep_their_time_out_in_c() -> None:
    store = dist.HashStore()
    assert dist.Store.timeout.__get__(store).total_seconds() == 300, (
        "the default time-out of a torch Store is no longer 5 minutes (grader.fabric.store)"
    )
