"""`ShardedOptimizer`: cases with given gradients, and the whole optimizer beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from grader.checks import a3_optimizers
from grader.checks import a3_volume as volume
from grader.checks.a3_cases import ADAMW, MLP, MOMENTUM, ODD, operations, run_inputs
from grader.checks.a3_models import build, load, random_state
from grader.checks.compare import assert_close, assert_same_bits
from grader.checks.framework import CheckFailed
from grader.checks.world import Outcome, SimulatedCluster

TASK = "ShardedOptimizer"
CLOSURE_RETURNS = 4.25


@dataclass
class Stepping:
    """Steps with given gradients. gradients, events: by step, as the driver takes them."""

    label: str
    world: int
    ranks: tuple[int, ...] | None
    model: Mapping[str, Any]
    state: dict[str, torch.Tensor]
    spec: Mapping[str, Any]
    groups: list[dict[str, Any]] | None
    gradients: list[dict[str, torch.Tensor | None]]
    events: list[dict[str, Any]]
    save: bool = False

    @property
    def members(self) -> list[int]:
        """Global ranks, in group order."""
        return list(range(self.world) if self.ranks is None else self.ranks)

    def case(self) -> dict[str, Any]:
        """What the driver gets, the same on every rank."""
        return {
            "model": dict(self.model),
            "state": self.state,
            "ranks": None if self.ranks is None else list(self.ranks),
            "optimizer": dict(self.spec),
            "groups": self.groups,
            "gradients": self.gradients,
            "events": self.events,
            "save": self.save,
        }


def stepping(
    rng: torch.Generator,
    model: Mapping[str, Any],
    world: int,
    ranks: tuple[int, ...] | None = None,
    *,
    spec: Mapping[str, Any],
    steps: int = 3,
    groups: list[dict[str, Any]] | None = None,
    events: list[dict[str, Any]] | None = None,
    label: str = "",
    save: bool = False,
) -> Stepping:
    """Random weights and gradients; frozen parameters and `spare` have none."""
    named = dict(build(model).named_parameters())
    gradients: list[dict[str, torch.Tensor | None]] = [
        {
            name: torch.randn(p.shape, generator=rng, dtype=torch.float64).to(p.dtype)
            for name, p in named.items()
            if p.requires_grad and not name.startswith("spare")
        }
        for _ in range(steps)
    ]
    where = f"{world} rank{'s' * (world > 1)}" if ranks is None else f"group {list(ranks)}"
    text = ", ".join(filter(None, [where, f"model {model['name']}", spec["class"], label]))
    state = random_state(model, rng)
    events = [{} for _ in range(steps)] if events is None else events
    return Stepping(text, world, ranks, model, state, spec, groups, gradients, events, save)


def run_cases(cluster: SimulatedCluster, cases: Sequence[Stepping], **options: Any) -> Outcome:
    """Run cases of one world size in one world."""
    inputs = [{"cases": [case.case() for case in cases]} for _ in range(cases[0].world)]
    outcome = run_inputs(cluster, TASK, "sharded_optimizer", inputs, **options)
    for number, case in enumerate(cases):
        for rank in case.members:
            if not outcome.outputs[rank][number]["steps"][-1]["made"]:
                raise CheckFailed(
                    f"{case.label}: rank {rank} made no instance of the optimizer class that it "
                    f"was given",
                    cause="`optimizer_class` must do the arithmetic of the step",
                )
    return outcome


class Whole:
    """The whole optimizer in one process, through the same steps."""

    def __init__(self, case: Stepping) -> None:
        self._case = case
        self.model = load(build(case.model), case.state)
        self.named = dict(self.model.named_parameters())
        groups: Any = (
            list(self.named.values()) if case.groups is None else self._groups(case.groups)
        )
        self.optimizer = a3_optimizers.make(case.spec, groups)

    def _groups(self, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [each | {"params": [self.named[n] for n in each["params"]]} for each in groups]

    def step(self, number: int) -> dict[str, torch.Tensor]:
        """Take a step; the parameters after it."""
        event = self._case.events[number]
        for group, options in event.get("options", {}).items():
            self.optimizer.param_groups[group].update(options)
        if "added" in event:
            self.optimizer.add_param_group(self._groups([event["added"]])[0])
        if "restore" in event:
            self.optimizer.load_state_dict(event["restore"])
        for name, parameter in self.named.items():
            gradient = self._case.gradients[number].get(name)
            parameter.grad = None if gradient is None else gradient.clone()
        self.optimizer.step()
        return {name: parameter.detach().clone() for name, parameter in self.named.items()}


def steps_alike(cluster: SimulatedCluster, cases: Sequence[Stepping], **options: Any) -> None:
    """Every rank's parameters follow the whole optimizer's, step by step."""
    for world in sorted({case.world for case in cases}):
        together = [case for case in cases if case.world == world]
        outcome = run_cases(cluster, together, **options)
        for number, case in enumerate(together):
            judge(case, [answers[number] for answers in outcome.outputs])


def judge(case: Stepping, answers: Sequence[Any]) -> None:
    """answers: by global rank."""
    whole = Whole(case)
    before = {name: p.detach().clone() for name, p in whole.named.items()}
    for number in range(len(case.gradients)):
        wanted = whole.step(number)
        for rank in case.members:
            step = answers[rank]["steps"][number]
            where = f"{case.label}: step {number + 1}, rank {rank}"
            for name, value in wanted.items():
                assert_close(
                    step["parameters"][name], value.double(), dtype=value.dtype,
                    operations=operations(value.dtype), where=f"{where}, {name}",
                    scale=(value.double().abs() + before[name].double().abs()).max().expand(
                        value.shape
                    ),
                    suspects=[
                        (
                            before[name].double(),
                            "the parameter still has its old value: its owner's new value was "
                            "not sent, or the step left it out",
                        )
                    ],
                    cause=_cause(case, number),
                )  # fmt: skip
            _judge_returned(step["returned"], case.events[number].get("closure", False), where)
        before = wanted
    for rank in case.members:
        if answers[rank]["not_zeroed"]:
            raise CheckFailed(
                f"{case.label}: rank {rank}: after zero_grad() {answers[rank]['not_zeroed'][0]} "
                f"still has a gradient",
                cause="zero_grad reaches the rank's own share only",
            )


def _cause(case: Stepping, number: int) -> str:
    event = case.events[number]
    if "options" in event:
        return "an option that is changed in param_groups has no effect on the step"
    if "added" in event:
        return "a group that is added later is not stepped as its options say"
    if event.get("reload") or "restore" in event:
        return "the state that was loaded is not the one that was saved"
    if case.groups is not None:
        return "the options of a parameter group are lost"
    return "the step is not the whole optimizer's"


def _judge_returned(got: Any, closure: bool, where: str) -> None:
    if not closure:
        return
    value = float(got) if isinstance(got, (torch.Tensor, float, int)) else None
    if value != CLOSURE_RETURNS:
        cause = "step() must return what the closure returns"
        if value == -1.0:
            cause = "the closure computes gradients: it needs torch.enable_grad()"
        raise CheckFailed(f"{where}: step(closure) returned {got}, not the loss", cause=cause)


# The checks' own cases ----------------------------------------------------------------------------

#: Few large parameters among small ones, so that shares by number are not shares by size.
LOPSIDED = {"name": "mlp", "width": 24, "blocks": 3}


def keeps_shares(cluster: SimulatedCluster, rng: torch.Generator, metrics: dict[str, Any]) -> None:
    """States lie on one rank each, and the shares are balanced."""
    for model, world, spec, per_element in (
        (LOPSIDED, 2, ADAMW, 2),
        (LOPSIDED, 4, ADAMW, 2),
        (MLP, 3, MOMENTUM, 1),
    ):
        case = stepping(rng, model, world, spec=spec, steps=2)
        outcome = run_cases(cluster, [case])
        sizes = [p.numel() for p in build(model).parameters()]
        for number in range(2):
            numels = [answers[0]["steps"][number]["numel"] for answers in outcome.outputs]
            metrics.setdefault("state_elements_by_rank", numels)
            volume.shares_are_balanced(numels, sizes, per_element)


def same_everywhere(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """All ranks hold the same bits after every step, and they are new ones."""
    for model, world in ((MLP, 3), (LOPSIDED, 4)):
        case = stepping(rng, model, world, spec=ADAMW, steps=2)
        outcome = run_cases(cluster, [case])
        for number in range(2):
            steps = [answers[0]["steps"][number]["parameters"] for answers in outcome.outputs]
            for name in steps[0]:
                try:
                    assert_same_bits(
                        [step[name] for step in steps],
                        cause="each rank computes the step for itself, or keeps its own parameters",
                    )
                except CheckFailed as failure:
                    failure.message = f"{case.label}: step {number + 1}, {name}: {failure.message}"
                    raise
        if torch.equal(steps[0][name], case.state[name]):
            raise CheckFailed(f"{case.label}: {name} has not changed in two steps")


def grouped(rng: torch.Generator) -> list[Stepping]:
    """Groups with options of their own, changed on the way, added on the way."""
    names = [name for name, _ in build(MLP).named_parameters()]
    weights = [name for name in names if name.endswith("weight")]
    biases = [name for name in names if name.endswith("bias")]
    two = [{"params": weights, "lr": 0.1}, {"params": biases, "weight_decay": 0.0}]
    schedule = [{}, {"options": {0: {"lr": 0.01}}}, {"options": {1: {"weight_decay": 0.5}}}]
    late = [{}, {"added": {"params": biases, "lr": 0.2}}, {}]
    return [
        stepping(rng, MLP, 2, spec=ADAMW, groups=two, label="two groups"),
        stepping(rng, MLP, 3, spec=MOMENTUM, groups=two, events=schedule, label="options change"),
        stepping(
            rng, MLP, 3, spec=ADAMW, groups=two[:1], events=late, label="a group is added later"
        ),
    ]


def reloaded(rng: torch.Generator) -> list[Stepping]:
    """A new optimizer takes over from each rank's own state dict."""
    again = [{}, {}, {"reload": True}, {}]
    names = [name for name, _ in build(MLP).named_parameters()]
    groups: list[dict[str, Any]] = [{"params": names[:3], "lr": 0.1}, {"params": names[3:]}]
    make = [
        stepping(rng, MLP, 1, spec=ADAMW, steps=4, events=again),
        stepping(rng, MLP, 3, spec=ADAMW, steps=4, events=again, groups=groups),
        stepping(rng, ODD, 3, spec=MOMENTUM, steps=4, events=again),
    ]
    for case in make:
        case.label += ", reloaded before step 3"
    return make


def another_world(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """The parts that 4 ranks saved, put together, serve 2 ranks; so does the whole optimizer's."""
    case = stepping(rng, MLP, 4, spec=ADAMW, steps=2, save=True, label="saved after step 2")
    outcome = run_cases(cluster, [case])
    parts = [answers[0]["saved"] for answers in outcome.outputs]
    union: dict[int, Any] = {}
    for rank, part in enumerate(parts):
        if not isinstance(part, dict) or not {"state", "param_groups"} <= part.keys():
            raise CheckFailed(
                f"{case.label}: rank {rank}: expected a state_dict with state and param_groups, "
                f"got {sorted(part) if isinstance(part, dict) else part}"
            )
        union |= part["state"]
    whole = Whole(case)
    for number in range(2):
        last = whole.step(number)
    saved = whole.optimizer.state_dict()
    _judge_union(union, saved, case, len(list(build(MLP).parameters())))
    together = {"state": union, "param_groups": parts[0]["param_groups"]}
    for restored, label in (
        (together, "the union of 4 ranks' parts"),
        (saved, "the whole optimizer's own"),
    ):
        later = stepping(
            rng, MLP, 2, spec=ADAMW, steps=2, label=f"restored from {label}",
            events=[{"restore": restored}, {}],
        )  # fmt: skip
        later.state = last
        steps_alike(cluster, [later])


def _judge_union(union: Mapping[Any, Any], saved: Any, case: Stepping, count: int) -> None:
    if set(union) != set(saved["state"]):
        raise CheckFailed(
            f"{case.label}: the ranks' states together are those of parameters "
            f"{sorted(map(str, union))}, expected 0 to {count - 1}, numbered through all groups",
            cause="parameters are numbered within the rank's share: use their numbers in the whole",
        )
    for number, state in saved["state"].items():
        for name, value in state.items():
            got = union[number].get(name)
            if not isinstance(got, torch.Tensor):
                raise CheckFailed(
                    f"{case.label}: state {name!r} of parameter {number}: expected a tensor, "
                    f"got {got}"
                )
            assert_close(
                got.double(), value.double(), dtype=torch.float64,
                operations=operations(torch.float64), scale=value.double().abs().max().expand(
                    value.shape
                ),
                where=f"{case.label}: state {name!r} of parameter {number}",
                cause="the number belongs to another parameter",
            )  # fmt: skip
