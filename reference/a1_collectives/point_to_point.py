"""Two ranks at a time: how ranks find each other, and how neighbours swap without deadlock.

Everything later in the course rests on the two habits practised here: agree on who talks to whom
before anything is sent, and post what you send *together* with what you expect.
"""

from __future__ import annotations

# BEGIN SOLUTION
import time
from collections.abc import Sequence

# END SOLUTION
from datetime import timedelta

import torch
import torch.distributed as dist

# BEGIN SOLUTION
Message = tuple[torch.Tensor, int]  # a buffer, and the group rank at the other end

# A store reads a timeout of zero as "for ever", so a spent budget still has to ask for something.
SHORTEST_WAIT = timedelta(milliseconds=1)


def exchange(
    sends: Sequence[Message], receives: Sequence[Message], group: dist.ProcessGroup | None
) -> None:
    """Post all messages as one batch; return when every one of them has left or arrived.

    Empty tensors travel in no message: both ends know the size, so both skip it. Two messages
    between the same pair of ranks arrive in the order in which they stand in the lists.
    """
    sends = [(tensor.contiguous(), peer) for tensor, peer in sends if tensor.numel()]
    receives = [(tensor, peer) for tensor, peer in receives if tensor.numel()]
    # The wire fills consecutive memory, so a strided tensor is received beside itself first.
    landings = [
        tensor
        if tensor.is_contiguous()
        else torch.empty_like(tensor, memory_format=torch.contiguous_format)
        for tensor, _ in receives
    ]
    batch = [
        dist.P2POp(dist.irecv, landing, group=group, group_peer=peer)
        for landing, (_, peer) in zip(landings, receives, strict=True)
    ] + [dist.P2POp(dist.isend, tensor, group=group, group_peer=peer) for tensor, peer in sends]
    if not batch:
        return
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    for landing, (tensor, _) in zip(landings, receives, strict=True):
        if landing is not tensor:
            tensor.copy_(landing)


def peers_from_next(rank: int, size: int) -> list[int]:
    """All other ranks, each rank starting after itself, so that not all call on rank 0 first."""
    return [(rank + distance) % size for distance in range(1, size)]


def exchange_with_all(
    leaving: Sequence[torch.Tensor],
    arriving: Sequence[torch.Tensor],
    rank: int,
    group: dist.ProcessGroup | None,
) -> None:
    """Send ``leaving[i]`` to each other rank i and receive ``arriving[i]`` from it, all at once."""
    peers = peers_from_next(rank, len(leaving))
    exchange(
        sends=[(leaving[peer], peer) for peer in peers],
        receives=[(arriving[peer], peer) for peer in peers],
        group=group,
    )


# END SOLUTION


def rendezvous(
    store: dist.Store, rank: int, world_size: int, address: str, timeout: timedelta
) -> list[str]:
    """Tell every rank where every other rank listens.

    What ``init_process_group`` does before its first message: a key-value store that all ranks
    can reach is the only thing they share, so each writes its own address and reads the others'.

    Args:
        store: shared by all ranks. ``set(key, value)`` writes; ``get(key)`` returns bytes and
            waits for the key; ``wait([key], timeout)`` raises ``dist.DistStoreError``, a
            ``RuntimeError``, when the key does not appear in time (and waits for ever when the
            timeout is zero); ``add(key, n)`` counts.
        rank: this rank, 0 … ``world_size`` − 1.
        world_size: number of ranks that will call.
        address: this rank's address, any non-empty string.
        timeout: for the whole call, however many ranks are missing.

    Returns:
        The ``world_size`` addresses, in order of rank.

    Raises:
        ValueError: ``world_size`` < 1, ``rank`` outside 0 … ``world_size`` − 1, an empty
            ``address`` or a ``timeout`` that is not positive; nothing is written then.
        TimeoutError: some rank's address did not appear in time; the message names *every*
            missing rank, and no rank that is there.
    """
    # BEGIN SOLUTION
    if world_size < 1:
        raise ValueError(f"world_size={world_size}: expected at least 1")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank={rank}: expected 0 to {world_size - 1} for world_size={world_size}")
    if not address:
        raise ValueError(f"address={address!r}: expected a string that is not empty")
    if timeout <= timedelta(0):
        raise ValueError(f"timeout={timeout}: expected more than {timedelta(0)}")

    deadline = time.monotonic() + timeout.total_seconds()
    store.set(_address_key(rank), address)  # before any wait, or all would wait for all
    missing = []
    for peer in range(world_size):
        remaining = timedelta(seconds=deadline - time.monotonic())
        try:
            store.wait([_address_key(peer)], max(remaining, SHORTEST_WAIT))
        except RuntimeError:  # DistStoreError is one; FileStore raises it plain
            missing.append(peer)  # go on: a later rank may be there, and must not be blamed
    if missing:
        raise TimeoutError(
            f"after {timeout.total_seconds():g} s rank {rank} is still missing "
            f"{len(missing)} of {world_size} ranks: {', '.join(map(str, missing))}"
        )
    return [store.get(_address_key(peer)).decode() for peer in range(world_size)]
    # END SOLUTION


# BEGIN SOLUTION
def _address_key(rank: int) -> str:
    return f"rendezvous/address/{rank}"


# END SOLUTION


@torch.no_grad()
def neighbour_exchange(
    tensor: torch.Tensor, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Swap a tensor with both neighbours on the ring of the group's ranks.

    The halo exchange of stencil codes, and the trap everybody falls into once: if every rank
    sends before it receives, every rank waits for ever.

    Args:
        tensor: any shape and dtype, the same on all ranks; need not be contiguous; unchanged.
        group: the ranks that take part; ``None`` is the default group.

    Returns:
        ``(from_previous, from_next)``: the tensors of group ranks ``rank − 1`` and ``rank + 1``
        modulo the group's size, as two new contiguous tensors of ``tensor``'s shape and dtype. A
        group of one rank is its own neighbour and sends nothing.
    """
    # BEGIN SOLUTION
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    from_previous = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    from_next = torch.empty_like(from_previous)
    if size == 1:
        return from_previous.copy_(tensor), from_next.copy_(tensor)
    previous, following = (rank - 1) % size, (rank + 1) % size
    # With two ranks both neighbours are one: its message "to the next" is our "from the previous",
    # and messages between two ranks keep their order, so the lists below match pair by pair.
    exchange(
        sends=[(tensor, following), (tensor, previous)],
        receives=[(from_previous, previous), (from_next, following)],
        group=group,
    )
    return from_previous, from_next
    # END SOLUTION
