"""The layers of assignments 4 and 5 as cases: inputs, shards, and what one device makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from grader.checks import a4_dense as dense
from grader.checks.framework import CheckFailed
from grader.checks.world import Outcome, SimulatedCluster

#: A sub-group whose ranks are permuted, in a world of this size.
GROUP_WORLD, GROUP = 4, (3, 0, 2)
PAIR = (3, 1)

IN_DISGUISE = "torch's own code does the work; the task is to write what it does"

_HEADS = ("query", "key", "value")

#: Along which dimension a parameter is cut, by the end of its name; others are whole.
CUTS: dict[str, Mapping[str, int]] = {
    "column": {"weight": 0, "bias": 0},
    "row": {"weight": 1},
    "embedding": {"weight": 0},
    "norm": {},
    "mlp": {"up.weight": 0, "up.bias": 0, "down.weight": 1},
    "attention": {
        **{
            f"{name}.{part}": 0 for name in ("query", "key", "value") for part in ("weight", "bias")
        },
        "output.weight": 1,
    },
}
CUTS["block"] = {
    f"{part}.{name}": dim for part in ("attention", "mlp") for name, dim in CUTS[part].items()
}


@dataclass
class LayerCase:
    """One layer on `world` ranks, of which `ranks` (in group order; None: all) take part.

    layer: key of `CUTS`. enters, leaves: how input and output lie on the ranks: "whole", or the
    dimension that is cut. xs, gradients: by step, whole. masks: what dropout drew, once known.
    """

    label: str
    world: int
    ranks: tuple[int, ...] | None
    layer: str
    spec: Mapping[str, Any]
    state: Mapping[str, torch.Tensor]
    xs: list[torch.Tensor]
    gradients: list[torch.Tensor]
    enters: int | None = None
    leaves: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    frozen: tuple[str, ...] = ()
    training: bool = True
    refused: bool = False
    seed: int | None = None
    masks: list[torch.Tensor] | None = None

    @property
    def members(self) -> list[int]:
        """Global ranks, in group order."""
        return list(range(self.world) if self.ranks is None else self.ranks)

    @property
    def size(self) -> int:
        """Ranks that share the layer."""
        return len(self.members)

    def shard(self, name: str, value: torch.Tensor, place: int) -> torch.Tensor:
        """What a group rank has of a parameter."""
        return share(value, CUTS[self.layer].get(name), place, self.size)

    def of_rank(self, rank: int) -> dict[str, Any]:
        """The case that the driver of a global rank gets."""
        members = self.members
        place = members.index(rank) if rank in members else 0
        return {
            "spec": dict(self.spec),
            "state": {name: value.clone() for name, value in self.state.items()},
            "frozen": list(self.frozen),
            "training": self.training,
            "options": self.options,
            "inputs": [self._part(x, self.enters, place) for x in self.xs],
            "gradients": [self._part(g, self.leaves, place) for g in self.gradients],
            "input_needs_gradient": self.xs[0].is_floating_point() and "input" not in self.frozen,
            "ranks": None if self.ranks is None else list(self.ranks),
            "refused": self.refused,
            "seed": self.seed,
        }

    def _part(self, tensor: torch.Tensor, dim: int | None, place: int) -> torch.Tensor:
        if self.refused:
            return tensor.clone()  # it is not to come that far
        return share(tensor, dim, place, self.size).clone()


def share(tensor: torch.Tensor, dim: int | None, place: int, size: int) -> torch.Tensor:
    """The share of a group rank along a dimension; all of it if the dimension is None."""
    return tensor if dim is None else tensor.chunk(size, dim)[place]


def layer_case(
    rng: torch.Generator,
    layer: str,
    spec: Mapping[str, Any],
    world: int,
    ranks: tuple[int, ...] | None = None,
    *,
    steps: int = 1,
    lead: tuple[int, ...] = (4, 2),
    label: str = "",
    **more: Any,
) -> LayerCase:
    """A case with random parameters, inputs and gradients. lead: dimensions before the last."""
    state = dense.random_state(spec, rng)
    options = spec["options"]
    if layer == "embedding":
        vocabulary = options["num_embeddings"]
        xs = [torch.randint(vocabulary, lead, generator=rng) for _ in range(steps)]
        width = options["embedding_dim"]
    else:
        inputs = options.get("in_features") or options.get("hidden") or options["normalized_shape"]
        width = options.get("out_features") or inputs
        xs = [torch.randn(*lead, inputs, generator=rng, dtype=torch.float64) for _ in range(steps)]
    gradients = [
        torch.randn(*lead, width, generator=rng, dtype=torch.float64) for _ in range(steps)
    ]
    where = f"{world} rank{'s' * (world > 1)}" if ranks is None else f"group {list(ranks)}"
    text = ", ".join(filter(None, [where, label]))
    return LayerCase(text, world, ranks, layer, spec, state, xs, gradients, **more)


@dataclass
class Step:
    """What one device makes of a step."""

    output: torch.Tensor
    input_gradient: torch.Tensor | None
    gradients: dict[str, torch.Tensor | None]
    before: dict[str, torch.Tensor]
    after: dict[str, torch.Tensor]


def expected_steps(case: LayerCase) -> list[Step]:
    """The whole training on one device, with the optimizer of the driver."""
    state = {
        name: value.clone().requires_grad_(name not in case.frozen)
        for name, value in case.state.items()
    }
    trained = [value for value in state.values() if value.requires_grad]
    momenta = [torch.zeros_like(value) for value in trained]
    steps = []
    for given, gradient in zip(case.xs, case.gradients, strict=True):
        x = given.clone()
        if x.is_floating_point():
            x.requires_grad_()
        for value in trained:
            value.grad = None
        before = {name: value.detach().clone() for name, value in state.items()}
        output = dense.forward(case.spec, state, x, case.masks)
        output.backward(gradient)  # type: ignore[no-untyped-call]
        gradients = {n: None if v.grad is None else v.grad.clone() for n, v in state.items()}
        step_with_momentum(trained, momenta)
        after = {name: value.detach().clone() for name, value in state.items()}
        steps.append(Step(output.detach(), x.grad, gradients, before, after))
    return steps


def step_with_momentum(parameters: Sequence[torch.Tensor], momenta: Sequence[torch.Tensor]) -> None:
    """SGD with momentum 0.9 and learning rate 0.05; torch's own imports the compiler (0.6 s)."""
    with torch.no_grad():
        for parameter, momentum in zip(parameters, momenta, strict=True):
            if parameter.grad is not None:
                momentum.mul_(0.9).add_(parameter.grad)
                parameter.sub_(momentum, alpha=0.05)


def run_cases(
    cluster: SimulatedCluster,
    task: str,
    cases: Sequence[LayerCase],
    driver: str = "a4:layers",
    maker: str = "from_dense",
    **options: Any,
) -> Outcome:
    """Run cases of one world size in one world; refuse torch's own layers under another name."""
    inputs = [
        {"task": task, "maker": maker, "cases": [case.of_rank(rank) for case in cases]}
        for rank in range(cases[0].world)
    ]
    outcome = cluster.run(driver, inputs, task=task, allow=None, **options)
    for output in outcome.outputs:
        if isinstance(output, dict) and "extends" in output:
            raise CheckFailed(
                f"{task} holds parameters of type {output['extends']}: expected an implementation "
                f"of your own, from collectives and messages",
                cause=IN_DISGUISE,
            )
    return outcome


def by_world(cases: Sequence[LayerCase]) -> list[list[LayerCase]]:
    """Cases of one world size together."""
    return [[c for c in cases if c.world == size] for size in sorted({c.world for c in cases})]
