"""Assignment 1: the collectives of ``torch.distributed``, built from send and receive."""

from .collectives import (
    all_gather,
    all_reduce_pairwise,
    all_reduce_parameter_server,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
from .point_to_point import neighbour_exchange, rendezvous

__all__ = [
    "all_gather",
    "all_reduce_pairwise",
    "all_reduce_parameter_server",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "gather",
    "neighbour_exchange",
    "reduce",
    "reduce_scatter",
    "rendezvous",
    "scatter",
]
