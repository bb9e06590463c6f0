"""Checks its splits after it has sent, when the sums do not fit."""

import torch
import torch.distributed as dist

TASK = "a1.all_to_all_single"
EXPECT = {
    "status": "failed",
    "check": "refuses",
    "cause": "after messages had been sent",
}


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if output.dtype != input.dtype:
        raise ValueError(f"output is {output.dtype}, but input is {input.dtype}")
    out_sizes = output_split_sizes or [output.size(0) // size] * size
    in_sizes = input_split_sizes or [input.size(0) // size] * size
    for name, sizes in (("output_split_sizes", out_sizes), ("input_split_sizes", in_sizes)):
        if len(sizes) != size or min(sizes) < 0:
            raise ValueError(f"{name}={sizes}: expected {size} sizes")
    offset = 0
    works = []
    for peer, rows in enumerate(in_sizes):
        part = input[offset : offset + rows]
        offset += rows
        if peer != rank and part.numel():
            works.append(dist.isend(part.contiguous(), group=group, group_dst=peer))
        elif peer == rank:
            mine = part
    parts, copies = [], []
    offset = 0
    for peer, rows in enumerate(out_sizes):
        part = output[offset : offset + rows]
        offset += rows
        if peer == rank:
            part.copy_(mine)
        elif part.numel():
            parts.append(part)
            copies.append(torch.empty(part.shape, dtype=part.dtype))
            works.append(dist.irecv(copies[-1], group=group, group_src=peer))
    for work in works:
        work.wait()
    for part, room in zip(parts, copies, strict=True):
        part.copy_(room)
    if sum(in_sizes) != input.size(0):
        raise ValueError(
            f"input_split_sizes={in_sizes}: sum {sum(in_sizes)}, expected {input.size(0)}"
        )
    if sum(out_sizes) != output.size(0):
        raise ValueError(
            f"output_split_sizes={out_sizes}: sum {sum(out_sizes)}, expected {output.size(0)}"
        )
