"""Two ranks at a time: how ranks find each other, and how neighbours swap without deadlock.

Everything later in the course rests on the two habits practised here: agree on who talks to whom
before anything is sent, and post what you send *together* with what you expect.
"""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist


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
    raise NotImplementedError("a1.rendezvous")


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
    raise NotImplementedError("a1.neighbour_exchange")
