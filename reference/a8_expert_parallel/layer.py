"""A mixture-of-experts layer whose experts are spread over the ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

# BEGIN SOLUTION
from .dispatch import combine, dispatch

# END SOLUTION


class ExpertParallelMoE(nn.Module):
    """Routed experts, E/n of them on each of n ranks, each rank with tokens of its own.

    As one device would compute it on all ranks' tokens, with the loss summed over the ranks:

    - outputs and input gradients are those of this rank's tokens;
    - an expert's gradient is that of *all* tokens of the group, already complete: nothing is to be
      summed over the group again, and nothing depends on n;
    - the router is replicated, and its gradient that of *this rank's* tokens: like that of every
      other replicated parameter it is summed (or averaged) by data parallelism, outside.

    (Where data parallelism averages over N ranks, divide the experts' gradients by N, too.)

    Attributes: ``experts`` (an ``nn.ModuleList``), ``router``.
    """

    def __init__(
        self,
        experts: Sequence[nn.Module],
        router: nn.Module,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """experts: this rank's, (rows, hidden) to (rows, hidden), also of no rows.

        Rank r of the group has experts r·E/n …; every rank has the same number of them. router:
        (tokens, hidden) to (weights, indices), both (tokens, k), -1 for a dropped choice.

        Raises:
            ValueError: there are no experts.
        """
        super().__init__()
        # BEGIN SOLUTION
        if len(experts) == 0:
            raise ValueError("experts is empty: every rank must have at least one expert, got 0")
        self.experts = nn.ModuleList(experts)
        self.router = router
        self.group = group
        # END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(…, hidden)``, this rank's tokens (also none), to the same shape.

        Every expert is called, also without rows, so that its gradients are zeros
        and not missing, and all ranks communicate in backward. Forward and backward send each
        token once to each of its ranks, and one row back.
        """
        # BEGIN SOLUTION
        tokens = x.flatten(0, -2)
        weights, indices = self.router(tokens)
        num_experts = len(self.experts) * dist.get_world_size(self.group)
        dispatched = dispatch(tokens, indices, num_experts, self.group)
        shares = dispatched.tokens.split(dispatched.expert_counts.tolist())
        results = [expert(rows) for expert, rows in zip(self.experts, shares, strict=True)]
        return combine(torch.cat(results), weights, dispatched, self.group).view_as(x)
        # END SOLUTION
