"""All-reduce around a ring: bandwidth-optimal, and no rank is special.

Every rank sends to the next rank of the group and receives from the previous one, nothing else.
The vector is cut into n chunks. A reduce-scatter carries each chunk once around the ring and lets
every rank add its own part; an all-gather carries the finished chunks around once more.

Sources: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
2009 (the algorithm and the lower bound); Gibiansky, "Bringing HPC techniques to deep learning",
Baidu 2017, and Sergeev and Del Balso, "Horovod", 2018 (its use for gradients); the NCCL user guide.
"""

from __future__ import annotations

# BEGIN SOLUTION
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# END SOLUTION
import torch
import torch.distributed as dist

# BEGIN SOLUTION
import kernels

from .given import check_op, combine, place


def fold(total: torch.Tensor, received: torch.Tensor, op: dist.ReduceOp.RedOpType) -> None:
    """`combine`, with sums by the kernel `reduce_add` where that runs.

    Both add 16-bit numbers in float32 and round once, so they agree in every bit.
    """
    adds = op == dist.ReduceOp.SUM or op == dist.ReduceOp.AVG
    fused = kernels.usable(__file__, total, received) if adds else None
    if fused is None:
        combine(total, received, op)
    else:
        fused.reduce_add(total, received)


@contextmanager
def flattened(tensor: torch.Tensor, name: str = "tensor") -> Iterator[torch.Tensor]:
    """A contiguous (N,) stand-in for a tensor that is written in place.

    A view where that is possible; else a copy that is written back at the end, because
    point-to-point calls move contiguous memory. An expanded tensor keeps many elements in one
    cell: ValueError.
    """
    if any(
        stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    ):
        raise ValueError(
            f"{name} is expanded: shape {tuple(tensor.shape)}, stride {tensor.stride()}; "
            "its elements share memory and cannot be written one by one"
        )
    flat = tensor.contiguous().view(-1)
    yield flat
    if not tensor.is_contiguous():
        tensor.copy_(flat.view_as(tensor))


def post_exchange(
    send: torch.Tensor, receive: torch.Tensor, group: dist.ProcessGroup | None
) -> list[dist.Work]:
    """Start receiving from the previous rank and sending to the next; an empty chunk stays home.

    One batch, because a rank that sends first and receives second waits for a neighbour that does
    the same. The receive stands first in it: gloo posts them one by one, and what finds its buffer
    ready goes straight there. Group ranks (`group_peer`), because in a sub-group they are not the
    global ones.
    """
    rank, world_size = place(group)
    following, previous = (rank + 1) % world_size, (rank - 1) % world_size
    operations = []
    if receive.numel() > 0:
        operations.append(dist.P2POp(dist.irecv, receive, group=group, group_peer=previous))
    if send.numel() > 0:
        operations.append(dist.P2POp(dist.isend, send, group=group, group_peer=following))
    return dist.batch_isend_irecv(operations) if operations else []


def wait_for_receive(works: list[dist.Work]) -> list[dist.Work]:
    """Wait for the first of an exchange, the receive; the send, still on its way, is handed back.

    The next step needs what arrived, not the neighbour's leisure: whoever waits for every send at
    once runs at the pace of the slowest rank. (NCCL hands out one work for the whole batch.)
    """
    if works:
        works.pop(0).wait()
    return works


def wait_all(works: list[dist.Work]) -> None:
    for work in works:
        work.wait()


def reduce_scatter_chunks(
    chunks: Sequence[torch.Tensor], op: dist.ReduceOp.RedOpType, group: dist.ProcessGroup | None
) -> None:
    """Leave the reduction of chunk i of all ranks in chunk i of rank i; AVG is left as the sum.

    In place: the other chunks hold partial results afterwards.
    """
    rank, world_size = place(group)
    scratch = torch.empty_like(chunks[0])
    sends = []
    for step in range(world_size - 1):
        partial = chunks[(rank - 1 - step) % world_size]
        own = chunks[(rank - 2 - step) % world_size]
        received = scratch[: own.numel()]
        sends += wait_for_receive(post_exchange(partial, received, group))
        fold(own, received, op)
    wait_all(sends)


def all_gather_chunks(chunks: Sequence[torch.Tensor], group: dist.ProcessGroup | None) -> None:
    """Spread chunk i from rank i to all ranks, each straight into its place."""
    rank, world_size = place(group)
    sends = []
    for step in range(world_size - 1):
        send = chunks[(rank - step) % world_size]
        receive = chunks[(rank - 1 - step) % world_size]
        sends += wait_for_receive(post_exchange(send, receive, group))
    wait_all(sends)


def require_chunks(
    whole: torch.Tensor, chunk: torch.Tensor, world_size: int, names: tuple[str, str]
) -> None:
    """Raise `ValueError` unless `whole` is `world_size` times `chunk` along dimension 0."""
    expected = (world_size * chunk.shape[0], *chunk.shape[1:]) if chunk.dim() > 0 else None
    if tuple(whole.shape) != expected:
        raise ValueError(
            f"{names[0]} must be {world_size} (the world size) times {names[1]} along dimension 0: "
            f"{names[0]} has shape {tuple(whole.shape)}, {names[1]} has shape {tuple(chunk.shape)}"
        )
    if whole.dtype != chunk.dtype:
        raise ValueError(
            f"{names[0]} and {names[1]} must have one dtype, got {whole.dtype} and {chunk.dtype}"
        )


# END SOLUTION


@torch.no_grad()
def ring_reduce_scatter(
    output: torch.Tensor,
    tensor: torch.Tensor,
    op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Reduce `tensor` over the ranks of the group and leave chunk i of the result on rank i.

    Args:
        output: (rows, *), any dtype that `op` makes sense for; written in place.
        tensor: (n * rows, *) for n ranks, dtype of `output`; not changed. Chunk i is rows
            i * rows to (i + 1) * rows, i the rank in the group.
        op: SUM, AVG, MAX, MIN or PRODUCT, elementwise, in the tensors' own dtype.
        group: None for the default group.

    Each rank sends (n - 1) chunks, in n - 1 rounds, to the next rank of the group only.

    Raises:
        ValueError: `tensor` is not n times `output` along dimension 0; the dtypes differ; `op` is
            none of the five; AVG of an integer or boolean dtype.

    Source: Patarasuk and Yuan 2009; the interface of `dist.reduce_scatter_tensor`.
    """
    # BEGIN SOLUTION
    check_op(op, tensor.dtype)
    rank, world_size = place(group)
    require_chunks(tensor, output, world_size, ("tensor", "output"))
    chunks = tensor.contiguous().view(-1).tensor_split(world_size)
    with flattened(output, "output") as flat_output:
        # Two buffers take turns: what came last is being sent while the next is coming in.
        buffers = torch.empty_like(flat_output), torch.empty_like(flat_output)
        partial = chunks[rank - 1]
        for step in range(world_size - 1):
            last = step == world_size - 2
            received = flat_output if last else buffers[step % 2]
            wait_all(post_exchange(partial, received, group))
            fold(received, chunks[(rank - 2 - step) % world_size], op)
            partial = received
        if world_size == 1:
            flat_output.copy_(partial)
        if op == dist.ReduceOp.AVG:
            flat_output.div_(world_size)
    # END SOLUTION


@torch.no_grad()
def ring_all_gather(
    output: torch.Tensor, tensor: torch.Tensor, group: dist.ProcessGroup | None = None
) -> None:
    """Concatenate `tensor` of all ranks, in the order of their group ranks, on every rank.

    Args:
        output: (n * rows, *) for n ranks; written in place.
        tensor: (rows, *), dtype of `output`, any dtype; not changed.
        group: None for the default group.

    Each rank sends (n - 1) chunks, in n - 1 rounds, to the next rank of the group only.

    Raises:
        ValueError: `output` is not n times `tensor` along dimension 0; the dtypes differ.

    Source: Thakur, Rabenseifner and Gropp 2005 (ring all-gather); the interface of
    `dist.all_gather_into_tensor`.
    """
    # BEGIN SOLUTION
    rank, world_size = place(group)
    require_chunks(output, tensor, world_size, ("output", "tensor"))
    with flattened(output, "output") as flat_output:
        chunks = flat_output.tensor_split(world_size)
        chunks[rank].copy_(tensor.contiguous().view(-1))
        all_gather_chunks(chunks, group)
    # END SOLUTION


@torch.no_grad()
def ring_all_reduce(
    tensor: torch.Tensor,
    op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Replace `tensor` on every rank by the reduction over all ranks, bit for bit the same.

    Args:
        tensor: any shape and length N, also 0, fewer elements than ranks, or not contiguous; in
            place. What travels has the tensor's own dtype.
        op: SUM, AVG, MAX, MIN or PRODUCT, elementwise.
        group: None for the default group.

    For n ranks: at most 2 (n - 1) rounds, and each rank sends at most 2 (n - 1) * ceil(N / n)
    elements, all of them to the next rank of the group; it receives from the previous one only.

    Raises:
        ValueError: `op` is none of the five; AVG of an integer or boolean dtype; `tensor` is
            expanded (its elements share memory).

    Source: Patarasuk and Yuan 2009; Gibiansky 2017.
    """
    # BEGIN SOLUTION
    check_op(op, tensor.dtype)
    rank, world_size = place(group)
    with flattened(tensor) as flat:
        chunks = flat.tensor_split(world_size)  # sizes differ by one at most
        reduce_scatter_chunks(chunks, op, group)
        if op == dist.ReduceOp.AVG:
            chunks[rank].div_(world_size)
        all_gather_chunks(chunks, group)
    # END SOLUTION


@torch.no_grad()
def pipelined_ring_all_reduce(
    tensor: torch.Tensor,
    op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    segment_bytes: int = 1 << 20,
) -> None:
    """`ring_all_reduce` in segments: one segment is reduced while others are on the wire.

    Args:
        tensor, op, group: as for `ring_all_reduce`.
        segment_bytes: bytes of the largest message, at least 1; a segment is at least one element.

    Bytes and peers are those of `ring_all_reduce`. Where reducing a byte takes as long as sending
    it, the virtual time is at most 1.25 times the larger of all transfers and all reductions.

    Raises:
        ValueError: as `ring_all_reduce`; `segment_bytes` less than 1.

    Source: Patarasuk and Yuan 2009; the segmented ring of Open MPI; the slices of NCCL.
    """
    # BEGIN SOLUTION
    check_op(op, tensor.dtype)
    if segment_bytes < 1:
        raise ValueError(f"segment_bytes must be at least 1, got {segment_bytes}")
    rank, world_size = place(group)
    reduce_steps, all_steps = world_size - 1, 2 * (world_size - 1)
    with flattened(tensor) as flat:
        chunks = flat.tensor_split(world_size)
        segment_elements = max(1, segment_bytes // flat.element_size())
        count = max(1, -(-chunks[0].numel() // segment_elements))
        # Ring j works on segment j of every chunk. The rings follow each other one step apart, so
        # that some still reduce while others already gather and the wire always has work.
        rings = list(zip(*(chunk.tensor_split(count) for chunk in chunks), strict=True))
        scratch = [torch.empty_like(rings[0][0]) for _ in range(min(count, world_size))]
        in_flight: dict[int, list[dist.Work]] = {}
        for tick in range(count + all_steps if all_steps else 0):
            for j in range(min(tick, count - 1), max(tick - all_steps, 0) - 1, -1):
                step, ring = tick - j, rings[j]
                own = ring[(rank - 1 - step) % world_size]
                incoming = ring[(rank - 2 - step) % world_size]
                buffer = scratch[j % world_size]
                if step > 0:
                    wait_all(in_flight.pop(j))
                    if step <= reduce_steps:
                        fold(own, buffer[: own.numel()], op)
                    if step == reduce_steps and op == dist.ReduceOp.AVG:
                        own.div_(world_size)
                if step < all_steps:
                    target = buffer[: incoming.numel()] if step < reduce_steps else incoming
                    in_flight[j] = post_exchange(own, target, group)
    # END SOLUTION
