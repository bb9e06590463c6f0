"""torch.distributed.checkpoint on simulated ranks: what is saved is loaded, in any layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from tests.fabric.models import adam, batches, shard, small_model
from tests.fabric.ranks import data, run, same


def test_sharded_tensors_are_loaded_in_another_layout(tmp_path: Path) -> None:
    whole = data(0, (7, 4), torch.float64)

    def save(rank: int, _: Any) -> None:
        mesh = init_device_mesh("cpu", (3,))
        state = {"rows": distribute_tensor(whole, mesh, [Shard(0)]), "step": 5}
        dcp.save(state, checkpoint_id=tmp_path)

    def load(rank: int, _: Any) -> None:
        mesh = init_device_mesh("cpu", (2,))
        columns = distribute_tensor(torch.zeros_like(whole), mesh, [Shard(1)])
        state = {"rows": columns, "step": 0}
        dcp.load(state, checkpoint_id=tmp_path)
        same(columns.redistribute(mesh, [Replicate()]).to_local(), whole)
        assert state["step"] == 5

    run(save, 3)
    run(load, 2)


def test_training_goes_on_from_a_checkpoint_of_fully_sharded_parameters(tmp_path: Path) -> None:
    def build() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = small_model()
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        return model, adam(model)

    def steps(rank: int, model: nn.Module, optimizer: torch.optim.Optimizer, part: slice) -> None:
        for batch in list(batches(4))[part]:
            x, y = shard(batch, rank, 2)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    def whole(model: nn.Module) -> torch.Tensor:
        return torch.cat([p.full_tensor().detach().flatten() for p in model.parameters()])

    def straight(rank: int, _: Any) -> torch.Tensor:
        model, optimizer = build()
        steps(rank, model, optimizer, slice(0, 4))
        return whole(model)

    def first_half(rank: int, _: Any) -> None:
        model, optimizer = build()
        steps(rank, model, optimizer, slice(0, 2))
        weights, moments = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=tmp_path)

    def second_half(rank: int, _: Any) -> torch.Tensor:
        model, optimizer = build()
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments}
        dcp.load(state, checkpoint_id=tmp_path)
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        steps(rank, model, optimizer, slice(2, 4))
        return whole(model)

    expected = run(straight, 2)
    run(first_half, 2)
    for value, reference in zip(run(second_half, 2), expected, strict=True):
        same(value, reference)


@pytest.mark.parametrize("from_rank_0", [False, True])
def test_full_state_dict_of_fully_sharded_parameters(from_rank_0: bool) -> None:
    reference = small_model().state_dict()

    def program(rank: int, _: Any) -> None:
        model = fully_shard(small_model())
        whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        for name, value in reference.items():
            same(whole[name], value)
        changed = {name: value + 1 for name, value in reference.items()}
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=from_rank_0)
        given = dict(changed) if rank == 0 or not from_rank_0 else {}
        set_model_state_dict(model, given, options=options)
        for name, parameter in model.named_parameters():
            same(parameter.full_tensor().detach(), changed[name])
        dist.barrier()

    run(program, 2)
