# mypy: disable-error-code="override,assignment,call-arg,no-untyped-call"
"""The "sim" backend: a `torch.distributed` process group whose ranks are simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from grader.fabric.buffers import dtype_name
from grader.fabric.collectives import CollectiveCall
from grader.fabric.engine import Pending
from grader.fabric.runtime import RankRuntime
from grader.fabric.torch_internals import BelowAutograd, NoDispatch, reduce_op_name
from grader.fabric.work import AnySourceWork, SimWork

Tensors = list[torch.Tensor]


def _numels(tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
    return tuple(t.numel() for t in tensors)


def _shapes(tensors: Sequence[torch.Tensor]) -> tuple[str, ...]:
    return tuple(f"{tuple(t.shape)} {dtype_name(t.dtype)}" for t in tensors)


def _strides(tensors: Sequence[torch.Tensor]) -> tuple[tuple[int, ...], ...]:
    return tuple(() if t.is_contiguous() else t.stride() for t in tensors)


def _snapshots(tensors: Sequence[torch.Tensor]) -> Tensors:
    with NoDispatch(), BelowAutograd():
        return [t if t.is_meta else t.clone() for t in tensors]


class SimProcessGroup(dist.ProcessGroup):
    """A group of simulated ranks; calls arrive here from `torch.distributed`'s Python and C++.

    ranks: the global ranks, in group order. Peers and roots of the methods are ranks of the group,
    as PyTorch passes them.
    """

    def __init__(self, runtime: RankRuntime, name: str, ranks: Sequence[int]) -> None:
        super().__init__(ranks.index(runtime.rank), len(ranks))
        self._runtime = runtime
        self._ranks = tuple(ranks)
        self._size = len(ranks)
        self._key = runtime.engine.group(name, ranks)
        self._name = name
        self._coalesced: list[Pending] | None = None

    def getBackendName(self) -> str:
        """ "sim"."""
        return "sim"

    def size(self) -> int:
        """Number of ranks of the group."""
        return self._size

    @property
    def group_name(self) -> str:
        """The name torch knows the group by."""
        return self._name

    @property
    def pg_name(self) -> str:
        """As `group_name`; older parts of torch ask for this one."""
        return self._name

    @property
    def _device_types(self) -> list[torch.device]:
        """Where torch may put tensors of its own for this group, as when it sends objects."""
        return [torch.device("cpu")]

    def _get_backend(self, device: torch.device) -> SimProcessGroup:
        """The group itself, for every device."""
        return self

    def __repr__(self) -> str:
        return f"SimProcessGroup(ranks={list(self._ranks)}, rank={self.rank()})"

    # Coalescing -------------------------------------------------------------------------------

    def _start_coalescing(self, device: torch.device) -> None:
        """What is called from now on becomes one batch with one handle (as NCCL groups calls)."""
        self._coalesced = []
        self._runtime.begin_batch()

    def _end_coalescing(self, device: torch.device) -> SimWork:
        """The handle on all that was called since `_start_coalescing`."""
        pendings, self._coalesced = self._coalesced or [], None
        self._runtime.end_batch()
        return SimWork(self._runtime, pendings, None)

    def _handle(self, pending: Pending, result: Any) -> SimWork:
        if self._coalesced is None:
            return SimWork(self._runtime, (pending,), result)
        self._coalesced.append(pending)
        return SimWork(self._runtime, (), result)  # the batch's handle waits

    # Point to point ---------------------------------------------------------------------------

    def send(self, tensors: Tensors, dstRank: int, tag: int = 0) -> SimWork:
        """Post a send to group rank dstRank."""
        peer = self._peer(dstRank, "send to")
        pending = self._runtime.send(tensors[0], self._key, peer, tag)
        return self._handle(pending, tensors)

    def recv(self, tensors: Tensors, srcRank: int, tag: int = 0) -> SimWork:
        """Post a receive from group rank srcRank."""
        peer = self._peer(srcRank, "receive from")
        pending = self._runtime.receive(tensors[0], self._key, peer, tag)
        return self._handle(pending, tensors)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> SimWork:
        """Post a receive from whichever rank sends first."""
        pending = self._runtime.receive(tensors[0], self._key, -1, tag)
        return AnySourceWork(self._runtime, (pending,), tensors, self._ranks)

    def _peer(self, group_rank: int, verb: str) -> int:
        if not 0 <= group_rank < self._size:
            raise ValueError(f"cannot {verb} rank {group_rank} of a group of {self._size}")
        peer = self._ranks[group_rank]
        if peer == self._runtime.rank:
            raise ValueError(f"rank {peer} cannot {verb} itself: copy the tensor instead")
        return peer

    # Collectives ------------------------------------------------------------------------------

    def _collective(
        self,
        kind: str,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        opts: Any,
        *,
        op: Any = None,
        root: int = -1,
        items: int = 1,
        signature: tuple[object, ...] = (),
        result: Any = None,
        splits: Sequence[int] = (),
    ) -> SimWork:
        name, factor = reduce_op_name(op) if op is not None else ("", None)
        call = CollectiveCall(
            kind,
            _snapshots(inputs),
            name,
            root,
            items,
            factor,
            _strides(outputs or inputs) if kind in ("all_reduce", "broadcast", "reduce") else (),
            _numels(outputs),
            signature,
        )
        pending = self._runtime.collective(
            call,
            self._key,
            self._ranks[root] if root >= 0 else -1,
            inputs,
            outputs,
            asynchronous=bool(getattr(opts, "asyncOp", True)),
            splits=splits,
        )
        return self._handle(pending, outputs if result is None else result)

    def allreduce(self, tensors: Any, opts: Any = None) -> SimWork:
        """All-reduce in place."""
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        return self._collective(
            "all_reduce",
            tensors,
            tensors,
            opts,
            op=opts.reduceOp if opts is not None else dist.ReduceOp.SUM,
            items=len(tensors),
            signature=_shapes(tensors),
        )

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Any, opts: Any) -> SimWork:
        """Broadcast in place."""
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        root = opts.rootRank
        inputs = tensors if root == self.rank() else []
        return self._collective(
            "broadcast", inputs, tensors, opts, root=root, signature=_shapes(tensors)
        )

    def reduce(self, tensors: Tensors, opts: Any) -> SimWork:
        """Reduce to the root, in place there."""
        root = opts.rootRank
        outputs = tensors if root == self.rank() else []
        return self._collective(
            "reduce",
            tensors,
            outputs,
            opts,
            op=opts.reduceOp,
            root=root,
            signature=_shapes(tensors),
        )

    def barrier(self, opts: Any = None) -> SimWork:
        """Wait for every rank of the group."""
        return self._collective("barrier", [], [], opts)

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> SimWork:
        """Gather into lists of tensors."""
        outputs = [tensor for tensors in output_tensors for tensor in tensors]
        return self._collective(
            "all_gather",
            input_tensors,
            outputs,
            opts,
            items=len(input_tensors),
            signature=_shapes(input_tensors),
            result=output_tensors,
        )

    def allgather_coalesced(
        self, output_lists: list[Tensors], input_list: Tensors, opts: Any = None
    ) -> SimWork:
        """Several all-gathers as one."""
        by_item = [[outs[item] for outs in output_lists] for item in range(len(input_list))]
        return self.allgather(by_item, input_list, opts)

    def all_gather_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> SimWork:
        """Gather into one tensor: `output` has world size × the elements of `input`."""
        return self.all_gather_single_coalesced([output], [input], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, output_tensors: Tensors, input_tensors: Tensors, opts: Any = None
    ) -> SimWork:
        """Several gathers into single tensors as one."""
        parts = [part for output in output_tensors for part in self._parts(output)]
        return self._collective(
            "all_gather",
            input_tensors,
            parts,
            opts,
            items=len(input_tensors),
            signature=_shapes(input_tensors),
            result=output_tensors,
        )

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, output_tensors: Any, input_tensors: Tensors, opts: Any) -> SimWork:
        """Gather a list on the root."""
        root = opts.rootRank
        outputs = list(output_tensors[0]) if root == self.rank() and output_tensors else []
        return self._collective(
            "gather", input_tensors, outputs, opts, root=root, signature=_shapes(input_tensors)
        )

    def scatter(self, output_tensors: Tensors, input_tensors: Any, opts: Any) -> SimWork:
        """Scatter a list from the root."""
        root = opts.rootRank
        inputs = list(input_tensors[0]) if root == self.rank() and input_tensors else []
        return self._collective(
            "scatter", inputs, output_tensors, opts, root=root, signature=_shapes(output_tensors)
        )

    def reduce_scatter(self, output_tensors: Tensors, input_tensors: Any, opts: Any) -> SimWork:
        """Reduce lists of tensors; rank i keeps the i-th sum."""
        inputs = [tensor for tensors in input_tensors for tensor in tensors]
        return self._collective(
            "reduce_scatter",
            inputs,
            output_tensors,
            opts,
            op=opts.reduceOp,
            items=len(output_tensors),
            signature=_shapes(inputs),
        )

    def reduce_scatter_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any
    ) -> SimWork:
        """Reduce one tensor; rank i keeps the i-th part of the sum."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, output_tensors: Tensors, input_tensors: Tensors, opts: Any
    ) -> SimWork:
        """Several reduce-scatters of single tensors as one."""
        parts = [self._parts(tensor) for tensor in input_tensors]
        return self.reduce_scatter(output_tensors, parts, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def alltoall(
        self, output_tensors: Tensors, input_tensors: Tensors, opts: Any = None
    ) -> SimWork:
        """Exchange lists of tensors, of any sizes."""
        dtype = str(input_tensors[0].dtype) if input_tensors else ""
        return self._collective(
            "all_to_all",
            input_tensors,
            output_tensors,
            opts,
            signature=(dtype,),
            splits=[t.numel() * t.element_size() for t in input_tensors],
        )

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Any,
        input_split_sizes: Any,
        opts: Any = None,
    ) -> SimWork:
        """Exchange slices along dimension 0; empty split sizes mean equal ones."""
        work = self.alltoall(
            self._split(output, output_split_sizes, "output"),
            self._split(input, input_split_sizes, "input"),
            opts,
        )
        work._result = [output]
        return work

    alltoall_base = all_to_all_single

    def _split(self, tensor: torch.Tensor, sizes: Any, what: str) -> Tensors:
        if not sizes:
            if tensor.dim() == 0 or tensor.shape[0] % self._size:
                raise ValueError(
                    f"all_to_all_single: dimension 0 of the {what} {tuple(tensor.shape)} does not "
                    f"divide by the {self._size} ranks"
                )
            sizes = [tensor.shape[0] // self._size] * self._size
        if sum(sizes) != tensor.shape[0]:
            raise ValueError(
                f"all_to_all_single: {what} splits {list(sizes)} add up to {sum(sizes)}, but "
                f"dimension 0 has {tensor.shape[0]}"
            )
        with NoDispatch(), BelowAutograd():
            return list(tensor.detach().split(list(sizes)))

    def _parts(self, tensor: torch.Tensor) -> Tensors:
        """`tensor` as one contiguous piece per rank, in memory order."""
        numel = tensor.numel() // self._size
        if numel * self._size != tensor.numel():
            raise ValueError(
                f"{tensor.numel()} elements do not divide by the {self._size} ranks of the group"
            )
        if not tensor.is_contiguous():
            return [tensor]  # the check of the runtime says what is wrong with it
        with NoDispatch(), BelowAutograd():
            flat = tensor.detach().view(-1)
            return [flat.narrow(0, i * numel, numel) for i in range(self._size)]
