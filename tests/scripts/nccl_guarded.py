"""A script written for GPUs that falls back to the CPU by device checks of its own."""

import os

import torch
import torch.distributed as dist


def setup() -> torch.device:
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
    dist.init_process_group("nccl", device_id=device if device.type == "cuda" else None)
    return device


def main() -> None:
    device = setup()
    rank, size = dist.get_rank(), dist.get_world_size()
    half = dist.new_group(list(range(size // 2)), backend="nccl")
    tensor = torch.full((1024,), float(rank), device=device)
    dist.all_reduce(tensor)
    assert tensor[0].item() == size * (size - 1) / 2, tensor[0]
    if rank < size // 2:
        gathered = torch.empty(size // 2 * 4, device=device)
        dist.all_gather_into_tensor(gathered, torch.full((4,), float(rank), device=device), half)
        assert gathered[-1].item() == size // 2 - 1
    dist.barrier()
    if int(os.environ["LOCAL_RANK"]) == 0:
        print(f"node {os.environ['GROUP_RANK']}: backend {dist.get_backend()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
