"""The reference's `PipelineStage`: order of calls, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from reference.a6_pipeline_parallel.stage import PipelineStage


@pytest.fixture
def stage() -> PipelineStage:
    return PipelineStage(torch.nn.Linear(2, 2))


def test_micro_batches_end_in_any_order(stage: PipelineStage) -> None:
    inputs = [torch.full((1, 2), float(i), requires_grad=True) for i in range(3)]
    for i, x in enumerate(inputs):
        stage.forward(i, x)
    stage.backward_input(2, torch.ones(1, 2))
    stage.backward(0, torch.ones(1, 2))
    stage.backward_input(1, torch.ones(1, 2))
    stage.backward_weight(1)
    stage.backward_weight(2)
    weight = stage.module.weight.grad
    assert weight is not None
    assert torch.equal(weight, torch.full((2, 2), 3.0))


def test_a_micro_batch_under_way_is_not_started_again(stage: PipelineStage) -> None:
    stage.forward(4, torch.ones(1, 2))
    with pytest.raises(ValueError, match="micro-batch 4: it is still under way"):
        stage.forward(4, torch.ones(1, 2))


def test_a_backward_needs_a_forward_and_happens_once(stage: PipelineStage) -> None:
    with pytest.raises(ValueError, match="micro-batch 0: it is not under way"):
        stage.backward(0, torch.ones(1, 2))
    stage.forward(0, torch.ones(1, 2))
    stage.backward_input(0, torch.ones(1, 2))
    with pytest.raises(ValueError, match="it has had its backward_input"):
        stage.backward(0, torch.ones(1, 2))
    stage.backward_weight(0)
    with pytest.raises(ValueError, match="no backward_input yet"):
        stage.backward_weight(0)


def test_weights_wait_for_the_gradient_of_the_inputs(stage: PipelineStage) -> None:
    stage.forward(0, torch.ones(1, 2))
    with pytest.raises(ValueError, match="no backward_input yet"):
        stage.backward_weight(0)


def test_a_gradient_for_each_output(stage: PipelineStage) -> None:
    stage.forward(0, torch.ones(1, 2))
    with pytest.raises(ValueError, match="2 gradients for 1 outputs"):
        stage.backward(0, torch.ones(1, 2), torch.ones(1, 2))


def test_a_module_must_return_tensors() -> None:
    class Odd(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
            return x, 3

    with pytest.raises(TypeError, match="output 1 is of type int"):
        PipelineStage(Odd()).forward(0, torch.ones(1))


def test_hooks_of_parameters_run_once_for_each_micro_batch() -> None:
    layer = torch.nn.Linear(2, 2)
    seen: list[torch.Tensor] = []
    layer.weight.register_post_accumulate_grad_hook(seen.append)
    stage = PipelineStage(torch.nn.Sequential(layer, torch.nn.ReLU(), layer))
    for i in range(2):
        stage.forward(i, torch.ones(1, 2, requires_grad=True))
        stage.backward_input(i, torch.ones(1, 2))
    assert not seen
    for i in range(2):
        stage.backward_weight(i)
    assert len(seen) == 2


class Doubler(torch.autograd.Function):
    """A function of its own, in Python."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x + 2.0 * weight

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return gradient, 2.0 * gradient.sum(0)


class Hooked(torch.nn.Module):
    """Hooks on tensors in the middle change the gradient that passes; several paths meet."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.weight = torch.nn.Parameter(torch.rand(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.first(x)
        y.register_hook(lambda gradient: gradient * 2.0)
        z = Doubler.apply(self.second(y) + y.tanh(), self.weight)
        z.register_hook(lambda gradient: gradient + 1.0)
        return z.sin(), y


def test_hooks_of_tensors_and_functions_in_python_count_once() -> None:
    torch.manual_seed(0)
    module = Hooked().double()
    x = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    gradients = [torch.rand(4, 3, dtype=torch.float64) for _ in range(2)]
    torch.autograd.backward(module(x), gradients)
    expected = [x.grad, *(p.grad for p in module.parameters())]
    module.zero_grad()
    stage = PipelineStage(module)
    stage.forward(0, x.detach().requires_grad_())
    found = [*stage.backward_input(0, *gradients)]
    stage.backward_weight(0)
    found += [p.grad for p in module.parameters()]
    for got, wanted in zip(found, expected, strict=True):
        assert got is not None and wanted is not None
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
