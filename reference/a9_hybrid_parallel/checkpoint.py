"""Given: checkpoints that are whole or not there, on a folder that all ranks see.

`torch.distributed.checkpoint` writes each rank's shards and remembers which part of which tensor
they are; so another layout can read them. A checkpoint is written beside its place and moved there
in one step when all ranks are done: a job that is killed while saving leaves the last one whole.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

KEPT = 2  # the newest ones


def part_of_whole(tensor: torch.Tensor, mesh: DeviceMesh, dim: int | None) -> torch.Tensor:
    """`tensor` as what it is of one whole, for `state`: a DTensor in the same memory.

    mesh: of one dimension. Its ranks hold equal shards along `dim`, in order; or, where `dim` is
    None, all the same.
    """
    from torch.distributed.tensor import DTensor, Replicate, Shard  # half a second of modules

    placement = Replicate() if dim is None else Shard(dim)
    return DTensor.from_local(tensor, mesh, [placement], run_check=False)


def save_checkpoint(folder: str | Path, step: int, state: dict[str, Any]) -> Path:
    """Write `state` as the checkpoint after `step` steps; all ranks call it, with their own parts.

    state: a name for everything that is saved. Under one name all ranks that have it hold parts of
    one thing: a DTensor's shards; or a plain tensor or number, which is then the same on all.
    """
    place = Path(folder) / f"step-{step:08}"
    unfinished = place.with_name(f".{place.name}.unfinished")
    if dist.get_rank() == 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
    dist.barrier()
    _carry_out("save", state, unfinished)
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(place, ignore_errors=True)
        os.rename(unfinished, place)
        for old in _whole(folder)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    dist.barrier()
    return place


def newest_checkpoint(folder: str | Path) -> tuple[Path, int] | None:
    """The newest whole checkpoint and its step, the same on all ranks, which all call it."""
    found: list[Any] = [None]
    if dist.get_rank() == 0:
        whole = _whole(folder)
        found = [str(whole[-1]) if whole else None]
    dist.broadcast_object_list(found, src=0)
    if found[0] is None:
        return None
    place = Path(found[0])
    return place, int(place.name.removeprefix("step-"))


def load_checkpoint(place: str | Path, state: dict[str, Any]) -> None:
    """Read into `state`: tensors in place, in whatever layout they have now; numbers anew.

    Raises RuntimeError when the checkpoint lacks a name or holds another size.
    """
    _carry_out("load", state, Path(place))


def _carry_out(what: str, state: dict[str, Any], place: Path) -> None:
    import torch.distributed.checkpoint as dcp

    try:
        getattr(dcp, what)(state, checkpoint_id=place)
    except dcp.CheckpointException as error:  # of all ranks together, and no Exception
        rank, (failure, _) = next(iter(error.failures.items()))
        raise RuntimeError(
            f"cannot {what} the checkpoint {place.name}: rank {rank}: {type(failure).__name__}: "
            f"{failure}"
        ) from None


def _whole(folder: str | Path) -> list[Path]:
    return sorted(p for p in Path(folder).glob("step-*") if (p / ".metadata").is_file())
